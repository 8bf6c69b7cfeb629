// Package wire is the daemon's end of every sandbox's only network link.
//
// # The story
//
// A sandbox has one Ethernet link. The link's other end is a file descriptor in the daemon. It is a
// SOCK_SEQPACKET socket with one frame per message, a TAP device in the sandbox's own network
// namespace (package tap), or a Unix stream with the length of each frame before it (stream.go), as
// virtual machines have. [Wire.Attach] puts a TCP/IP stack in user space on that descriptor. The
// stack is the sandbox's whole outside world: its gateway, its resolver and every address it may
// try to reach. The host has no route, bridge or NAT, so nothing inside can go round the stack. Two
// sandboxes can't see each other, because each has a wire of its own.
//
// Inwards, [Link.Dial] connects from the gateway's address to a port of the sandbox. Outwards, a
// [policy.Policy] decides. Forbidden traffic is answered at once: TCP with a reset, UDP with port
// unreachable, names with NXDOMAIN. So programs fail fast instead of hanging. Allowed traffic is
// carried by ordinary sockets of the daemon. ICMP to the outside is not served.
//
// The gateway itself has a few open ports. One is the resolver's. The others are [guest.HostPort]
// and port 80 of the gateway, and port 80 at [guest.MetadataIPv4]. There a sandbox sends requests
// to its host (Options.Local). The link that a connection came by says which sandbox it is, so no
// sandbox can speak for another.
//
// # Names and addresses together
//
// A name is judged when a program asks for it. The resolver (dns.go, lookup.go) forwards only
// allowed questions, in messages that it makes itself. It makes the answer anew too, from the
// records that belong to the question. For each sandbox it remembers the addresses that it gave out
// and their names (names.go).
//
// A connection is judged at its first packet by its address and those names. If that does not
// decide, the wire accepts it and reads its first bytes (peek.go, inspect.go). They are the server
// name of a TLS hello (package hello), the beginning of HTTP, something else, or silence, when the
// sandbox waits for the server to speak. Nothing leaves before it is allowed. If a name decided,
// the wire looks that name up again, judges the resulting address too, and dials it (dial.go).
// Package web serves HTTP that is judged by request, and TLS that must be opened for that. All
// other connections are spliced and no longer inspected (splice.go).
//
// A sandbox may use a name that it did not ask for on this link, for example after a restart of the
// daemon. The wire looks such a name up when a connection says it. The name counts if it has the
// connection's address.
//
// Questions to other name servers are answered by our resolver where everything may be reached.
// Where a rule opens a name server's address, that server itself is asked.
//
// Limits (limit.go) belong to a rule or to the whole sandbox. If a proxy is set, it carries all TCP
// after the judgement (socks.go), and no UDP. Each decision goes to the audit log, and each refusal
// is explained to the sandbox (notice.go). A policy may change at any time. Then each open
// connection is judged again by its known properties (flow.go).
//
// # Threat
//
// The sandbox is hostile and controls every byte of every frame. Therefore:
//
//   - No policy opens this host, loopback, link-local or cloud metadata addresses.
//   - Private addresses are out of reach unless a rule names them.
//   - Both hold for an IPv6 address that carries an IPv4 one, and for addresses behind a name.
//   - Each sandbox has bounds on its connections, UDP sessions, handshakes under way, bytes of
//     connections not yet understood, questions, and refusals that are noted and told.
//   - A sandbox that stops reading its link stalls only itself.
//
// # Life
//
// The stack keeps nothing that must outlive it. After a restart of the daemon, the same descriptor,
// kept by package keeper, gets a new stack. Open connections are reset, and new ones work. A stream
// needs a new connection then, because the old daemon may have died within a frame. [Link.Close]
// resets open connections and returns when every goroutine has ended.
//
// Lock order: Wire.mu before a link's locks. No lock is held while dialling. Options.Audit may be
// called under a link's lock, and must not call back.
package wire

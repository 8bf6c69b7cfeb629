// Package wire is the daemon's end of every sandbox's only network link.
//
// # The story
//
// A sandbox has one Ethernet link, and its other end is a file descriptor in the
// daemon: a SOCK_SEQPACKET socket with one frame per message, a TAP device in the
// sandbox's own network namespace (package tap), or a Unix stream with the length of each frame before it (stream.go), as virtual
// machines have. [Wire.Attach] puts a TCP/IP stack in user space on that descriptor. The stack is the sandbox's whole
// outside world: its gateway, its resolver and every address it may try to reach.
// There is no route, bridge or NAT on the host, nothing inside can go round it, and
// two sandboxes can't see each other because each has a wire of its own.
//
// Inwards, [Link.Dial] connects from the gateway's address to a port of the
// sandbox. Outwards, a [policy.Policy] decides: what it
// forbids is answered at once, TCP with a reset, UDP with port unreachable, names
// with NXDOMAIN, so that programs fail fast instead of hanging. What it allows is
// carried by ordinary sockets of the daemon. The ICMP of the outside is not served.
//
// The gateway itself has a few open ports. One is the resolver's. The others,
// [guest.HostPort] and port 80 there and at [guest.MetadataIPv4], are where a sandbox asks
// its host for something (Options.Local): who asks is known by the link that the
// connection came by, so no sandbox can speak for another.
//
// # Names and addresses together
//
// A name is judged when it is asked for. The resolver (dns.go, lookup.go) forwards only
// what may be asked for, in words of its own, and makes the answer anew from what belongs to the
// question. For each sandbox it remembers for which names it gave out an address
// (names.go).
//
// A connection is judged at its first packet by its address and those names. If that
// does not decide, it is accepted and its first bytes are read (peek.go, inspect.go): the
// server name of a TLS hello (package hello), the beginning of HTTP, something else,
// or silence, as of one that waits for the server to speak. Nothing leaves before it is
// allowed. A connection that is allowed by its name is dialled by that name, looked up
// anew, and the address that comes out is judged too (dial.go). HTTP that is judged by
// request, and TLS that must be opened for that, is handed to package web; all else is
// spliced and no more looked at (splice.go).
//
// A name that the sandbox did not ask for on this link, as after a restart of the
// daemon, is looked up when a connection says it, and counts if it has that address.
//
// Questions to other name servers are answered by our resolver where everything may be
// reached; where a rule opens a name server's address, it is asked itself.
//
// Limits (limit.go) belong to a rule or to the whole sandbox. A proxy, if one is set,
// carries all TCP after it was judged (socks.go), and no UDP. Each decision goes to the audit log,
// and a refusal is explained to the sandbox (notice.go). A policy may change at any
// time: each open connection is then judged again by what is known of it (flow.go).
//
// # Threat
//
// The sandbox is hostile and controls every byte of every frame. Therefore: this
// host, loopback, link-local and cloud metadata addresses are out of reach whatever the
// policy says (but for one port of the loopback that a rule of its own kind opens, and
// Options.HostService too: see policy.HostName), and private ones unless a rule names them, also when spelled as an
// IPv6 address that carries an IPv4 one, or hidden behind a name; connections, UDP
// sessions, handshakes under way, bytes that wait to be understood, questions, refusals
// that are noted and told are bounded for each sandbox; a sandbox that stops reading its
// link stalls only itself.
//
// # Life
//
// The stack keeps nothing that outlives it. After a restart of the daemon the same
// descriptor, kept by package keeper, gets a new stack: open connections are reset,
// new ones work. A stream needs a new connection for that: the old daemon may have died within a frame. [Link.Close] resets what is open and returns when every goroutine
// has ended.
//
// Lock order: Wire.mu before a link's locks; no lock is held while dialling. Options.Audit
// may be called under a link's lock, and must not call back.
package wire

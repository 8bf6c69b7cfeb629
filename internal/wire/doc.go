// Package wire is the daemon's end of every sandbox's only network link.
//
// # The story
//
// A sandbox has one Ethernet link, and its other end is a file descriptor in the
// daemon: a SOCK_SEQPACKET socket with one frame per message. [Wire.Attach] puts a
// TCP/IP stack in user space on that descriptor. The stack is the sandbox's whole
// outside world: its gateway, its resolver and every address it may try to reach.
// There is no route, bridge or NAT on the host, nothing inside can go round it, and
// two sandboxes can't see each other because each has a wire of its own.
//
// Inwards, [Link.Dial] connects from the gateway's address to a port of the
// sandbox. Outwards, a [carrel.Network] decides (see [Policy]): what it forbids is
// answered at once, TCP with a reset, UDP with port unreachable, names with
// NXDOMAIN, so that programs fail fast instead of hanging. What it allows is
// carried by ordinary sockets of the daemon.
//
// # Threat
//
// The sandbox is hostile and controls every byte of every frame. Therefore: this
// host, loopback, link-local, private, multicast and cloud metadata addresses are
// out of reach whatever the policy says, also when spelled as an IPv6 address that
// carries an IPv4 one; connections, UDP sessions and handshakes under way are
// bounded for each sandbox; a sandbox that stops reading its link stalls only
// itself.
//
// # Life
//
// The stack keeps nothing that outlives it. After a restart of the daemon the same
// descriptor, kept by package keeper, gets a new stack: open connections are reset,
// new ones work. [Link.Close] resets what is open and returns when every goroutine
// has ended.
//
// Lock order: Wire.mu before a link's locks; no lock is held while dialling.
package wire

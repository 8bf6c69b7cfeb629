// Package gateway is the data plane's door: it takes a request for a port inside
// a sandbox to that port, and the answer back, with nothing translated in
// between.
//
// # Two ways to say which port
//
// A host name <port>-<id>.<domain> says it all; such names need a wildcard DNS
// entry and, over TLS, a wildcard certificate. Or one plain port serves all
// sandboxes and the headers E2b-Sandbox-Id and E2b-Sandbox-Port say it. The
// headers count on every host that is not of the first form, so a page served
// from one sandbox's host name can't reach another through them. Without a port
// the guest's own is meant.
//
// A signed file URL on the plain port carries no ID. The signature is made with
// the sandbox's access token, so the sandbox is the one whose token fits.
//
// # Protocols
//
// What comes in over HTTP/1.1 or HTTP/2 goes inside over HTTP/1.1, which every server
// speaks, with nothing held back: events and streams arrive as they are sent. WebSocket
// and other upgrades pass as bytes. gRPC goes inside over HTTP/2, with its trailers
// and streams both ways. WebSocket over HTTP/2 (RFC 8441) is not offered, because
// net/http offers it only to a whole process by GODEBUG; clients then use HTTP/1.1.
//
// # What is refused before it is read
//
// [StrictListener] and [StrictHandler] stand before the server. The threat is a
// request that a proxy before us or a server behind us takes for two, or for one of
// another host: it is answered with 400 and its connection closed, and nothing of it
// goes anywhere. An upgrade to HTTP/2 in the clear is answered as if it had not been
// asked for: behind it nobody would judge what goes in.
//
// # Who may pass
//
// The guest checks its access token itself; the gateway keeps everyone from the
// routes that are for the host alone (package guest's Internal). Other ports are
// open, unless the sandbox was created with private traffic: then they need the
// traffic token. That token, the routing headers and the sandbox's own secrets
// are taken off before a request reaches a program inside.
//
// # Sandboxes that sleep
//
// A request to a paused sandbox that wakes by itself is held until it runs, with
// its body unread, and then goes in: one hop, nothing for the client to try again.
// It must be one that may pass: what the traffic token or, for the guest's port, the
// access token (or a signature made with it) does not allow wakes nothing (403).
// Without auto-resume the answer is that of an unknown sandbox (502), and 409 while
// its state changes. What keeps a resumption from coming about is told: no room
// (429), not on this machine (501).
//
// Each restoration gives a sandbox a new guest.Conn. Warm connections belong to one
// Conn, so none of an earlier life is used in a later one. A request that meets the
// change itself goes once more to the new life, when nothing of it had been sent or it is
// idempotent and has no body; else it gets 409. Every visit ends exactly once, with
// the exchange, upgraded ones included: what counts them decides when a sandbox is idle.
//
// While a request with a body is held over HTTP/1, its client's leaving is not
// noticed: net/http looks for that only once the body was read. The hold ends with the
// resumption.
//
// # Bounds
//
// Nothing is buffered beyond one copy buffer a direction: slow readers slow the
// sender down. Requests under way to one sandbox are capped. A sandbox that dies
// breaks its clients' streams off at once, which their SDKs tell from a clean end. One
// that is paused or rolled back ends the guest's streams with that as their reason,
// whether its guest found the time to write it or not.
package gateway

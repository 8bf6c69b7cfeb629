// Package gateway is the data plane's door. It takes a request for a port inside a sandbox to that
// port, and the answer back. It translates nothing in between.
//
// # Two ways to name a port
//
// A host name <port>-<id>.<domain> names both the port and the sandbox. Such names need a wildcard
// DNS entry and, over TLS, a wildcard certificate. Or one plain port serves all sandboxes, and the
// headers E2b-Sandbox-Id and E2b-Sandbox-Port name the sandbox and its port. The headers count only
// on hosts that are not of the first form. So a page from one sandbox's host name can't reach
// another sandbox through them. A request without a port is for the guest's own port.
//
// A signed file URL on the plain port carries no ID. The signature is made with the sandbox's
// access token, so the gateway finds the sandbox by trying their tokens.
//
// # Protocols
//
// Requests over HTTP/1.1 or HTTP/2 go inside over HTTP/1.1, which every server speaks. Nothing is
// held back: events and streams arrive as they are sent. WebSocket and other upgrades pass as
// bytes. gRPC goes inside over HTTP/2, with its trailers and streams both ways. WebSocket over
// HTTP/2 (RFC 8441) is not offered, because net/http offers it only to a whole process by GODEBUG.
// Clients then use HTTP/1.1.
//
// # What is refused before it is read
//
// [StrictListener] and [StrictHandler] stand before the server. The threat is a request that a
// proxy before us or a server behind us takes for two requests, or for a request to another host.
// Such a request is answered with 400, its connection is closed, and no part of it is forwarded. A
// request for an upgrade to HTTP/2 in the clear is answered as if it did not ask for that, because
// the gateway could not judge the requests after such an upgrade.
//
// # Who may pass
//
// The guest checks its access token itself. The gateway keeps everyone from the routes that are for
// the host alone (package guest's Internal). Other ports are open, unless the sandbox was created
// with private traffic: then they need the traffic token. The gateway removes that token, the
// routing headers and the sandbox's own secrets before a request reaches a program inside.
//
// # Sandboxes that sleep
//
// If a paused sandbox has automatic wake-up, the gateway holds a request to it until it runs. It
// does not read the body before that. Then the request goes in: one hop, and the client need not
// try again. Only a request that may pass wakes a sandbox. Without the traffic token or, for the
// guest's port, the access token (or a signature made with it), it wakes nothing (403). Without
// auto-resume the answer is that of an unknown sandbox (502), and 409 while its state changes. The
// reason of a failed resumption is reported: no room (429), not on this machine (501).
//
// Each restoration gives a sandbox a new guest.Conn. Warm connections belong to one Conn, so a
// connection of an earlier life is never used in a later one. A request may meet the change itself.
// The gateway sends it once more to the new life if nothing of it had been sent, or if it is
// idempotent and has no body. Otherwise it gets 409. Every visit ends exactly once, at the end of
// its exchange, upgraded ones included, because the count of visits decides when a sandbox is idle.
//
// While a request with a body is held over HTTP/1, the gateway does not notice when its client
// leaves: net/http looks for that only after the body was read. The hold ends with the resumption.
//
// # Bounds
//
// The gateway buffers at most one copy buffer in each direction, so slow readers slow the sender
// down. The number of requests under way to one sandbox is capped. When a sandbox dies, the gateway
// breaks its clients' streams off at once, which their SDKs can tell from a clean end. When a
// sandbox is paused or rolled back, the guest's streams end with that as their reason, even if the
// guest had no time to write it.
package gateway

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
// # Who may pass
//
// The guest checks its access token itself; the gateway keeps everyone from the
// routes that are for the host alone (package guest's Internal). Other ports are
// open, unless the sandbox was created with private traffic: then they need the
// traffic token. That token, the routing headers and the sandbox's own secrets
// are taken off before a request reaches a program inside.
//
// # Bounds
//
// Nothing is buffered beyond one copy buffer a direction: slow readers slow the
// sender down. Requests under way to one sandbox are capped. A sandbox that dies
// breaks its clients' streams off at once, which their SDKs tell from a clean end.
package gateway

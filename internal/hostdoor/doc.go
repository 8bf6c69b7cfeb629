// Package hostdoor serves the requests that a sandbox sends to its host. There are only a few, over
// HTTP on the one port that its gateway has for this (guest.HostPort).
//
// POST guest.CheckpointPath takes a snapshot of the sandbox. GET guest.TokenPath mints one of the
// sandbox's identity tokens. GET guest.SandboxPath tells the sandbox who it is. The latter two are
// also served at the address of the clouds' metadata service, [guest.MetadataIPv4].
//
// # Threat
//
// The caller is any process inside a sandbox, and hostile. It proves nothing and needs no token.
// The wire hands over the connection together with the sandbox's ID, so no request can name another
// sandbox. A request must be small, complete and in time, or it is refused. A sandbox may send
// requests rarely (see [Options]), and one at a time is carried out. The answers are fixed
// sentences. They contain no path, no name and no count of anything outside the sandbox.
//
// A program inside that is not hostile may be tricked into requesting a token: a server that
// fetches addresses named by others, a page in a browser, a name that leads to our address. So
// these requests need the header "Metadata-Flavor: Carrel", must not be forwarded by a proxy, and
// must be for an address or a name of our own.
package hostdoor

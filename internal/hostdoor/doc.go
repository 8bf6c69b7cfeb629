// Package hostdoor is the other direction of the door: the few things that a
// sandbox may ask of its host, over HTTP on the one port that its gateway has for
// it (guest.HostPort).
//
// POST guest.CheckpointPath keeps the sandbox's present moment. GET guest.TokenPath
// mints one of the identity tokens that the sandbox was given, and GET guest.SandboxPath
// tells it who it is; both also where clouds have their metadata service, at
// [guest.MetadataIPv4].
//
// # Threat
//
// The caller is any process inside a sandbox, and hostile. It proves nothing and
// needs no token: who it is is told by the connection, which the wire hands over
// together with the sandbox's ID, and no request can name another. What it sends is
// small, complete and in time, or refused. It may ask rarely (see [Options]), one
// request at a time is carried out, and the answers are fixed sentences: no path, no
// name and no count of anything outside of the sandbox is in them.
//
// A program inside that is not hostile may be tricked into asking for a token: a server
// that fetches what others name, a page in a browser, a name that was made to mean our address.
// So these requests need the header "Metadata-Flavor: Carrel", must not have been passed
// on, and must be for an address or a name of our own.
package hostdoor

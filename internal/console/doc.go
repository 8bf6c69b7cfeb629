// Package console serves the web page for people, below /console.
//
// The page is a bundle that this package carries (directory dist). Its sources are in the directory
// console of the repository, and a test builds them again and compares. The page calls the same API
// as every other client, with an API key that a person types or with the session of package signin.
// So this package decides nothing about rights: the API does, for each request.
//
// # Threat
//
// Everything that the page shows may come from a hostile program in a sandbox: names, metadata,
// files, logs, processes, hosts, paths. The page writes them as text. If that fails once, the
// Content-Security-Policy holds: scripts and styles run only with a nonce that is new in each
// answer, no text becomes code (Trusted Types), and the page talks to its own origin alone.
//
// Another site shows the page in a frame, to steal clicks: nobody may frame it. Another site gives
// the daemon's address a name of its own (DNS rebinding), and so has the page in its own origin: the
// page is served for addresses, for localhost and for the names that the operator set, and for no
// other name. Such a site would get no key, because keys and cookies belong to the real origin.
//
// A preview of a port is a frame with another origin. The policy lets the page frame hosts of
// sandboxes alone.
//
// A page of another origin asks for the session's form token: /console/session answers none but our
// own page.
package console

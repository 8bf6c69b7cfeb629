// Package signin is the door for people: the pages on which they sign in, and the authorization
// server for the command line's device flow (RFC 8628).
//
// The pages are plain HTML and need no script. A person signs in with a password or at an identity
// provider, and gets a session. Its secret is in a cookie, and only its hash is kept. The console
// uses the same sessions.
//
// # Threat
//
// Another site, or a page in a sandbox on a host below the daemon's, makes a visitor's browser send
// requests. So each form must come from our own origin and carry the session's form token, and no
// page may show ours in a frame. An attacker gives the visitor a session of the attacker's, or
// knows one from before: every sign-in makes a new secret, and ends the session that was there.
//
// A link leads to our sign-in and then elsewhere: only paths of this daemon are followed.
//
// An answer of the identity provider is replayed, or is one that another browser asked for: the
// state, the nonce and the PKCE verifier are in a signed cookie of the browser that began, which
// is good for one answer.
//
// Somebody guesses passwords or user codes: attempts are bounded for each name, person and network
// (package attempts), and user codes live for ten minutes. Somebody sends a user code to a victim,
// who then confirms it: the page says what confirming does, which machine asked, and that a code
// from somebody else is a trick.
package signin

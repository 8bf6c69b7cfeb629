// Package identity lets sandboxes prove who they are: it mints short-lived tokens that
// anybody can verify, and serves what is needed for that.
//
// A token is a JWT, signed with ES256. It is an OpenID Connect ID token as clouds and
// other relying parties take it for workload identity federation, and at the same time
// a SPIFFE JWT-SVID (https://github.com/spiffe/spiffe/blob/main/standards/JWT-SVID.md):
//
//	iss    the issuer: this daemon's URL
//	sub    spiffe://<trust domain>/org/<org>/project/<project>/sandbox/<id>[/task/<task>]
//	aud    whom it is for, one
//	exp    15 minutes from now, at most an hour
//	iat, nbf, jti, scope
//	carrel {sandbox, org, project, task, template, generation}
//
// A sandbox gets tokens for the audiences that its owner registered, and no others.
//
// # Keys
//
// A key signs for 30 days. The next one is made and published a whole period before it
// signs, so that whoever caches keys has it by then, and the last one is published
// until its tokens have expired. They lie in one file of mode 0600 that is replaced atomically.
//
// # Revocation
//
// A sandbox that has ended gets no tokens, and introspection (RFC 7662) says that those
// it had are not active; both also after a restart. Who verifies tokens by their signature alone
// learns of it when they expire.
//
// # Threat
//
// A sandbox is hostile. It can't choose what is said of it: everything comes from the
// service's record. It may show a token meant for one audience to another, which is
// why a token has exactly one. A relying party that does not check the audience, or takes
// any algorithm, is beyond help. Somebody who reads the key file can be any sandbox.
package identity

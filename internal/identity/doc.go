// Package identity lets sandboxes prove who they are. It mints short-lived tokens that anybody can
// verify, and serves the documents for verification.
//
// A token is a JWT, signed with ES256. It is an OpenID Connect ID token, as clouds and other
// relying parties accept it for workload identity federation. At the same time it is a SPIFFE
// JWT-SVID (https://github.com/spiffe/spiffe/blob/main/standards/JWT-SVID.md):
//
//	iss    the issuer: this daemon's URL
//	sub    spiffe://<trust domain>/org/<org>/project/<project>/sandbox/<id>[/task/<task>]
//	aud    the one audience of the token
//	exp    15 minutes from now, at most an hour
//	iat, nbf, jti, scope
//	carrel {sandbox, org, project, task, template, generation}
//
// A sandbox gets tokens for the audiences that its owner registered, and no others.
//
// # Keys
//
// A key signs for 30 days. The next key is made and published a whole period before it signs, so
// that everybody who caches keys has it by then. The last key stays published until its tokens have
// expired. The keys lie in one file of mode 0600 that is replaced atomically.
//
// # Revocation
//
// A sandbox that has ended gets no tokens, and introspection (RFC 7662) says that its old tokens
// are not active. Both hold after a restart too. A verifier that checks only the signature accepts
// a token until it expires.
//
// # Threat
//
// A sandbox is hostile. It can't choose the claims about it: they all come from the service's
// record. It may show a token for one audience to another, so a token has exactly one audience. A
// relying party that does not check the audience, or accepts any algorithm, can't be protected.
// Somebody who reads the key file can act as any sandbox.
package identity

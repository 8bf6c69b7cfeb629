// Package certs provides the daemon's TLS certificates, from one of three sources: files that
// another program renews, an ACME authority such as Let's Encrypt, or an authority of this
// machine's own, for development.
//
// # Names
//
// Clients reach the API at api.DOMAIN (or any name of this host), and ports at <port>-<id>.DOMAIN.
// A certificate for DOMAIN and *.DOMAIN covers them all. ACME gives a wildcard only for the DNS-01
// challenge, which needs the credentials of the domain's DNS. Those belong in a program made for
// that (certbot, lego). [Files] uses such a program's files, and reads them again when they change.
// This package itself proves names over TLS-ALPN-01 and HTTP-01. So it gets certificates for the
// configured names and, where that is allowed, one for each host name of a sandbox at its first
// use. It asks only for names that the decision function knows, and only for so many an hour.
// Otherwise a stranger could make up names and use up the number of certificates that the authority
// allows this domain in a week.
//
// # Keys
//
// Private keys made here are in the data directory, in files that only the daemon's user can read.
package certs

import (
	"context"
	"crypto/tls"
	"io"
)

// Source provides certificates. It is safe for concurrent use. Close ends its background work.
type Source interface {
	// TLSConfig returns the configuration for a listener: TLS 1.2 and newer, always with the
	// present certificates.
	TLSConfig() *tls.Config
	// Run renews the certificates until ctx ends.
	Run(ctx context.Context) error
	io.Closer
}

// base is the common configuration of all sources.
func base() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }

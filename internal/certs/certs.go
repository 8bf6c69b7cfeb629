// Package certs gives the daemon the certificates that it serves TLS with, from one
// of three places: files that somebody else renews, an ACME authority such as Let's
// Encrypt, or an authority of this machine's own, for development.
//
// # Names
//
// Clients ask for the API at api.DOMAIN (or any name of this host) and for ports at
// <port>-<id>.DOMAIN. A certificate for DOMAIN and *.DOMAIN covers them all. ACME
// gives a wildcard only against the DNS-01 challenge, which needs the credentials of
// the domain's DNS: those belong in a program made for that (certbot, lego), whose
// files [Files] takes and reads again when they change. By itself this package proves
// its names over TLS-ALPN-01 and HTTP-01, so it gets certificates for the names that
// it was given and, where that is allowed, one for each host name of a sandbox when
// it is first asked for. Only names that the decision function knows are asked for,
// and only so many an hour: a stranger who makes up names must not use up what the
// authority allows this domain in a week.
//
// # Keys
//
// Private keys made here are in the data directory, in files of the daemon's user
// alone.
package certs

import (
	"context"
	"crypto/tls"
	"io"
)

// Source is where the certificates come from. It is safe for concurrent use; Close
// ends what it does in the background.
type Source interface {
	// TLSConfig returns the configuration of a listener: TLS 1.2 and newer, with
	// certificates that are always the present ones.
	TLSConfig() *tls.Config
	// Run keeps the certificates fresh until ctx ends.
	Run(ctx context.Context) error
	io.Closer
}

// base is what every source's configuration has.
func base() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }

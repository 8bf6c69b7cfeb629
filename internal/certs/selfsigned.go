package certs

import (
	"context"
	"crypto/tls"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pki"
)

// selfSigned is an authority of this machine's own.
type selfSigned struct {
	ca    *pki.CA
	names []string
}

// AuthorityFile is the file with the certificate of the authority that [SelfSigned] keeps in dir.
// Clients must trust it.
func AuthorityFile(dir string) string { return filepath.Join(dir, "ca.pem") }

// SelfSigned makes certificates for these names (host names, "*.name" and addresses). Its authority
// is kept in dir and made on first use. No client trusts it by default: give clients
// [AuthorityFile].
func SelfSigned(dir string, names []string) (Source, error) {
	ca, err := pki.LoadOrCreate(dir, "Carrel development CA")
	if err != nil {
		return nil, &carrel.Error{Op: "open the development authority", Kind: carrel.Internal, Err: err,
			Hint: "remove its directory to have a new one made; clients must trust that again"}
	}
	return &selfSigned{ca: ca, names: names}, nil
}

// TLSConfig implements Source.
func (s *selfSigned) TLSConfig() *tls.Config {
	cfg := base()
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.ca.Leaf(s.names...) }
	return cfg
}

// Run implements Source. It only waits, because leaf certificates are made on request.
func (s *selfSigned) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close implements Source.
func (s *selfSigned) Close() error { return nil }

// Package pki keeps small certificate authorities. One opens TLS on the wire, for hosts whose
// requests are judged or given credentials. Another lets a development daemon serve HTTPS. Each has
// its own key, made on first use and kept in a file that only the daemon's user can read. The key
// never leaves this process.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 7 * 24 * time.Hour
	// leafReuse is how long before its end a leaf certificate is made anew.
	leafReuse = 24 * time.Hour
	// skew is how far the clocks of clients may be behind.
	skew = time.Hour
	// maxLeaves bounds how many leaf certificates are kept, because the sandbox chooses the names.
	maxLeaves = 4096
)

// CA is a certificate authority. It is safe for concurrent use.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
	leaf *ecdsa.PrivateKey // the key of all leaves; it never leaves this process

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// LoadOrCreate opens the authority in dir, whose certificate has commonName. If there is none, it
// makes one. The files are ca.pem and ca-key.pem.
func LoadOrCreate(dir, commonName string) (*CA, error) {
	certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem")
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return create(dir, certFile, keyFile, commonName)
	}
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, damagedFiles(certFile, keyFile, err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, damagedFiles(certFile, keyFile, err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, damagedFiles(certFile, keyFile, err)
	}
	if time.Now().After(cert.NotAfter) {
		return create(dir, certFile, keyFile, commonName)
	}
	return newCA(cert, pair.PrivateKey.(crypto.Signer), certPEM)
}

// damagedFiles is the error for files that hold no authority.
func damagedFiles(certFile, keyFile string, err error) error {
	return &carrel.Error{Kind: carrel.Invalid, Field: filepath.Base(certFile),
		Err:  fmt.Errorf("%s and %s hold no certificate with its key: %w", certFile, keyFile, err),
		Hint: "put both files back from a backup, or remove both to have a new authority made: all who trust the old one must then trust the new one"}
}

// New makes an authority that is stored nowhere.
func New(commonName string) (*CA, error) {
	cert, key, _, err := generate(commonName)
	if err != nil {
		return nil, err
	}
	return newCA(cert, key, encode("CERTIFICATE", cert.Raw))
}

func newCA(cert *x509.Certificate, key crypto.Signer, certPEM []byte) (*CA, error) {
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &CA{cert: cert, key: key, pem: certPEM, leaf: leaf, leaves: make(map[string]*tls.Certificate)}, nil
}

func create(dir, certFile, keyFile, commonName string) (*CA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	cert, key, keyDER, err := generate(commonName)
	if err != nil {
		return nil, err
	}
	certPEM := encode("CERTIFICATE", cert.Raw)
	// Write the certificate last, because LoadOrCreate looks for it.
	if err := atomicfile.Write(keyFile, encode("PRIVATE KEY", keyDER), 0o600); err != nil {
		return nil, err
	}
	if err := atomicfile.Write(certFile, certPEM, 0o644); err != nil {
		return nil, err
	}
	return newCA(cert, key, certPEM)
}

func generate(commonName string) (*x509.Certificate, *ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, nil, err
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: commonName, Organization: []string{"Carrel"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(caLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}, &x509.Certificate{Subject: pkix.Name{CommonName: commonName, Organization: []string{"Carrel"}}}, key.Public(), key)
	if err != nil {
		return nil, nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, keyDER, err
}

// CertPEM returns the authority's certificate, for clients that must trust it.
func (ca *CA) CertPEM() []byte { return bytes.Clone(ca.pem) }

// Pool returns a pool with only this authority.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

// Leaf returns a certificate for names: DNS names, "*.name" and IP addresses. It is
// kept and returned again until shortly before its end.
func (ca *CA) Leaf(names ...string) (*tls.Certificate, error) {
	if len(names) == 0 {
		return nil, errors.New("a certificate needs a name")
	}
	id := strings.Join(names, "\n")
	now := time.Now()
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if c := ca.leaves[id]; c != nil && now.Before(c.Leaf.NotAfter.Add(-leafReuse)) {
		return c, nil
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{Organization: []string{"Carrel"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if a, err := netip.ParseAddr(n); err == nil {
			t.IPAddresses = append(t.IPAddresses, a.AsSlice())
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca.cert, ca.leaf.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if len(ca.leaves) >= maxLeaves {
		clear(ca.leaves)
	}
	c := &tls.Certificate{Certificate: [][]byte{der, ca.cert.Raw}, PrivateKey: ca.leaf, Leaf: leaf}
	ca.leaves[id] = c
	return c, nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one cluster and writes them into a directory.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

const certLife = 24 * time.Hour

// newAuthority makes the authority, and all certificates and keys of a cluster.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &authority{dir: dir}
	self := &x509.Certificate{Subject: pkix.Name{CommonName: "test-ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	if err := a.issue("ca", self); err != nil {
		return nil, err
	}
	server := &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP),
			net.ParseIP(NodeIP)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	clients := map[string]string{"kubelet-client": "apiserver-kubelet-client", "admin": "admin"}
	if err := a.issue("apiserver", server); err != nil {
		return nil, err
	}
	for name, common := range clients {
		err := a.issue(name, &x509.Certificate{
			Subject:     pkix.Name{CommonName: common, Organization: []string{"system:masters"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err != nil {
			return nil, err
		}
	}
	return a, a.accounts()
}

// file is the name of one of the authority's files.
func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.crt and NAME.key. The first certificate is the authority's own.
func (a *authority) issue(name string, c *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return err
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(certLife)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			return err
		}
		a.key = key
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(a.file(name+".crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	return writePEM(a.file(name+".key"), "PRIVATE KEY", private)
}

// accounts writes the key that signs the tokens of service accounts, and its public half.
func (a *authority) accounts() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := writePEM(a.file("sa.pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	return writePEM(a.file("sa.key"), "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

// kubeconfig writes the file with which an administrator's programs find the API server.
func (a *authority) kubeconfig() (string, error) {
	name := a.file("admin.kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: admin, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`, apiURL, a.file("ca.crt"), a.file("admin.crt"), a.file("admin.key"))
	return name, os.WriteFile(name, []byte(text), 0o600)
}

// tls returns the settings of an administrator's connection to the API server.
func (a *authority) tls() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(a.file("admin.crt"), a.file("admin.key"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}, nil
}

func writePEM(name, kind string, der []byte) error {
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// Package certificate makes and checks the certificates with which the fronts and nodes of a fleet
// know each other. All are short-lived, and signed by the fleet's own authority, which the fronts
// share. A certificate says in a URI whose it is: a front's, or that of the node with a name. So
// addresses may change, and a node can't pass for a front or for another node.
//
// # The first certificate
//
// A node that joins has only the fleet's join token, a secret. The token is never sent. Node and
// front prove to each other that they have it, by an HMAC over keying material of their TLS
// connection (RFC 5705, RFC 9266). Who stands between them has two connections with different
// material, and can pass neither proof on.
package certificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
)

const (
	authorityLife = 20 * 365 * 24 * time.Hour
	// Life is how long a certificate is good. It is renewed after half of that.
	Life = 24 * time.Hour
	// skew is how far clocks of two machines may be apart.
	skew = 2 * time.Hour
	// MinToken is the shortest join token, in characters.
	MinToken = 20

	scheme    = "carrel"
	fleetHost = "fleet"
	frontPath = "/front"
	nodePath  = "/node/"
)

// NewAuthority makes an authority.
func NewAuthority() (fleet.Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fleet.Authority{}, err
	}
	t := template(time.Now(), authorityLife)
	t.Subject = pkix.Name{CommonName: "Carrel fleet"}
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return fleet.Authority{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fleet.Authority{}, err
	}
	return fleet.Authority{Cert: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", keyDER)}, nil
}

// Issuer signs certificates of one fleet. It is safe for concurrent use.
type Issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
	pool *x509.CertPool
	now  func() time.Time
}

// NewIssuer opens an authority.
func NewIssuer(a fleet.Authority) (*Issuer, error) {
	pair, err := tls.X509KeyPair(a.Cert, a.Key)
	if err != nil {
		return nil, &carrel.Error{Op: "open fleet's authority", Kind: carrel.Invalid, Field: "authority", Err: err,
			Hint: "the row of the table authority is damaged: restore it from a backup of the database"}
	}
	i := &Issuer{cert: pair.Leaf, pool: x509.NewCertPool(), now: time.Now}
	i.key, _ = pair.PrivateKey.(crypto.Signer)
	i.pool.AddCert(i.cert)
	return i, nil
}

// CertPEM returns the authority's certificate.
func (i *Issuer) CertPEM() []byte { return encode("CERTIFICATE", i.cert.Raw) }

// Front makes a front's certificate with a new key.
func (i *Issuer) Front() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := i.sign(frontPath, "front", key.Public())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Node signs the public key of a request for a node with a name; what else the request says is not
// used. It returns the certificate in PEM. Error: Invalid.
func (i *Issuer) Node(name string, request []byte) (cert []byte, err error) {
	if err := fleet.CheckName(name); err != nil {
		return nil, err
	}
	r, err := readRequest(request)
	if err != nil {
		return nil, err
	}
	der, err := i.sign(nodePath+name, name, r.PublicKey)
	return encode("CERTIFICATE", der), err
}

// RequestKey returns the SHA-256 of the public key in a request. Error: Invalid.
func RequestKey(request []byte) ([]byte, error) {
	r, err := readRequest(request)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(r.RawSubjectPublicKeyInfo)
	return sum[:], nil
}

func readRequest(request []byte) (*x509.CertificateRequest, error) {
	r, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = r.CheckSignature()
	}
	if err == nil {
		if key, ok := r.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
			err = errors.New("its key is not on the curve P-256")
		}
	}
	if err != nil {
		return nil, &carrel.Error{Op: "sign certificate", Kind: carrel.Invalid, Field: "request", Err: err}
	}
	return r, nil
}

func (i *Issuer) sign(path, name string, public crypto.PublicKey) ([]byte, error) {
	t := template(i.now(), Life)
	t.Subject = pkix.Name{CommonName: name}
	t.URIs = []*url.URL{{Scheme: scheme, Host: fleetHost, Path: path}}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	return x509.CreateCertificate(rand.Reader, t, i.cert, public, i.key)
}

func template(now time.Time, life time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand does not fail
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-skew), NotAfter: now.Add(life)}
}

// Key is a node's private key, which never leaves the node.
type Key struct{ signer *ecdsa.PrivateKey }

// NewKey makes a key.
func NewKey() (Key, error) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return Key{signer}, err
}

// ParseKey reads what PEM returned.
func ParseKey(text []byte) (Key, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return Key{}, errors.New("it holds no key")
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Key{}, err
	}
	signer, ok := any.(*ecdsa.PrivateKey)
	if !ok {
		return Key{}, errors.New("its key is of another kind")
	}
	return Key{signer}, nil
}

// PEM returns the key for a file.
func (k Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.signer)
	return encode("PRIVATE KEY", der), err
}

// Request is a request for a certificate of this key.
func (k Key) Request() ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, k.signer)
}

// Pair joins the key with its certificate, in PEM. Error: when they don't belong together.
func (k Key) Pair(cert []byte) (tls.Certificate, error) {
	text, err := k.PEM()
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, text)
}

// Peer is whose certificate the other end of a connection showed.
type Peer struct {
	Front  bool
	Node   string // its name; "" for a front
	Public []byte // SHA-256 of its public key
}

// Roots are the certificates, in PEM, of the fleet's authority.
func Roots(cert []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cert) {
		return nil, errors.New("it holds no certificate")
	}
	return pool, nil
}

// Roots are those of the issuer itself.
func (i *Issuer) Roots() *x509.CertPool { return i.pool }

// Check returns whose a verified connection's peer is. Error: Unauthenticated.
func Check(roots *x509.CertPool, state tls.ConnectionState) (Peer, error) {
	bad := func(err error) (Peer, error) {
		return Peer{}, &carrel.Error{Op: "check certificate", Kind: carrel.Unauthenticated, Err: err,
			Hint: "both machines must be of one fleet, and their clocks at most two hours apart"}
	}
	if len(state.PeerCertificates) == 0 {
		return bad(errors.New("it showed no certificate"))
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return bad(err)
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].Scheme != scheme || leaf.URIs[0].Host != fleetHost {
		return bad(errors.New("it is not a certificate of a front or a node"))
	}
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	p := Peer{Public: sum[:]}
	if path := leaf.URIs[0].Path; path == frontPath {
		p.Front = true
	} else if name, ok := strings.CutPrefix(path, nodePath); ok && fleet.CheckName(name) == nil {
		p.Node = name
	} else {
		return bad(fmt.Errorf("it is for %.80q", path))
	}
	return p, nil
}

// ClientConfig is the configuration of a connection to a peer that want accepts. own returns the
// certificate to show.
func ClientConfig(roots *x509.CertPool, own func() *tls.Certificate, want func(Peer) error) *tls.Config {
	c := config(roots, want)
	c.InsecureSkipVerify = true //nolint:gosec // VerifyConnection checks the chain and whose it is; names don't matter
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own(), nil }
	return c
}

// ServerConfig is the configuration of a listener for peers that want accepts. If anyone is set, a
// peer may also show no certificate.
func ServerConfig(roots *x509.CertPool, own func() *tls.Certificate, anyone bool, want func(Peer) error) *tls.Config {
	c := config(roots, want)
	c.ClientAuth = tls.RequireAnyClientCert
	if anyone {
		c.ClientAuth = tls.RequestClientCert
		check := c.VerifyConnection
		c.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return nil
			}
			return check(s)
		}
	}
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own(), nil }
	return c
}

func config(roots *x509.CertPool, want func(Peer) error) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			p, err := Check(roots, s)
			if err != nil {
				return err
			}
			return want(p)
		}}
}

// IsFront accepts fronts only.
func IsFront(p Peer) error {
	if !p.Front {
		return &carrel.Error{Op: "check certificate", Kind: carrel.Forbidden,
			Err: fmt.Errorf("it is the certificate of node %s, not of a front", p.Node)}
	}
	return nil
}

// IsNode accepts one node only.
func IsNode(name string) func(Peer) error {
	return func(p Peer) error {
		if p.Front || p.Node != name {
			return &carrel.Error{Op: "check certificate", Kind: carrel.Forbidden,
				Err:  fmt.Errorf("it is not the certificate of node %s", name),
				Hint: "another machine has this node's address"}
		}
		return nil
	}
}

// IsMachine accepts one node only, and of the machines that had its name the one with a public key.
// public is asked at each connection; nil is no machine.
func IsMachine(name string, public func() []byte) func(Peer) error {
	named := IsNode(name)
	return func(p Peer) error {
		if err := named(p); err != nil {
			return err
		}
		if want := public(); want == nil || !bytes.Equal(want, p.Public) {
			return &carrel.Error{Op: "check certificate", Kind: carrel.Forbidden,
				Err:  fmt.Errorf("another machine has the name of node %s now", name),
				Hint: "stop the machine that had it before"}
		}
		return nil
	}
}

// The two sides of the first exchange.
const (
	NodeSide  = "node"
	FrontSide = "front"
)

// Prove returns the proof that one side of a connection has the join token, for this connection and
// these contents only.
func Prove(token, side string, state tls.ConnectionState, contents ...[]byte) ([]byte, error) {
	material, err := state.ExportKeyingMaterial("EXPORTER-carrel-join", nil, 32)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, []byte(token))
	for _, part := range append([][]byte{[]byte(side), material}, contents...) {
		_, _ = fmt.Fprintf(mac, "%d:", len(part)) // a hash takes everything
		_, _ = mac.Write(part)
	}
	return mac.Sum(nil), nil
}

// Proves reports whether a proof is the other side's for these contents.
func Proves(proof []byte, token, side string, state tls.ConnectionState, contents ...[]byte) bool {
	want, err := Prove(token, side, state, contents...)
	return err == nil && hmac.Equal(want, proof)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

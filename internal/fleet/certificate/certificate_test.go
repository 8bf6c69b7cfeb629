package certificate_test

import (
	"crypto/sha256"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet/certificate"
)

// issuer makes a fleet.
func issuer(t *testing.T) *certificate.Issuer {
	t.Helper()
	a, err := certificate.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	i, err := certificate.NewIssuer(a)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// node makes a node's certificate.
func node(t *testing.T, i *certificate.Issuer, name string) *tls.Certificate {
	t.Helper()
	k, err := certificate.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	r, err := k.Request()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := i.Node(name, r)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := k.Pair(cert)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

func front(t *testing.T, i *certificate.Issuer) *tls.Certificate {
	t.Helper()
	c, err := i.Front()
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func own(c *tls.Certificate) func() *tls.Certificate { return func() *tls.Certificate { return c } }

// meet makes a TLS connection and returns both ends' states and errors.
func meet(t *testing.T, client, server *tls.Config) (states [2]tls.ConnectionState, errs [2]error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := tls.Server(b, server)
		if errs[1] = s.Handshake(); errs[1] == nil {
			states[1] = s.ConnectionState()
			_, errs[1] = s.Write([]byte("x"))
		}
		_ = b.Close()
	}()
	c := tls.Client(a, client)
	if errs[0] = c.Handshake(); errs[0] == nil {
		states[0] = c.ConnectionState()
		_, errs[0] = io.ReadFull(c, make([]byte, 1)) // in TLS 1.3 the server's refusal comes after the handshake
	}
	_ = a.Close()
	<-done
	return states, errs
}

// TestPeers lets fronts and nodes meet, of this fleet and of another, and pass for each other.
func TestPeers(t *testing.T) {
	ours, theirs := issuer(t), issuer(t)
	a := node(t, ours, "a")
	accept := func(certificate.Peer) error { return nil }
	for _, test := range []struct {
		name           string
		client, server *tls.Certificate
		want           func(certificate.Peer) error // the client's
		door           func(certificate.Peer) error // the server's
		good           bool
	}{
		{"a front at node a", front(t, ours), node(t, ours, "a"), certificate.IsNode("a"), certificate.IsFront, true},
		{"a node at a front", node(t, ours, "a"), front(t, ours), certificate.IsFront, accept, true},
		{"node b has node a's address", front(t, ours), node(t, ours, "b"), certificate.IsNode("a"), certificate.IsFront, false},
		{"node b calls node a", node(t, ours, "b"), node(t, ours, "a"), certificate.IsNode("a"), certificate.IsFront, false},
		{"a node passes for a front", node(t, ours, "b"), node(t, ours, "c"), certificate.IsFront, accept, false},
		{"a front passes for a node", front(t, ours), front(t, ours), certificate.IsNode("a"), accept, false},
		{"the machine that has node a's name", front(t, ours), a, certificate.IsMachine("a", publicOf(t, a)), certificate.IsFront, true},
		{"a machine that had node a's name", front(t, ours), node(t, ours, "a"), certificate.IsMachine("a", publicOf(t, a)), certificate.IsFront, false},
		{"a node that was removed", front(t, ours), a, certificate.IsMachine("a", func() []byte { return nil }), certificate.IsFront, false},
		{"node a by another name", front(t, ours), a, certificate.IsMachine("b", publicOf(t, a)), certificate.IsFront, false},
		{"another fleet's front", front(t, theirs), node(t, ours, "a"), certificate.IsNode("a"), certificate.IsFront, false},
		{"another fleet's node", front(t, ours), node(t, theirs, "a"), certificate.IsNode("a"), accept, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, errs := meet(t, certificate.ClientConfig(ours.Roots(), own(test.client), test.want),
				certificate.ServerConfig(ours.Roots(), own(test.server), false, test.door))
			if good := errs[0] == nil && errs[1] == nil; good != test.good {
				t.Errorf("client %v, server %v; want good %v", errs[0], errs[1], test.good)
			}
		})
	}
}

// publicOf is the public key of a certificate, as peers see it.
func publicOf(t *testing.T, c *tls.Certificate) func() []byte {
	t.Helper()
	sum := sha256.Sum256(c.Leaf.RawSubjectPublicKeyInfo)
	return func() []byte { return sum[:] }
}

// TestRequests has requests that no certificate is made for.
func TestRequests(t *testing.T) {
	i := issuer(t)
	k, err := certificate.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	good, err := k.Request()
	if err != nil {
		t.Fatal(err)
	}
	damaged := append([]byte{}, good...)
	damaged[len(damaged)-1] ^= 1
	for what, test := range map[string]struct {
		name    string
		request []byte
		field   string
	}{
		"no name":           {"", good, "name"},
		"a path as a name":  {"../front", good, "name"},
		"upper case":        {"A", good, "name"},
		"no request":        {"a", nil, "request"},
		"a wrong signature": {"a", damaged, "request"},
	} {
		_, err := i.Node(test.name, test.request)
		if e, ok := err.(*carrel.Error); !ok || e.Kind != carrel.Invalid || e.Field != test.field {
			t.Errorf("%s: %v, want Invalid and the field %s", what, err, test.field)
		}
	}
}

// TestProof passes proofs of the join token on to other connections, sides and contents.
func TestProof(t *testing.T) {
	i := issuer(t)
	anyone := func() (tls.ConnectionState, tls.ConnectionState) {
		states, errs := meet(t, &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as a node that joins
			certificate.ServerConfig(i.Roots(), own(front(t, i)), true, func(certificate.Peer) error { return nil }))
		if errs[0] != nil || errs[1] != nil {
			t.Fatal(errs)
		}
		return states[0], states[1]
	}
	client, server := anyone()
	otherClient, otherServer := anyone()
	proof, err := certificate.Prove("secret", certificate.NodeSide, client, []byte("request"))
	if err != nil {
		t.Fatal(err)
	}
	proves := func(token, side string, s tls.ConnectionState, contents ...[]byte) bool {
		return certificate.Proves(proof, token, side, s, contents...)
	}
	if !proves("secret", certificate.NodeSide, server, []byte("request")) {
		t.Error("the other end of the connection refuses the proof")
	}
	for what, passes := range map[string]bool{
		"another token":                  proves("Secret", certificate.NodeSide, server, []byte("request")),
		"the other side":                 proves("secret", certificate.FrontSide, server, []byte("request")),
		"another connection":             proves("secret", certificate.NodeSide, otherServer, []byte("request")),
		"another connection's other end": proves("secret", certificate.NodeSide, otherClient, []byte("request")),
		"other contents":                 proves("secret", certificate.NodeSide, server, []byte("request2")),
		"contents cut elsewhere":         proves("secret", certificate.NodeSide, server, []byte("req"), []byte("uest")),
	} {
		if passes {
			t.Errorf("the proof passes for %s", what)
		}
	}
}

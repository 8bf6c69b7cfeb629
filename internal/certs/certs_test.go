package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/testenv"
)

var quiet = slog.New(slog.DiscardHandler)

// writePair writes a certificate of the authority for name into dir.
func writePair(t *testing.T, ca *pki.CA, dir, name string) (cert, key string) {
	t.Helper()
	leaf, err := ca.Leaf(name)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(leaf.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}, key: {Type: "EC PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// listen serves TLS with a source until the test ends.
func listen(t *testing.T, s Source) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listenOn(t, l, s)
}

func listenOn(t *testing.T, l net.Listener, s Source) string {
	t.Helper()
	srv := &http.Server{TLSConfig: s.TLSConfig(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })}
	go func() { _ = srv.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String()
}

// run runs a source until the test ends.
func run(t *testing.T, s Source) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// shake makes a TLS handshake for a name and returns the connection's state.
func shake(addr, name string, roots *x509.CertPool, change func(*tls.Config)) (tls.ConnectionState, error) {
	cfg := &tls.Config{ServerName: name, RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}}
	if change != nil {
		change(cfg)
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 20 * time.Second}, "tcp", addr, cfg)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	return c.ConnectionState(), nil
}

func TestFilesAreReadAgain(t *testing.T) {
	ca, err := pki.New("test")
	if err != nil {
		t.Fatal(err)
	}
	cert, key := writePair(t, ca, t.TempDir(), "old.example.com")
	s, err := Files(cert, key, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s.(*files).every = 2 * time.Millisecond
	run(t, s)
	addr := listen(t, s)
	if _, err := shake(addr, "old.example.com", ca.Pool(), nil); err != nil {
		t.Fatal(err)
	}
	// With half a change, the key does not fit the certificate, so the old pair stays in use.
	if err := os.WriteFile(key, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.(*files).load(); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("a broken key: %v", err)
	}
	if _, err := shake(addr, "old.example.com", ca.Pool(), nil); err != nil {
		t.Errorf("with a broken key in its file: %v", err)
	}
	writePair(t, ca, filepath.Dir(cert), "new.example.com")
	testenv.EventuallyNil(t, "the new certificate is served", func() error { _, err := shake(addr, "new.example.com", ca.Pool(), nil); return err })
}

func TestFilesRefused(t *testing.T) {
	dir := t.TempDir()
	ca, _ := pki.New("test")
	cert, key := writePair(t, ca, dir, "a.example.com")
	other, _ := pki.New("other")
	_, otherKey := writePair(t, other, t.TempDir(), "a.example.com")
	for name, pair := range map[string][2]string{
		"missing": {filepath.Join(dir, "no.pem"), key}, "no key": {cert, filepath.Join(dir, "no.pem")},
		"another's key": {cert, otherKey}, "swapped": {key, cert},
	} {
		var e *carrel.Error
		if _, err := Files(pair[0], pair[1], quiet); !errors.As(err, &e) || e.Kind != carrel.Invalid || e.Field == "" || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	s, err := SelfSigned(dir, []string{"carrel.example.com", "*.carrel.example.com", "localhost", "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	addr := listen(t, s)
	raw, err := os.ReadFile(AuthorityFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	for _, name := range []string{"carrel.example.com", "3000-i00000000000000000000.carrel.example.com", "localhost", "127.0.0.1"} {
		if st, err := shake(addr, name, roots, nil); err != nil || st.NegotiatedProtocol != "h2" {
			t.Errorf("%s: %v, %q", name, err, st.NegotiatedProtocol)
		}
	}
	if _, err := shake(addr, "other.example.com", roots, nil); err == nil {
		t.Error("it vouches for a name that is not its own")
	}
	if _, err := shake(addr, "localhost", nil, nil); err == nil {
		t.Error("the system trusts it")
	}
	if _, err := shake(addr, "localhost", roots, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	again, err := SelfSigned(dir, []string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shake(listen(t, again), "localhost", roots, nil); err != nil {
		t.Errorf("after a restart it is another authority: %v", err)
	}
}

func TestHourly(t *testing.T) {
	h, now := hourly{most: 2}, time.Now()
	for i, c := range []struct {
		after time.Duration
		name  string
		want  bool
	}{{0, "a", true}, {0, "b", true}, {0, "c", false}, {time.Minute, "a", true}, {59 * time.Minute, "c", false}, {time.Hour, "c", true}} {
		if got := h.take(now.Add(c.after), c.name); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
}

// TestToHTTPS shows that requests that are no challenge are redirected, and that nothing else is
// served.
func TestToHTTPS(t *testing.T) {
	for _, c := range []struct {
		method, host string
		status       int
		location     string
	}{
		{"GET", "3000-x.example.com:80", 308, "https://3000-x.example.com/p?q=1"},
		{"GET", "a.example.com", 308, "https://a.example.com/p?q=1"},
		{"POST", "a.example.com", 403, ""},
		{"GET", "a.example.com:port", 400, ""},
	} {
		r := httptest.NewRequest(c.method, "/p?q=1", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		toHTTPS(w, r)
		if w.Code != c.status || w.Header().Get("Location") != c.location {
			t.Errorf("%s %s: %d %s", c.method, c.host, w.Code, w.Header().Get("Location"))
		}
	}
}

package net

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/pki"
)

// outside is the daemon's view of the network: names, their addresses, and the real servers on
// loopback.
type outside struct {
	ca    *pki.CA // of all its servers
	names map[string][]string
	dial  map[string]string
	// strays counts connections to servers that no policy here allows.
	strays atomic.Int64
}

func newOutside(t testing.TB) *outside {
	t.Helper()
	ca, err := pki.New("Test authority")
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{ca: ca, names: make(map[string][]string), dial: make(map[string]string)}
	o.serve(t, "denied.example.net", "198.51.100.20", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.strays.Add(1)
	}))
	return o
}

// serve starts a site with HTTP on port 80 and HTTPS (HTTP/2, too) on 443.
func (o *outside) serve(t testing.TB, name, address string, h http.Handler) {
	t.Helper()
	leaf, err := o.ca.Leaf(name)
	if err != nil {
		t.Fatal(err)
	}
	o.names[name] = []string{address}
	for port, config := range map[string]*tls.Config{"80": nil, "443": {Certificates: []tls.Certificate{*leaf}}} {
		l := o.listen(t, address+":"+port)
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
		protocols.SetUnencryptedHTTP2(true)
		s := &http.Server{Handler: h, TLSConfig: config, ReadHeaderTimeout: time.Minute, Protocols: protocols}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if config == nil {
				_ = s.Serve(l)
			} else {
				_ = s.ServeTLS(l, "", "")
			}
		}()
		t.Cleanup(func() { _ = s.Close(); <-done })
	}
}

// listen opens a listener that stands for an address and port outside.
func (o *outside) listen(t testing.TB, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.dial[at] = l.Addr().String()
	return l
}

// table writes the table for a daemon.
func (o *outside) table(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"names": o.names, "dial": o.dial, "roots": "ca.pem"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "table.json")
	for name, b := range map[string][]byte{file: text, filepath.Join(dir, "ca.pem"): o.ca.CertPEM()} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// lines joins lines of a script.
func lines(all ...string) string { return strings.Join(all, "\n") }

package wire_test

import (
	"bufio"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/wire"
)

// TestOpened shows how the wire opens TLS where requests are judged. It uses the wire's authority,
// verifies the server outside, and judges and logs each request.
func TestOpened(t *testing.T) {
	outside, err := pki.New("outside")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.New("wire")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := outside.Leaf("api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		_, _ = w.Write([]byte("served " + r.Method))
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
	s.StartTLS()
	defer s.Close()
	w := newWorld(t)
	w.Dial[goodIPv4+":443"], w.Dial["["+goodIPv6+"]:443"] = s.Listener.Addr().String(), s.Listener.Addr().String()
	var log decisions
	n := carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Name: "read", Allow: []string{"api.example.com"}, Methods: []string{"GET"},
		Limits: carrel.TrafficLimits{Connections: 4}}}}}
	_, _, _, g := w.link(t, n, wire.Options{Authority: authority, Roots: outside.Pool(), Audit: log.add})
	g.lookup("api.example.com")
	request := func(method, host string) (int, error) {
		c, err := g.dial(within(t, time.Minute), goodIPv4, 443)
		if err != nil {
			return 0, err
		}
		conn := tls.Client(c, &tls.Config{ServerName: "api.example.com", RootCAs: authority.Pool()})
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		r, err := http.NewRequest(method, "https://"+host+"/x", nil)
		if err != nil {
			return 0, err
		}
		if err := r.Write(conn); err != nil {
			return 0, err
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	for range 6 { // more than the limit, one after another
		if code, err := request("GET", "api.example.com"); err != nil || code != 200 {
			t.Fatalf("GET: %d, %v", code, err)
		}
	}
	before := served.Load()
	for _, c := range [][2]string{{"POST", "api.example.com"}, {"GET", "evil.example.net"}} {
		if code, err := request(c[0], c[1]); err == nil && code < 400 {
			t.Errorf("%s to %s: %d", c[0], c[1], code)
		}
	}
	if served.Load() != before {
		t.Error("a refused request arrived")
	}
	if !slices.ContainsFunc(log.all(), func(d carrel.Decision) bool {
		return d.Allowed && d.Protocol == "https" && d.Method == "GET" && d.Path == "/x" && d.Status == 200 && strings.Contains(d.Rule, "read")
	}) || !slices.ContainsFunc(log.all(), func(d carrel.Decision) bool { return !d.Allowed && d.Method == "POST" }) {
		t.Errorf("log: %+v", log.all())
	}
	// A server without a valid certificate gets nothing.
	bad := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(100) }))
	defer bad.Close()
	before = served.Load()
	other := newWorld(t)
	other.Dial = map[string]string{goodIPv4: bad.Listener.Addr().String()}
	_, _, _, g = other.link(t, n, wire.Options{Authority: authority, Roots: outside.Pool()})
	g.lookup("api.example.com")
	if code, err := request("GET", "api.example.com"); err == nil && code < 400 || served.Load() != before {
		t.Errorf("with a bad certificate: %d, %v", code, err)
	}
	// Without an authority, TLS is not opened and nothing passes.
	_, _, _, g = w.link(t, n, wire.Options{Roots: outside.Pool()})
	g.lookup("api.example.com")
	if code, err := request("GET", "api.example.com"); err == nil {
		t.Errorf("without an authority: %d", code)
	}
}

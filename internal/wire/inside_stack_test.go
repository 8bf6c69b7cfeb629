package wire_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

// TestInside uses the stack of sandboxes without a kernel. Allowed names and addresses answer. A
// denied name does not exist, a denied address is refused, and everything ends with the link.
func TestInside(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello "+r.Host+" "+strings.Repeat("x", 1<<20))
	}))
	defer web.Close()
	table := &wire.Table{Names: map[string][]string{"good.example.com": {"192.0.2.1", "2001:db8::1"}, "bad.example.com": {"192.0.2.2"}},
		Dial: map[string]string{"192.0.2.1:80": web.Listener.Addr().String(), "192.0.2.2:80": web.Listener.Addr().String()}}
	w := wire.New(wire.Options{Dialer: table, Resolver: table,
		Egress: always(carrel.Network{AllowOut: []string{"good.example.com"}, DenyOut: []string{"0.0.0.0/0"}})})
	defer w.Close()
	host, fd := pair(t, 0)
	in, err := wire.NewInside(os.NewFile(uintptr(fd), "inside"), 16000)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: 16000}, host); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: in.DialContext}}
	defer client.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://good.example.com/", nil)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || len(body) < 1<<20 || !strings.HasPrefix(string(body), "hello good.example.com") {
		t.Errorf("%d bytes, %.40q, %v", len(body), body, err)
	}
	var dnsErr *net.DNSError
	for _, name := range []string{"bad.example.com:80", "nowhere.example.com:80", "bad name:80", ":80"} {
		if c, err := in.DialContext(ctx, "tcp", name); !errors.As(err, &dnsErr) || !dnsErr.IsNotFound {
			t.Errorf("%s: %v %v", name, c, err)
		}
	}
	for _, address := range []string{"192.0.2.2:80", "127.0.0.1:" + port(web), "[::1]:" + port(web), "169.254.169.254:80", "localhost:" + port(web)} {
		if c, err := in.DialContext(ctx, "tcp", address); err == nil {
			c.Close()
			t.Errorf("%s: connected", address)
		}
	}
	for _, address := range []string{"good.example.com", "good.example.com:x", "good.example.com:99999"} {
		if _, err := in.DialContext(ctx, "tcp", address); err == nil {
			t.Errorf("%s: connected", address)
		}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if _, err := in.DialContext(ctx, "tcp", "192.0.2.1:80"); err == nil {
		t.Error("connected after the end")
	}
}

func port(s *httptest.Server) string {
	_, p, _ := net.SplitHostPort(s.Listener.Addr().String())
	return p
}

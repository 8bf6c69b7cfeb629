package outside

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/tool"
)

// TestRequests sends requests over a dialer that connects every name to one server, with and
// without trust in that server.
func TestRequests(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, r.Method+" "+r.Host+" "+r.Header.Get("X-A")+" ["+r.UserAgent()+"] "+string(b))
	})
	server := httptest.NewTLSServer(handler)
	defer server.Close()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	trusting := New(Options{Dial: dial, Roots: func() *x509.CertPool { return pool }, UserAgent: "tool/1"})
	defer trusting.Close()
	nobody := New(Options{Dial: dial})
	defer nobody.Close()
	for _, c := range []struct {
		h    *HTTP
		r    tool.Request
		want string // "" is an error
	}{
		{trusting, tool.Request{Method: "GET", URL: "https://example.com/a"}, "GET example.com  [tool/1] "},
		{trusting, tool.Request{Method: "POST", URL: "https://example.com/", Body: strings.NewReader("body"), Length: 4, Header: map[string][]string{"X-A": {"1"}, "User-Agent": {"me"}}}, "POST example.com 1 [me] body"},
		{trusting, tool.Request{Method: "PUT", URL: "https://example.com/", Body: strings.NewReader("unknown"), Length: -1, Header: map[string][]string{"Host": {"other.example.com"}}}, "PUT other.example.com  [tool/1] unknown"},
		{nobody, tool.Request{Method: "GET", URL: "https://example.com/"}, ""},
		{nobody, tool.Request{Method: "GET", URL: "https://example.com/", Insecure: true}, "GET example.com  [] "},
		{trusting, tool.Request{Method: "GET", URL: "file:///etc/passwd"}, ""},
		{trusting, tool.Request{Method: "GET", URL: "https:///x"}, ""},
		{trusting, tool.Request{Method: "BAD METHOD", URL: "https://example.com/"}, ""},
	} {
		resp, err := c.h.Do(t.Context(), &c.r)
		if err != nil || c.want == "" {
			if c.want != "" || err == nil {
				t.Errorf("%s %s: %v %v", c.r.Method, c.r.URL, resp, err)
			}
			continue
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(b) != c.want || resp.Status != http.StatusFound || resp.Reason != "Found" {
			t.Errorf("%s %s: %d %s %q %v, want %q", c.r.Method, c.r.URL, resp.Status, resp.Reason, b, err, c.want)
		}
	}
}

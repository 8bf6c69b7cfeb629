package cli

import (
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestPortURL checks URLs of daemons with a domain, on the loopback, with TLS and with other ports.
// All must lead to the daemon.
func TestPortURL(t *testing.T) {
	for _, c := range []struct{ daemon, domain, port, want string }{
		{"http://127.0.0.1:7070", "", "3000", "http://3000-iaaaaaaaaaaaaaaaaaaaa.localhost:7070"},
		{"http://[::1]:7070", "", "3000", "http://3000-iaaaaaaaaaaaaaaaaaaaa.localhost:7070"},
		{"https://localhost", "", "PORT", "https://PORT-iaaaaaaaaaaaaaaaaaaaa.localhost"},
		{"http://127.0.0.1:7070", "sb.example.com", "80", "http://80-iaaaaaaaaaaaaaaaaaaaa.sb.example.com:7070"},
		{"https://api.example.com", "sb.example.com", "80", "https://80-iaaaaaaaaaaaaaaaaaaaa.sb.example.com"},
		{"https://127.0.0.1:7070", "sb.example.com:8443", "80", "https://80-iaaaaaaaaaaaaaaaaaaaa.sb.example.com:8443"},
		{"http://203.0.113.9:7070", "", "80", ""},
		{"http://carrel.example.com", "", "80", ""},
	} {
		got, err := portURL(c.daemon, carrel.Sandbox{ID: boxID, Domain: c.domain}, c.port)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s, domain %q: %q, %v; want %q", c.daemon, c.domain, got, err, c.want)
		}
		if err != nil && carrel.HintOf(err) == "" {
			t.Errorf("%s: no hint: %v", c.daemon, err)
		}
	}
}

package guest

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
)

func TestRefusalLine(t *testing.T) {
	const see = " See /run/carrel/denied.jsonl"
	for _, c := range []struct {
		name string
		d    carrel.Decision
		want string
	}{
		{"https", carrel.Decision{Protocol: "tls", Name: "api.example.com", Address: "203.0.113.9", Port: 443, Process: "curl (pid 12)",
			Reason: "no rule allows api.example.com", Hint: "allow api.example.com"},
			"carrel: denied https://api.example.com:443 (curl): no rule allows api.example.com. Ask for: allow api.example.com." + see},
		{"request", carrel.Decision{Protocol: "https", Name: "api.example.com", Port: 443, Method: "DELETE", Path: "/v1/repos", Reason: "rule 2 (github) has other methods."},
			"carrel: denied DELETE https://api.example.com:443/v1/repos: rule 2 (github) has other methods." + see},
		{"address", carrel.Decision{Protocol: "udp", Address: "2001:db8::7", Port: 53, Reason: "names are asked of the gateway only"},
			"carrel: denied udp://[2001:db8::7]:53: names are asked of the gateway only." + see},
		{"said once", carrel.Decision{Protocol: "tcp", Address: "198.51.100.7", Port: 22, Reason: "no rule names it", Hint: "ask for: allowOut 198.51.100.7"},
			"carrel: denied tcp://198.51.100.7:22: no rule names it. Ask for: allowOut 198.51.100.7." + see},
		{"question", carrel.Decision{Protocol: "dns", Name: "example.org", Method: "TXT", Process: "dig", Reason: "no rule allows example.org", Hint: "allow example.org"},
			"carrel: denied dns example.org TXT (dig): no rule allows example.org. Ask for: allow example.org." + see},
		{"nothing known", carrel.Decision{}, "carrel: denied tcp://an unnamed host: the sandbox's policy refuses it." + see},
		{"escape sequences", carrel.Decision{Protocol: "http", Name: "a\x1b[2J\u009b31m\u202eb\r\n.example.com", Port: 80, Reason: "x\ncarrel: allowed"},
			"carrel: denied http://a[2J31mb .example.com:80: x carrel: allowed." + see},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := RefusalLine(c.d); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestRefusalLineIsShort(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	for _, d := range []carrel.Decision{
		{Protocol: "https", Name: "api.example.com", Port: 443, Path: "/" + long, Reason: "because", Hint: "allow it"},
		{Name: long, Reason: long, Hint: long, Process: long, Method: long, Protocol: long},
	} {
		line := RefusalLine(d)
		if len(line) > maxRefusal || !utf8.ValidString(line) || !strings.HasSuffix(line, " See "+DeniedFile) {
			t.Errorf("%d bytes: %s", len(line), line)
		}
	}
}

func FuzzRefusalLine(f *testing.F) {
	f.Add("https", "api.example.com", "203.0.113.9", uint16(443), "GET", "/v1", "no rule", "allow it", "curl (pid 1)")
	f.Add("\x1b]0;", "\xff\xfe", "::1", uint16(0), "\r\n", strings.Repeat("\u0301", 300), "\u2028", "\x00", "(pid ")
	f.Fuzz(func(t *testing.T, protocol, name, address string, port uint16, method, path, reason, hint, process string) {
		line := RefusalLine(carrel.Decision{Protocol: protocol, Name: name, Address: address, Port: port, Method: method, Path: path,
			Reason: reason, Hint: hint, Process: process})
		if len(line) > maxRefusal {
			t.Errorf("%d bytes", len(line))
		}
		if !strings.HasPrefix(line, "carrel: denied ") || !utf8.ValidString(line) {
			t.Errorf("%q", line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("not printable: %q", line)
		}
	})
}

// TestRefusedReply shows that a program's name is cleaned, because the sandbox chooses it.
func TestRefusedReply(t *testing.T) {
	for body, want := range map[string]string{
		`{"process":"curl (pid 12)"}`: "curl (pid 12)",
		`{}`:                          "",
		`{"process":"x\u001b]0;owned\u0007\n\u202ey (pid 1)"}`:    "x]0;owned y (pid 1)",
		`{"process":"` + strings.Repeat("ä", 1000) + ` (pid 1)"}`: strings.Repeat("ä", (maxProcess-len("…"))/2) + "…",
		`{"process":"` + strings.Repeat("a", 2<<20) + `"}`:        "error",
		`[`: "error",
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var got Refusal
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Method+r.URL.Path != "POST"+RefusedPath || got.SourcePort != 4711 || !got.UDP {
				t.Errorf("%s %s %+v, %v", r.Method, r.URL, got, err)
			}
			_, _ = w.Write([]byte(body))
		}))
		c := NewConn(func(ctx context.Context, _ uint16) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", srv.Listener.Addr().String())
		}, ConnOptions{})
		reply, err := c.Refused(t.Context(), Refusal{SourcePort: 4711, UDP: true})
		if got := reply.Process; (err != nil) != (want == "error") || err == nil && got != want {
			t.Errorf("%.50q: %q, %v", body, got, err)
		}
		_ = c.Close()
		srv.Close()
	}
}

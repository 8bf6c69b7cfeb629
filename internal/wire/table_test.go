package wire_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/wire"
)

func writeTable(t *testing.T, text string) string {
	t.Helper()
	ca, err := pki.New("test")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "table.json")
	for name, content := range map[string]string{file: text, filepath.Join(dir, "ca.pem"): string(ca.CertPEM()), filepath.Join(dir, "none.pem"): "none"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func TestTable(t *testing.T) {
	tcp, udp := canary(t)
	table, err := wire.LoadTable(writeTable(t, `{"names": {"api.example.com": ["203.0.113.9", "2001:db8::9"], "*.example.org": ["203.0.113.10"],
		"www.example.com": ["api.example.com"], "loop.example.com": ["loop.example.com"]},
		"dial": {"203.0.113.9:443": "`+tcp+`", "203.0.113.9:53": "`+udp+`", "203.0.113.10": "`+tcp+`"}, "roots": "ca.pem"}`))
	if err != nil {
		t.Fatal(err)
	}
	if table.Roots == nil {
		t.Error("no roots")
	}
	for _, c := range []struct {
		name, want string
		kind       uint16
		code       int
	}{
		{"api.example.com.", "203.0.113.9", dns.TypeA, dns.RcodeSuccess},
		{"API.example.com.", "2001:db8::9", dns.TypeAAAA, dns.RcodeSuccess},
		{"api.example.com.", "", dns.TypeTXT, dns.RcodeSuccess},
		{"a.b.example.org.", "203.0.113.10", dns.TypeA, dns.RcodeSuccess},
		{"example.org.", "", dns.TypeA, dns.RcodeNameError},
		{"www.example.com.", "api.example.com. 203.0.113.9", dns.TypeA, dns.RcodeSuccess},
		{"loop.example.com.", "", dns.TypeA, dns.RcodeServerFailure},
		{"example.net.", "", dns.TypeA, dns.RcodeNameError},
	} {
		a, err := table.Exchange(t.Context(), new(dns.Msg).SetQuestion(c.name, c.kind))
		if err != nil || a.Rcode != c.code {
			t.Errorf("%s: %v, %v, want code %d", c.name, a, err, c.code)
			continue
		}
		var got []string
		for _, rr := range a.Answer {
			if a.Rcode == dns.RcodeSuccess {
				got = append(got, rr.String()[strings.LastIndex(rr.String(), "\t")+1:])
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for network, address := range map[string]string{"tcp": "203.0.113.9:443", "udp": "203.0.113.9:53", "tcp4": "203.0.113.10:12345"} {
		c, err := table.DialContext(t.Context(), network, address)
		if err != nil {
			t.Error(address, err)
			continue
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 5)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
			t.Errorf("%s: %q, %v", address, b, err)
		}
		c.Close()
	}
	for _, address := range []string{"203.0.113.9:80", tcp} {
		if _, err := table.DialContext(t.Context(), "tcp", address); !errors.Is(err, syscall.EHOSTUNREACH) {
			t.Errorf("%s: %v, want unreachable", address, err)
		}
	}
}

func TestTableErrors(t *testing.T) {
	for _, text := range []string{`{`, `{"name":{}}`, `{"dial":{"example.com":"127.0.0.1"}}`, `{"dial":{"203.0.113.9":"localhost:1"}}`,
		`{"names":{"":["203.0.113.9"]}}`, `{} {}`, `{"roots":"none.pem"}`, `{"roots":"missing.pem"}`} {
		if _, err := wire.LoadTable(writeTable(t, text)); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%s: %v, want Invalid", text, err)
		}
	}
	if _, err := wire.LoadTable(filepath.Join(t.TempDir(), "missing")); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("a missing file: %v", err)
	}
}

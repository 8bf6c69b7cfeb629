package hostdoor

import (
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzTokenQuery shows that any query gives exactly one of name and audience, unchanged, bounded
// and printable, or a refusal.
func FuzzTokenQuery(f *testing.F) {
	for _, s := range []string{"", "name=aws", "audience=https%3A%2F%2Fsts.example.com", "name=a&audience=b", "name=a&name=b", "name=", "%zz", "name=a;b", "name=%ff", "name=%00", "&&", "name", "Name=a", "name=a+b", "audience=" + strings.Repeat("x", 2049)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		name, audience, bad := tokenQuery(raw)
		if bad != nil {
			if name != "" || audience != "" || bad.status != 400 || strings.ContainsFunc(bad.message, unicode.IsControl) {
				t.Fatalf("%q %q %+v", name, audience, bad)
			}
			return
		}
		if (name == "") == (audience == "") || len(name) > maxTokenName || len(audience) > maxAudience {
			t.Fatalf("%q %q", name, audience)
		}
		for _, v := range []string{name, audience} {
			if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
				t.Fatalf("%q", v)
			}
		}
		again := url.Values{}
		if name != "" {
			again.Set("name", name)
		} else {
			again.Set("audience", audience)
		}
		if n, a, bad := tokenQuery(again.Encode()); bad != nil || n != name || a != audience {
			t.Fatalf("%q %q is read again as %q %q %+v", name, audience, n, a, bad)
		}
	})
}

// FuzzOwnHost shows that a name that others can own never counts as ours.
func FuzzOwnHost(f *testing.F) {
	for _, s := range []string{"169.254.169.254", "[fd00::1]:80", "metadata", "evil.example.com", "metadata.evil.example.com", "1.2.3.4.example.com", "", ":80", "[", "]", "[::1", "fe80::1%eth0", "0x7f.1", "localhost"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if ownHost(host) && strings.Contains(host, "example.com") {
			t.Fatalf("%q is ours", host)
		}
	})
}

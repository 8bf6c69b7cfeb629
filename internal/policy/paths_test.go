package policy_test

import (
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
)

// byPath returns a policy that allows one pattern.
func byPath(t testing.TB, pattern string) *policy.Policy {
	return ours(t, rules(carrel.Rule{Allow: []string{"example.com"}, Paths: []string{pattern}}))
}

func TestPaths(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no []string }{
		"/":             {[]string{"/", "/?a=b"}, []string{"/a", "", "*", "a"}},
		"/v1":           {[]string{"/v1", "/%761", "/v1?x"}, []string{"/v1/", "/V1", "/v1/a", "/v11"}},
		"/v1/*":         {[]string{"/v1/a", "/v1/%20", "/v1/a%2Db"}, []string{"/v1/", "/v1", "/v1/a/b", "/v1/a/"}},
		"/v1/**":        {[]string{"/v1", "/v1/", "/v1/a", "/v1/a/b/", "/v1/ü", "/v1/%C3%BC"}, []string{"/v2", "/v1a", "/"}},
		"/**":           {[]string{"/", "/a", "/a/b/c"}, nil},
		"/**/end":       {[]string{"/end", "/a/end", "/a/b/end", "/end/end"}, []string{"/a/end/b", "/en"}},
		"/a/**/b/**/c":  {[]string{"/a/b/c", "/a/x/b/y/z/c", "/a/b/b/c/c"}, []string{"/a/c", "/a/c/b"}},
		"/a*b*c/*.json": {[]string{"/abc/x.json", "/axxbyyc/.json", "/abcbc/a.b.json"}, []string{"/ab/x.json", "/abc/x.jsonp", "/abc/x/y.json"}},
		"/*/x":          {[]string{"/a/x"}, []string{"/x", "/a/b/x"}},
		"/v1/":          {[]string{"/v1/"}, []string{"/v1", "/v1/a"}},
	} {
		p := byPath(t, pattern)
		f := tcp(site, 443, "example.com")
		for want, list := range map[string][]string{"allow": c.yes, "deny": c.no} {
			for _, path := range list {
				if v := p.Judge(opened(f, "GET", "example.com", path)); outcome(v) != want {
					t.Errorf("%s %s: %+v", pattern, path, v)
				}
			}
		}
	}
}

// TestAmbiguousPaths shows that a path which a server may read differently is refused, by rules
// that allow and rules that deny.
func TestAmbiguousPaths(t *testing.T) {
	allowing := byPath(t, "/**")
	denying := ours(t, rules(carrel.Rule{Deny: []string{"example.com"}, Paths: []string{"/admin"}}, allow("example.com")))
	f := tcp(site, 443, "example.com")
	for _, path := range []string{
		"//", "//a", "/a//b", "/.", "/..", "/a/.", "/a/./b", "/a/../b", "/%2e", "/a/%2e%2e/b", "/a/.%2E/b", "/a%2fb", "/a%2Fb", "/%2fadmin", "/a%5cb", `/a\b`,
		"/a;b", "/a;x=y/..", "/a%3bb", "/a%00", "/a%0a", "/a%0d%0aX: y", "/a%7f", "/%252e%252e/a", "/a%25", "/a%", "/a%2", "/a%zz", "/a%3fb", "/a%23b", "/a#b",
		"/%ff", "/%c0%ae%c0%ae/", "/\xff", "a", "", "*", "http://example.com/", "?a", "/%E2%80", "/\x00",
	} {
		for name, p := range map[string]*policy.Policy{"allow": allowing, "deny": denying} {
			v := p.Judge(opened(f, "GET", "example.com", path))
			if v.Allow || !strings.Contains(v.Reason, "more than one way") || v.Rule != "rule 1" {
				t.Errorf("%s %q: %+v", name, path, v)
			}
			if strings.ContainsAny(v.Reason, "\r\n\x00\x7f") {
				t.Errorf("%q is repeated as it is: %q", path, v.Reason)
			}
		}
	}
}

// TestManyStars shows that a pattern with many stars takes no longer than its length times the
// path's.
func TestManyStars(t *testing.T) {
	p := byPath(t, "/"+strings.Repeat("**/a/", 100)+"b")
	q := byPath(t, "/"+strings.Repeat("a*", 400)+"b")
	f := tcp(site, 443, "example.com")
	for _, path := range []string{strings.Repeat("/a", 4000), "/" + strings.Repeat("a", 8000)} {
		for _, p := range []*policy.Policy{p, q} {
			if v := p.Judge(opened(f, "GET", "example.com", path)); v.Allow {
				t.Errorf("%+v", v)
			}
		}
	}
}

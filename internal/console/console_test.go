package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// kim has the session "secret".
type kim struct{}

func (kim) SessionOf(r *http.Request) string {
	c, err := r.Cookie("s")
	if err != nil {
		return ""
	}
	return c.Value
}

func (kim) Who(secret string) (carrel.Person, string, bool) {
	return carrel.Person{Name: "kim"}, "id", secret == "secret"
}

func (kim) FormToken(secret string) string { return "form-of-" + secret }

// ask sends a request. The header Host is the request's host.
func ask(h http.Handler, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, "http://127.0.0.1:7777"+path, nil)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestPageHasItsPolicy(t *testing.T) {
	h := New(Options{Domain: "boxes.example.com"})
	first, again := ask(h, "GET", "/console/"), ask(h, "GET", "/console/sandboxes/x/files")
	policy := first.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "connect-src 'self'",
		"require-trusted-types-for 'script'", "trusted-types 'none'", "frame-src *.boxes.example.com:7777"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %s in %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "script-src 'self'") {
		t.Error(policy)
	}
	if policy == again.Header.Get("Content-Security-Policy") {
		t.Error("two answers have the same nonces")
	}
	page := text(t, first)
	if strings.Contains(page, "{{") || strings.Contains(text(t, again), "{{") {
		t.Error("something is left to fill in")
	}
	for _, m := range regexp.MustCompile(`nonce-([\w-]+)`).FindAllStringSubmatch(policy, -1) {
		if !strings.Contains(page, m[1]) {
			t.Errorf("the page lacks the nonce %s", m[1])
		}
	}
	for name, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
		if got := first.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestHosts(t *testing.T) {
	h := New(Options{Domain: "boxes.example.com:8443", Names: []string{"one.example.com"},
		PublicURL: func() string { return "https://carrel.example.com" }})
	for host, want := range map[string]int{
		"127.0.0.1:1": 200, "[::1]:1": 200, "192.0.2.7": 200, "localhost": 200, "LOCALHOST:80": 200, "a.localhost": 200,
		"carrel.example.com": 200, "Carrel.Example.com:443": 200, "boxes.example.com": 200, "api.boxes.example.com": 200, "one.example.com": 200,
		"evil.example.com": 421, "127.0.0.1.evil.example.com": 421, "localhost.evil.example.com": 421, "xboxes.example.com": 421, "": 421,
	} {
		if r := ask(h, "GET", "/console/", "Host", host); r.StatusCode != want {
			t.Errorf("%q: %d, want %d", host, r.StatusCode, want)
		}
	}
}

func TestPreviews(t *testing.T) {
	for _, c := range []struct{ domain, host, want string }{
		{"", "127.0.0.1:7777", " *.localhost:7777"}, {"", "localhost", " *.localhost"}, {"", "192.0.2.7:80", ""}, {"", "[::1]:7777", " *.localhost:7777"},
		{"b.example.com", "192.0.2.7:7777", " *.b.example.com:7777"}, {"b.example.com:9", "192.0.2.7:7777", " *.b.example.com:9"}, {"b.example.com", "b.example.com", " *.b.example.com"},
	} {
		if got := New(Options{Domain: c.domain}).previews(c.host); got != c.want {
			t.Errorf("%q at %q: %q, want %q", c.domain, c.host, got, c.want)
		}
	}
}

func TestSession(t *testing.T) {
	h := New(Options{Sessions: kim{}, Provider: true})
	for _, c := range []struct {
		header []string
		status int
		want   string
	}{
		{nil, 200, `{"people":true,"provider":true}`},
		{[]string{"Cookie", "s=secret"}, 200, `{"person":"kim","form":"form-of-secret","people":true,"provider":true}`},
		{[]string{"Cookie", "s=secret", "Sec-Fetch-Site", "same-origin"}, 200, `{"person":"kim","form":"form-of-secret","people":true,"provider":true}`},
		{[]string{"Cookie", "s=other"}, 200, `{"people":true,"provider":true}`},
		{[]string{"Cookie", "s=secret", "Sec-Fetch-Site", "same-site"}, 403, "a page of another origin asked"},
		{[]string{"Cookie", "s=secret", "Sec-Fetch-Site", "cross-site"}, 403, "a page of another origin asked"},
		{[]string{"Cookie", "s=secret", "Origin", "https://evil.example.com"}, 403, "a page of another origin asked"},
	} {
		r := ask(h, "GET", SessionPath, c.header...)
		if got := strings.TrimSpace(text(t, r)); r.StatusCode != c.status || got != c.want || r.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: %d %s", c.header, r.StatusCode, got)
		}
	}
}

func TestAssets(t *testing.T) {
	h := New(Options{})
	script := regexp.MustCompile(`src="(/console/assets/[^"]+\.js)"`).FindStringSubmatch(text(t, ask(h, "GET", "/console/")))
	if script == nil {
		t.Fatal("the page has no script")
	}
	packed, plain := ask(h, "GET", script[1], "Accept-Encoding", "gzip"), ask(h, "GET", script[1])
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(z)
	if err != nil || string(unpacked) != text(t, plain) || packed.Header.Get("Content-Encoding") != "gzip" || plain.Header.Get("Content-Encoding") != "" {
		t.Error("the two forms differ", err, packed.Header, plain.Header)
	}
	if c := plain.Header.Get("Cache-Control"); !strings.Contains(c, "immutable") || plain.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Error(c, plain.Header)
	}
	for _, path := range []string{"/console/assets/", "/console/assets/none.js", "/console/assets/../index.html", "/console/assets/index.html", "/console/assets/a/b.js"} {
		if r := ask(h, "GET", path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

func TestMethodsAndPaths(t *testing.T) {
	passed := 0
	h := New(Options{}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		if r := ask(h, method, "/console/"); r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, r.StatusCode)
		}
	}
	if r := ask(h, "HEAD", "/console/"); r.StatusCode != 200 || text(t, r) != "" {
		t.Error("HEAD", r.StatusCode)
	}
	if r := ask(h, "GET", "/console"); r.StatusCode != http.StatusPermanentRedirect || r.Header.Get("Location") != "/console/" {
		t.Error(r.StatusCode, r.Header)
	}
	for _, path := range []string{"/", "/consoles", "/sandboxes", "/console-x"} {
		ask(h, "GET", path)
	}
	if passed != 4 {
		t.Errorf("%d of 4 requests were passed on", passed)
	}
}

// TestSize keeps the first page small, and the whole below what the repository may hold.
func TestSize(t *testing.T) {
	page, err := dist.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	first := len(page)
	for _, m := range regexp.MustCompile(`/console/assets/([^"]+)"`).FindAllStringSubmatch(string(page), -1) {
		raw, err := dist.ReadFile("dist/" + m[1] + ".gz")
		if err != nil {
			t.Fatal(err)
		}
		first += len(raw)
	}
	all, err := dist.ReadDir("dist")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, e := range all {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	t.Logf("%d bytes on first load, %d in all", first, total)
	if first > 300<<10 || total > 1<<20 {
		t.Errorf("%d bytes on first load, %d in all", first, total)
	}
}

package hostdoor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/hostdoor"
)

// minted records the tokens that a door asked for.
type minted struct {
	mu  sync.Mutex
	all []string
	err error
}

func (m *minted) token(_ context.Context, id carrel.ID, name, audience string) (carrel.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, fmt.Sprintf("%s|%s|%s", id, name, audience))
	return carrel.Token{Value: "eyJ", Expires: time.Unix(2e9, 0).UTC()}, m.err
}

func (m *minted) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

// openTokens returns a door with tokens.
func openTokens(t *testing.T, m *minted, change ...func(*hostdoor.Options)) *hostdoor.Door {
	t.Helper()
	return open(t, nil, append([]func(*hostdoor.Options){func(o *hostdoor.Options) {
		o.Tokens = m.token
		o.Sandbox = func(_ context.Context, id carrel.ID) (carrel.Sandbox, error) {
			return carrel.Sandbox{ID: id, Template: "t1", Alias: "base", Generation: 4, AccessToken: "secret", TrafficToken: "secret",
				Metadata: map[string]string{"owner": "secret"}, Tokens: map[string]carrel.TokenSpec{"aws": {Audience: "sts.example.com"}}}, m.err
		}
	}}, change...)...)
}

// TestToken shows that a sandbox gets its own tokens through the guest's client.
func TestToken(t *testing.T) {
	var m minted
	d := openTokens(t, &m)
	one, two := carrel.NewID(), carrel.NewID()
	for _, c := range []struct {
		id             carrel.ID
		name, audience string
	}{{one, "aws", ""}, {two, "", "https://sts.example.com/a?b=c&d=ö"}, {one, "a b+c", ""}} {
		n := m.count()
		got, err := host(t, d, c.id).Token(t.Context(), c.name, c.audience)
		if err != nil || got.Value != "eyJ" || !got.Expires.Equal(time.Unix(2e9, 0)) {
			t.Fatal(got, err)
		}
		if want := fmt.Sprintf("%s|%s|%s", c.id, c.name, c.audience); m.all[n] != want {
			t.Errorf("asked for %q, want %q", m.all[n], want)
		}
	}
	for _, c := range [][2]string{{"", ""}, {"a", "b"}, {strings.Repeat("n", 129), ""}, {"", strings.Repeat("a", 2049)}, {"a\x00", ""}} {
		if _, err := host(t, d, one).Token(t.Context(), c[0], c[1]); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%.20q: %v", c, err)
		}
	}
	if m.count() != 3 {
		t.Error(m.all)
	}
}

// TestSelf shows that a sandbox learns who it is, and nothing that it must not know.
func TestSelf(t *testing.T) {
	var m minted
	d := openTokens(t, &m)
	id := carrel.NewID()
	got, err := host(t, d, id).Self(t.Context())
	if err != nil || got.ID != id || got.Template != "t1" || got.Alias != "base" || got.Generation != 4 || got.Tokens["aws"].Audience != "sts.example.com" {
		t.Error(got, err)
	}
	if raw := send(t, d, get("/carrel/v1/sandbox")); !strings.Contains(raw, `"template":"t1"`) || strings.Contains(raw, "secret") {
		t.Error(raw)
	}
}

// get returns a valid request for path. headers replace the valid headers.
func get(path string, headers ...string) string {
	if len(headers) == 0 {
		headers = []string{"Host: 169.254.169.254", "Metadata-Flavor: Carrel"}
	}
	return "GET " + path + " HTTP/1.1\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
}

// TestTricked sends requests that a program inside may be tricked into by somebody who must not get
// a token. None of them may mint a token.
func TestTricked(t *testing.T) {
	var m minted
	d := openTokens(t, &m)
	const path, host, flavor = "/carrel/v1/identity/token?name=aws", "Host: 169.254.169.254", "Metadata-Flavor: Carrel"
	for _, c := range []struct {
		name, raw, want string
	}{
		{"a server that fetches a URL", get(path, host), "403"},
		{"another cloud's header", get(path, host, "Metadata-Flavor: Google"), "403"},
		{"the header twice", get(path, host, flavor, flavor), "403"},
		{"the header in another case", get(path, host, "Metadata-Flavor: carrel"), "403"},
		{"a list in the header", get(path, host, "Metadata-Flavor: Carrel, Google"), "403"},
		{"through a proxy", get(path, host, flavor, "X-Forwarded-For: 10.0.0.1"), "403"},
		{"through a proxy that is shy", get(path, host, flavor, "X-Forwarded-For:"), "403"},
		{"through a polite proxy", get(path, host, flavor, "Forwarded: for=10.0.0.1"), "403"},
		{"through an old proxy", get(path, host, flavor, "Via: 1.1 squid"), "403"},
		{"a page in a browser", get(path, host, flavor, "Origin: http://evil.example.com"), "403"},
		{"a browser's question", "OPTIONS " + path + " HTTP/1.1\r\n" + host + "\r\nOrigin: http://evil.example.com\r\nAccess-Control-Request-Headers: metadata-flavor\r\n\r\n", "405"},
		{"a name that was rebound", get(path, "Host: evil.example.com", flavor), "403"},
		{"a name like ours", get(path, "Host: metadata.example.com", flavor), "403"},
		{"a name below an address", get(path, "Host: 169.254.169.254.nip.example.com", flavor), "403"},
		{"an empty host", get(path, "Host:", flavor), "403"},
		{"no host", "GET " + path + " HTTP/1.0\r\n" + flavor + "\r\n\r\n", "403"},
		{"two hosts", get(path, host, "Host: evil.example.com", flavor), "400"},
		{"an absolute target", "GET http://evil.example.com" + path + " HTTP/1.1\r\n" + host + "\r\n" + flavor + "\r\n\r\n", "403"},
		{"an absolute target with an address", "GET http://169.254.169.254" + path + " HTTP/1.1\r\n" + host + "\r\n" + flavor + "\r\n\r\n", "403"},
		{"a POST", "POST " + path + " HTTP/1.1\r\n" + host + "\r\n" + flavor + "\r\nContent-Length: 0\r\n\r\n", "405"},
		{"a HEAD", "HEAD " + path + " HTTP/1.1\r\n" + host + "\r\n" + flavor + "\r\n\r\n", "405"},
		{"a body", get(path, host, flavor, "Content-Length: 1") + "x", "400"},
		{"a chunked body", get(path, host, flavor, "Transfer-Encoding: chunked") + "0\r\n\r\n", "400"},
		{"no query", get("/carrel/v1/identity/token", host, flavor), "400"},
		{"both", get(path+"&audience=x", host, flavor), "400"},
		{"a name twice", get(path+"&name=x", host, flavor), "400"},
		{"another's", get(path+"&sandbox=iother", host, flavor), "400"},
		{"a broken query", get("/carrel/v1/identity/token?name=%zz", host, flavor), "400"},
		{"a semicolon", get("/carrel/v1/identity/token?name=a;audience=b", host, flavor), "400"},
		{"not UTF-8", get("/carrel/v1/identity/token?name=%ff", host, flavor), "400"},
		{"a line break", get("/carrel/v1/identity/token?audience=a%0d%0ab", host, flavor), "400"},
		{"a path like it", get("/carrel/v1/identity/token/?name=aws", host, flavor), "404"},
		{"a doubled slash", get("//carrel/v1/identity/token?name=aws", host, flavor), "404"},
		{"another cloud's path", get("/latest/meta-data/iam/security-credentials/", host, flavor), "404"},
		{"the sandbox with a query", get("/carrel/v1/sandbox?id=iother", host, flavor), "400"},
		{"the sandbox without the header", get("/carrel/v1/sandbox", host), "403"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := send(t, d, c.raw)
			if !strings.HasPrefix(got, "HTTP/1.1 "+c.want) && !strings.HasPrefix(got, "HTTP/1.0 "+c.want) {
				t.Errorf("want %s, got %q", c.want, got)
			}
			if strings.Contains(strings.ToLower(got), "access-control-allow") || strings.Contains(got, "eyJ") {
				t.Errorf("%q", got)
			}
		})
	}
	if m.count() != 0 {
		t.Errorf("tokens were minted: %v", m.all)
	}
	for _, own := range []string{"169.254.169.254", "169.254.169.254:80", "10.0.0.1:49980", "[fd00::1]:49980", "[fd00::1]", "metadata", "METADATA.carrel.internal", "metadata.carrel.internal:80"} {
		if got := send(t, d, get(path, "Host: "+own, flavor)); !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.Contains(got, "Cache-Control: no-store") {
			t.Errorf("%s: %q", own, got)
		}
	}
}

// TestTokenErrors shows that a sandbox gets fixed error texts, which say nothing about the host.
func TestTokenErrors(t *testing.T) {
	const secret = "/srv/carrel of iother"
	for kind, status := range map[carrel.Kind]int{
		carrel.Internal: 500, carrel.Invalid: 400, carrel.NotFound: 404, carrel.Conflict: 409, carrel.Unavailable: 503,
		carrel.Unsupported: 501, carrel.TimedOut: 504, carrel.Forbidden: 403, carrel.Exhausted: 500,
	} {
		m := minted{err: &carrel.Error{Op: "mint", Kind: kind, Field: secret, Hint: secret, Err: errors.New(secret)}}
		d := openTokens(t, &m)
		for _, path := range []string{"/carrel/v1/identity/token?name=aws", "/carrel/v1/sandbox"} {
			got := send(t, d, get(path))
			if strings.Contains(got, "srv") || strings.Contains(got, "eyJ") || strings.Contains(got, "t1") {
				t.Errorf("%s: %q", kind, got)
			}
			if strings.Contains(path, "token") && !strings.HasPrefix(got, fmt.Sprint("HTTP/1.1 ", status)) {
				t.Errorf("%s: %q", kind, got)
			}
		}
	}
	d := open(t, nil)
	for _, path := range []string{"/carrel/v1/identity/token?name=aws", "/carrel/v1/sandbox"} {
		if got := send(t, d, get(path)); !strings.HasPrefix(got, "HTTP/1.1 501") {
			t.Errorf("a host that has none: %q", got)
		}
	}
}

// TestTokenRate shows that a sandbox with too many requests is refused. Another sandbox is not, nor
// are checkpoints.
func TestTokenRate(t *testing.T) {
	var m minted
	var a asked
	d := openTokens(t, &m, func(o *hostdoor.Options) {
		o.Moments, o.TokenEvery, o.TokenBurst = moments{a.snapshot}, time.Hour, 3
	})
	id := carrel.NewID()
	ask := func(id carrel.ID) *http.Response {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(t, d, id), nil }, DisableKeepAlives: true}
		req, _ := http.NewRequest("GET", "http://169.254.169.254/carrel/v1/identity/token?name=aws", nil)
		req.Header.Set("Metadata-Flavor", "Carrel")
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	for range 3 {
		if resp := ask(id); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	for range 5 {
		if resp := ask(id); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "3600" {
			t.Fatal(resp.Status, resp.Header)
		}
	}
	if resp := ask(carrel.NewID()); resp.StatusCode != 200 {
		t.Error("another sandbox is refused as well:", resp.Status)
	}
	if _, err := host(t, d, id).Checkpoint(t.Context(), guest.CheckpointRequest{}); err != nil {
		t.Error(err)
	}
}

// TestTokenCallerGone shows that minting for a caller that has left ends, and that Close waits for
// it.
func TestTokenCallerGone(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	d := open(t, nil, func(o *hostdoor.Options) {
		o.Tokens = func(ctx context.Context, _ carrel.ID, _, _ string) (carrel.Token, error) {
			close(entered)
			<-ctx.Done()
			close(ended)
			return carrel.Token{}, ctx.Err()
		}
	})
	c := dial(t, d, carrel.NewID())
	if _, err := c.Write([]byte(get("/carrel/v1/identity/token?name=a"))); err != nil {
		t.Fatal(err)
	}
	<-entered
	_ = c.Close()
	<-ended
}

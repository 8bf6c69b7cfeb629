package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/identity"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is an issuer served over HTTP, as relying parties see it.
type world struct {
	*identity.Issuer
	dir   string
	clock *clock
	web   *httptest.Server
	opts  identity.Options
	mu    sync.Mutex
	// hidden is a sandbox that the key's holder may not see.
	hidden carrel.ID
}

const apiKey = "the-key"

func start(t *testing.T, change ...func(*identity.Options)) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), clock: &clock{now: time.Now()}}
	w.web = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		i := w.Issuer
		w.mu.Unlock()
		i.Handler().ServeHTTP(rw, r)
	}))
	t.Cleanup(w.web.Close)
	w.opts = identity.Options{Issuer: func() string { return w.web.URL + "/" }, Now: w.clock.Now,
		Authorize: func(r *http.Request) func(context.Context, carrel.ID) bool {
			if r.Header.Get("X-API-KEY") != apiKey {
				return nil
			}
			return func(_ context.Context, id carrel.ID) bool { return id != w.hidden }
		}}
	for _, f := range change {
		f(&w.opts)
	}
	w.restart(t)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// restart opens the directory again, as the next daemon does.
func (w *world) restart(t *testing.T) {
	t.Helper()
	if w.Issuer != nil {
		_ = w.Close()
	}
	i, err := identity.Open(w.dir, w.opts)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.Issuer = i
	w.mu.Unlock()
}

// verify verifies a token like a relying party that knows only the issuer's URL. It checks
// discovery, keys, signature, issuer, audience and time, all with a library that is not ours.
func (w *world) verify(t *testing.T, token, audience string) (*oidc.IDToken, error) {
	t.Helper()
	p, err := oidc.NewProvider(t.Context(), w.web.URL)
	if err != nil {
		t.Fatal(err)
	}
	return p.Verifier(&oidc.Config{ClientID: audience, Now: w.clock.Now}).Verify(t.Context(), token)
}

func (w *world) mint(t *testing.T, c identity.Claims, ttl time.Duration) carrel.Token {
	t.Helper()
	if c.Sandbox == "" {
		c.Sandbox = carrel.NewID()
	}
	if c.Audience == "" {
		c.Audience = "https://api.example.com"
	}
	token, err := w.Sign(t.Context(), c, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// introspect asks over HTTP.
func (w *world) introspect(t *testing.T, token string) map[string]any {
	t.Helper()
	req, _ := http.NewRequest(http.MethodPost, w.web.URL+identity.IntrospectPath, strings.NewReader(url.Values{"token": {token}}.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-API-KEY", apiKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != 200 || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatal(resp.Status, resp.Header, err)
	}
	return out
}

func (w *world) active(t *testing.T, token string) bool {
	t.Helper()
	out := w.introspect(t, token)
	if out["active"] == false && len(out) != 1 {
		t.Error("more than that it is worth nothing:", out)
	}
	return out["active"] == true
}

// TestVerifiedByOthers shows that a library that knows nothing of us accepts the token.
func TestVerifiedByOthers(t *testing.T) {
	w := start(t)
	id := carrel.NewID()
	token := w.mint(t, identity.Claims{Sandbox: id, Task: "fix-42", Audience: "sts.example.com", Scopes: []string{"repo:read", "push"}, Template: "base", Generation: 3}, 0)
	got, err := w.verify(t, token.Value, "sts.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if got.Issuer != w.web.URL || got.Subject != "spiffe://127.0.0.1/org/default/project/default/sandbox/"+string(id)+"/task/fix-42" ||
		len(got.Audience) != 1 || !got.Expiry.Equal(token.Expires) || got.Expiry.Sub(w.clock.Now()) > 15*time.Minute || got.Expiry.Sub(w.clock.Now()) < 14*time.Minute {
		t.Errorf("%+v", got)
	}
	var claims struct {
		Scope  string
		Jti    string
		Nbf    int64
		Iat    int64
		Carrel struct {
			Sandbox, Org, Project, Task, Template string
			Generation                            int
		}
	}
	if err := got.Claims(&claims); err != nil || claims.Scope != "repo:read push" || claims.Jti == "" || claims.Nbf >= claims.Iat ||
		claims.Carrel.Sandbox != string(id) || claims.Carrel.Task != "fix-42" || claims.Carrel.Template != "base" || claims.Carrel.Generation != 3 || claims.Carrel.Org != "default" {
		t.Errorf("%+v %v", claims, err)
	}
	// A JWT-SVID has only these headers, and its audience may be a plain text.
	head, rest, _ := strings.Cut(token.Value, ".")
	raw, _ := base64.RawURLEncoding.DecodeString(head)
	var header map[string]string
	if err := json.Unmarshal(raw, &header); err != nil || len(header) != 3 || header["alg"] != "ES256" || header["typ"] != "JWT" || header["kid"] == "" {
		t.Error(string(raw), err)
	}
	payload, _, _ := strings.Cut(rest, ".")
	if raw, _ = base64.RawURLEncoding.DecodeString(payload); !strings.Contains(string(raw), `"aud":"sts.example.com"`) {
		t.Error(string(raw))
	}
	if out := w.introspect(t, token.Value); out["active"] != true || out["sub"] != got.Subject || out["aud"] != "sts.example.com" || out["token_type"] != "Bearer" {
		t.Error(out)
	}
}

// TestMint shows that a token's claims match the service's record of the sandbox.
func TestMint(t *testing.T) {
	w := start(t)
	sb := carrel.Sandbox{ID: carrel.NewID(), Project: "blue", Template: "base", Generation: 2, Metadata: map[string]string{"task": "t1", "org": "other"}}
	token, err := w.Mint(t.Context(), sb, carrel.TokenSpec{Audience: "a", Scopes: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	got := w.Introspect(t.Context(), token.Value)
	if !got.Active || got.Audience != "a" || got.Scope != "s" || got.Subject != "spiffe://127.0.0.1/org/default/project/blue/sandbox/"+string(sb.ID)+"/task/t1" ||
		got.Carrel.Template != "base" || got.Carrel.Generation != 2 {
		t.Errorf("%+v", got)
	}
}

// TestForgeries shows that a token that is not ours, not for this audience, or not of this time is
// refused by others and by us.
func TestForgeries(t *testing.T) {
	w := start(t)
	token := w.mint(t, identity.Claims{Audience: "aud"}, 0).Value
	parts := strings.Split(token, ".")
	encode := func(v any) string {
		raw, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	var claims map[string]any
	raw, _ := base64.RawURLEncoding.DecodeString(parts[1])
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	var header map[string]string
	raw, _ = base64.RawURLEncoding.DecodeString(parts[0])
	if err := json.Unmarshal(raw, &header); err != nil {
		t.Fatal(err)
	}
	changed := func(key string, value any) string {
		other := map[string]any{}
		for k, v := range claims {
			other[k] = v
		}
		other[key] = value
		return parts[0] + "." + encode(other) + "." + parts[2]
	}
	sign := func(alg jose.SignatureAlgorithm, key any, kid string) string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := jwt.Signed(s).Claims(claims).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	stranger, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	resp, err := http.Get(w.web.URL + identity.KeysPath)
	if err != nil {
		t.Fatal(err)
	}
	published, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	flipped := []byte(parts[2])
	flipped[10] ^= 1
	for name, forged := range map[string]string{
		"another audience":         changed("aud", "other"),
		"another sandbox":          changed("sub", "spiffe://127.0.0.1/org/default/project/default/sandbox/"+string(carrel.NewID())),
		"a later end":              changed("exp", claims["exp"].(float64)+1e6),
		"a changed signature":      parts[0] + "." + parts[1] + "." + string(flipped),
		"no signature":             parts[0] + "." + parts[1] + ".",
		"alg none":                 encode(map[string]string{"alg": "none", "typ": "JWT"}) + "." + parts[1] + ".",
		"alg none, our kid":        encode(map[string]string{"alg": "None", "kid": header["kid"]}) + "." + parts[1] + "." + parts[2],
		"a stranger's key":         sign(jose.ES256, stranger, "stranger"),
		"a stranger, our kid":      sign(jose.ES256, stranger, header["kid"]),
		"HMAC with our public key": sign(jose.HS256, published, header["kid"]),
		"a key in the header":      encode(map[string]any{"alg": "ES256", "jwk": jose.JSONWebKey{Key: stranger.Public()}}) + "." + parts[1] + "." + parts[2],
		"nothing":                  "x",
		"empty parts":              "..",
	} {
		if got, err := w.verify(t, forged, "aud"); err == nil {
			t.Errorf("%s: others take it: %+v", name, got)
		}
		if w.active(t, forged) {
			t.Errorf("%s: it is active", name)
		}
	}
	// This is the same token in JSON form. A JWT has only the compact form.
	if w.active(t, `{"payload":"`+parts[1]+`","protected":"`+parts[0]+`","signature":"`+parts[2]+`"}`) {
		t.Error("JSON serialization is taken")
	}
	if _, err := w.verify(t, token, "somebody else"); err == nil {
		t.Error("a token for another audience is taken")
	}
	if _, err := w.verify(t, token, "aud"); err != nil || !w.active(t, token) {
		t.Error("the true one is not taken:", err)
	}
	w.clock.pass(16 * time.Minute)
	if _, err := w.verify(t, token, "aud"); err == nil || w.active(t, token) {
		t.Error("an expired one is taken")
	}
}

// TestSkew shows that a verifier whose clock is behind accepts a new token.
func TestSkew(t *testing.T) {
	w := start(t)
	token := w.mint(t, identity.Claims{Audience: "aud"}, 0)
	w.clock.pass(-50 * time.Second)
	if !w.active(t, token.Value) {
		t.Error("not yet valid")
	}
	w.clock.pass(-50 * time.Minute)
	if w.active(t, token.Value) {
		t.Error("valid an hour ago")
	}
}

// TestInvalid shows that invalid claims are refused, and that the lifetime is bounded.
func TestInvalid(t *testing.T) {
	w := start(t)
	good := identity.Claims{Sandbox: carrel.NewID(), Audience: "a"}
	for _, c := range []struct {
		field  string
		ttl    time.Duration
		change func(*identity.Claims)
	}{
		{"ttl", time.Hour + time.Second, nil},
		{"ttl", -time.Second, nil},
		{"ttl", time.Millisecond, nil},
		{"sandbox", 0, func(c *identity.Claims) { c.Sandbox = "x" }},
		{"org", 0, func(c *identity.Claims) { c.Org = "a/project/b" }},
		{"org", 0, func(c *identity.Claims) { c.Org = ".." }},
		{"project", 0, func(c *identity.Claims) { c.Project = "a b" }},
		{"audience", 0, func(c *identity.Claims) { c.Audience = "" }},
		{"audience", 0, func(c *identity.Claims) { c.Audience = "a\nb" }},
		{"audience", 0, func(c *identity.Claims) { c.Audience = strings.Repeat("x", 2049) }},
		{"scopes", 0, func(c *identity.Claims) { c.Scopes = []string{"a b"} }},
		{"scopes", 0, func(c *identity.Claims) { c.Scopes = make([]string, 65) }},
	} {
		claims := good
		if c.change != nil {
			c.change(&claims)
		}
		_, err := w.Sign(t.Context(), claims, c.ttl)
		if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Kind != carrel.Invalid || e.Field != c.field {
			t.Errorf("%s %v: %v", c.field, c.ttl, err)
		}
	}
	if got := w.mint(t, good, time.Hour); got.Expires.Sub(w.clock.Now()) > time.Hour {
		t.Error(got)
	}
	// A task that no SPIFFE ID can contain must not change the subject's sandbox.
	for _, task := range []string{"a b", "../../sandbox/iother", "x/task/y", "é", strings.Repeat("x", 200)} {
		claims := good
		claims.Task = task
		if got, err := w.verify(t, w.mint(t, claims, 0).Value, "a"); err != nil || !strings.HasSuffix(got.Subject, "/sandbox/"+string(good.Sandbox)) {
			t.Errorf("%q: %+v %v", task, got, err)
		}
	}
}

// TestIssuer shows that no token is minted with an invalid URL, and that the trust domain comes
// from the URL.
func TestIssuer(t *testing.T) {
	at := ""
	w := start(t, func(o *identity.Options) { o.Issuer = func() string { return at } })
	for _, at = range []string{"", "carrel.example.com", "ftp://example.com", "https://user@example.com", "https://example.com/?x"} {
		if _, err := w.Sign(t.Context(), identity.Claims{Sandbox: carrel.NewID(), Audience: "a"}, 0); carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("%q: %v", at, err)
		}
	}
	resp, err := http.Get(w.web.URL + identity.DiscoveryPath)
	if err != nil || resp.StatusCode != 503 {
		t.Error(resp, err)
	}
	_ = resp.Body.Close()
	for url, domain := range map[string]string{"https://Carrel.example.com:8443": "carrel.example.com", "http://[::1]:70": "carrel.local"} {
		at = url
		token := w.mint(t, identity.Claims{}, 0)
		parsed, err := jwt.ParseSigned(token.Value, []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		var c jwt.Claims
		if err := parsed.UnsafeClaimsWithoutVerification(&c); err != nil || !strings.HasPrefix(c.Subject, "spiffe://"+domain+"/org/") || c.Issuer != url {
			t.Error(c, err)
		}
	}
	for _, bad := range []string{"Example.com", "a:1", "a/b"} {
		if _, err := identity.Open(t.TempDir(), identity.Options{Issuer: func() string { return "" }, TrustDomain: bad}); carrel.KindOf(err) != carrel.Invalid {
			t.Error(bad, err)
		}
	}
}

// TestRevoked shows that a sandbox's tokens end with it, for this daemon and the next, and that
// others' tokens do not.
func TestRevoked(t *testing.T) {
	w := start(t)
	dead, other := carrel.NewID(), carrel.NewID()
	token, untouched := w.mint(t, identity.Claims{Sandbox: dead}, time.Hour), w.mint(t, identity.Claims{Sandbox: other}, time.Hour)
	for range 2 {
		if err := w.Revoke(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		if w.active(t, token.Value) || !w.active(t, untouched.Value) {
			t.Error(round, "active:", w.active(t, token.Value), w.active(t, untouched.Value))
		}
		if _, err := w.Sign(t.Context(), identity.Claims{Sandbox: dead, Audience: "a"}, 0); carrel.KindOf(err) != carrel.Forbidden {
			t.Error(round, err)
		}
		if round == 0 { // a token of the earlier daemon
			early := carrel.NewID()
			before := w.mint(t, identity.Claims{Sandbox: early}, time.Hour)
			w.restart(t)
			if err := w.Revoke(t.Context(), early); err != nil || w.active(t, before.Value) {
				t.Error(err)
			}
		}
		w.restart(t)
	}
	// If a daemon died while it wrote, the rest of the file still counts.
	name := filepath.Join(w.dir, "revoked.jsonl")
	raw, err := os.ReadFile(name)
	if err != nil || len(raw) == 0 {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(raw, `{"id":"ihalf`...), 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart(t)
	if w.active(t, token.Value) || !w.active(t, untouched.Value) {
		t.Error("after a torn write")
	}
	w.clock.pass(2 * time.Hour)
	w.restart(t)
	if raw, err := os.ReadFile(name); err != nil || len(raw) != 0 {
		t.Errorf("what has expired is kept: %q %v", raw, err)
	}
}

// TestNoInodes: an issuer opens on a disk without an inode, knows what was revoked, and revokes.
func TestNoInodes(t *testing.T) {
	w := start(t)
	_ = w.Close()
	dir, take := testenv.FewInodes(t)
	w.dir = dir
	w.restart(t)
	dead, next := carrel.NewID(), carrel.NewID()
	token, later := w.mint(t, identity.Claims{Sandbox: dead}, 0), w.mint(t, identity.Claims{Sandbox: next}, 0)
	if err := w.Revoke(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	take()
	w.restart(t)
	if err := w.Revoke(t.Context(), next); err != nil {
		t.Error(err)
	}
	w.restart(t)
	if w.active(t, token.Value) || w.active(t, later.Value) {
		t.Error("forgotten")
	}
}

// TestTornLine shows that the rest of a failed write does not spoil the next line.
func TestTornLine(t *testing.T) {
	w := start(t)
	a, b := carrel.NewID(), carrel.NewID()
	first, second := w.mint(t, identity.Claims{Sandbox: a}, 0), w.mint(t, identity.Claims{Sandbox: b}, 0)
	f, err := os.OpenFile(filepath.Join(w.dir, "revoked.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []carrel.ID{a, b} {
		if _, err := f.WriteString(`{"id":"`); err != nil {
			t.Fatal(err)
		}
		if err := w.Revoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	_ = f.Close()
	w.restart(t)
	if w.active(t, first.Value) || w.active(t, second.Value) {
		t.Error("forgotten")
	}
}

// TestAlive shows that a sandbox counts as ended when the service says so, revoked or not.
func TestAlive(t *testing.T) {
	gone := carrel.NewID()
	dead := false
	w := start(t, func(o *identity.Options) {
		o.Alive = func(_ context.Context, id carrel.ID) bool { return !dead || id != gone }
	})
	token := w.mint(t, identity.Claims{Sandbox: gone}, 0)
	if !w.active(t, token.Value) {
		t.Error("not active")
	}
	dead = true
	if w.active(t, token.Value) {
		t.Error("active")
	}
	if _, err := w.Sign(t.Context(), identity.Claims{Sandbox: gone, Audience: "a"}, 0); carrel.KindOf(err) != carrel.Forbidden {
		t.Error(err)
	}
}

// TestHidden shows that another project's sandbox gets its tokens, and that a caller who may not
// see it learns nothing about them.
func TestHidden(t *testing.T) {
	w := start(t)
	w.hidden = carrel.NewID()
	token := w.mint(t, identity.Claims{Sandbox: w.hidden}, 0)
	if w.active(t, token.Value) {
		t.Error("told of a token of another's sandbox")
	}
	w.hidden = ""
	if !w.active(t, token.Value) {
		t.Error("not active")
	}
}

// keys returns the IDs of the published keys.
func (w *world) keys(t *testing.T, path string) []string {
	t.Helper()
	resp, err := http.Get(w.web.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(raw, &set); err != nil || !strings.HasPrefix(resp.Header.Get("Cache-Control"), "public, max-age=") {
		t.Fatal(string(raw), resp.Header, err)
	}
	if strings.Contains(string(raw), `"d"`) {
		t.Fatal("a private key is published")
	}
	var out []string
	for _, k := range set.Keys {
		if !k.Valid() || !k.IsPublic() {
			t.Error(k)
		}
		out = append(out, k.KeyID)
	}
	return out
}

func kid(token string) string {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return ""
	}
	return parsed.Headers[0].KeyID
}

// TestRotation runs for a year, with restarts. A verifier that fetched the keys when a key began to
// sign must have that key. An old key stays published as long as its tokens live.
func TestRotation(t *testing.T) {
	w := start(t)
	cached := w.keys(t, identity.KeysPath)
	if len(cached) != 2 {
		t.Fatal(cached)
	}
	signers := map[string]bool{}
	for day := range 365 {
		token := w.mint(t, identity.Claims{Audience: "aud"}, time.Hour).Value
		if !strings.Contains(strings.Join(cached, " "), kid(token)) {
			t.Fatal("day", day, "a key signs that nobody could know the day before")
		}
		signers[kid(token)] = true
		w.clock.pass(59 * time.Minute)
		if day%50 == 0 {
			w.restart(t)
		}
		if _, err := w.verify(t, token, "aud"); err != nil {
			t.Fatal("day", day, err)
		}
		cached = w.keys(t, identity.KeysPath)
		w.clock.pass(24*time.Hour - 59*time.Minute)
	}
	if len(signers) < 12 || len(signers) > 14 {
		t.Error(len(signers), "keys in a year")
	}
	if len(cached) > 3 {
		t.Error(len(cached), "keys are published")
	}
	w.clock.pass(200 * 24 * time.Hour) // nobody was here
	last := w.keys(t, identity.KeysPath)
	if token := w.mint(t, identity.Claims{}, 0).Value; !strings.Contains(strings.Join(cached, " "), kid(token)) || len(last) > 3 {
		t.Error("after a long pause an unknown key signs", cached, last)
	}
	if bundle := w.keys(t, identity.BundlePath); strings.Join(bundle, " ") != strings.Join(last, " ") {
		t.Error(bundle, last)
	}
}

// TestKeyFile shows that the key file is private, and that a damaged one is never replaced
// silently.
func TestKeyFile(t *testing.T) {
	w := start(t)
	token := w.mint(t, identity.Claims{Audience: "aud"}, 0).Value
	name := filepath.Join(w.dir, "keys.json")
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	w.restart(t)
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if _, err := w.verify(t, token, "aud"); err != nil {
		t.Error("after a restart:", err)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Keys []struct{ Key struct{ D string } }
	}
	if err := json.Unmarshal(raw, &file); err != nil || file.Keys[0].Key.D == "" {
		t.Fatal(err)
	}
	printed := fmt.Sprintf("%v %+v %#v", w.Issuer, w.Issuer, w.Issuer)
	for _, bad := range []string{"", "{", string(raw[:len(raw)/2]), `{"format":2}`, `{"format":1,"keys":[{"from":"2026-01-01T00:00:00Z","key":{"kty":"oct","k":"AAAA","kid":"x"}}]}`} {
		if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := identity.Open(w.dir, w.opts)
		if carrel.KindOf(err) != carrel.Invalid || carrel.HintOf(err) == "" {
			t.Errorf("%.20q: %v", bad, err)
		}
		printed += fmt.Sprint(err)
	}
	if strings.Contains(printed, file.Keys[0].Key.D) {
		t.Error("a key is told")
	}
}

// TestHandler shows that wrong requests are refused.
func TestHandler(t *testing.T) {
	w := start(t)
	token := w.mint(t, identity.Claims{}, 0).Value
	for _, c := range []struct {
		name, method, path, body, kind, key string
		want                                int
	}{
		{"no key", "POST", identity.IntrospectPath, "token=" + token, "application/x-www-form-urlencoded", "", 401},
		{"a wrong key", "POST", identity.IntrospectPath, "token=" + token, "application/x-www-form-urlencoded", "x", 401},
		{"JSON", "POST", identity.IntrospectPath, `{"token":"x"}`, "application/json", apiKey, 415},
		{"no token", "POST", identity.IntrospectPath, "", "application/x-www-form-urlencoded", apiKey, 400},
		{"two tokens", "POST", identity.IntrospectPath, "token=a&token=b", "application/x-www-form-urlencoded", apiKey, 400},
		{"in the query", "POST", identity.IntrospectPath + "?token=" + token, "", "application/x-www-form-urlencoded", apiKey, 400},
		{"a huge form", "POST", identity.IntrospectPath, "token=" + strings.Repeat("x", 20<<10), "application/x-www-form-urlencoded", apiKey, 400},
		{"a GET", "GET", identity.IntrospectPath, "", "", apiKey, 405},
		{"another path", "GET", "/carrel/v1/identity/keys.json", "", "", "", 404},
		{"a change of keys", "PUT", identity.KeysPath, "{}", "application/json", apiKey, 405},
		{"discovery", "GET", identity.DiscoveryPath, "", "", "", 200},
		{"keys", "GET", identity.KeysPath, "", "", "", 200},
	} {
		req, _ := http.NewRequest(c.method, w.web.URL+c.path, strings.NewReader(c.body))
		req.Header.Set("Content-Type", c.kind)
		req.Header.Set("X-API-KEY", c.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %s", c.name, resp.Status)
		}
	}
}

// TestConcurrent hammers one issuer during a change of keys. No two tokens may be equal.
func TestConcurrent(t *testing.T) {
	w := start(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[any]bool{}
	for range 4 {
		wg.Go(func() {
			for range 25 {
				id := carrel.NewID()
				token, err := w.Sign(context.Background(), identity.Claims{Sandbox: id, Audience: "a"}, time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				got := w.Introspect(context.Background(), token.Value)
				if !got.Active {
					t.Error("not active")
					return
				}
				mu.Lock()
				ids[got.ID] = true
				mu.Unlock()
				if err := w.Revoke(t.Context(), id); err != nil || w.Introspect(context.Background(), token.Value).Active {
					t.Error("active", err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			w.clock.pass(time.Minute)
			w.keys(t, identity.KeysPath)
		}
	})
	wg.Wait()
	if len(ids) != 100 {
		t.Error(len(ids), "different IDs")
	}
}

func BenchmarkMint(b *testing.B) {
	i, err := identity.Open(b.TempDir(), identity.Options{Issuer: func() string { return "https://carrel.example.com" }})
	if err != nil {
		b.Fatal(err)
	}
	defer i.Close()
	id := carrel.NewID()
	for b.Loop() {
		if _, err := i.Sign(b.Context(), identity.Claims{Sandbox: id, Audience: "a"}, 0); err != nil {
			b.Fatal(err)
		}
	}
}

package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// liar is a provider whose tokens are as a test wants them.
type liar struct {
	*httptest.Server
	key    *ecdsa.PrivateKey
	token  string // the next ID token
	form   url.Values
	issuer string // what its document says
}

const client = "carrel-test"

func newLiar(t *testing.T) *liar {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{key: key}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": l.issuer, "authorization_endpoint": l.URL + "/auth",
			"token_endpoint": l.URL + "/token", "jwks_uri": l.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"none", "HS256", "ES256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		l.form = r.PostForm
		answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "expires_in": 60, "id_token": l.token})
	})
	l.Server = httptest.NewServer(mux)
	t.Cleanup(l.Close)
	l.issuer = l.URL
	return l
}

// sign makes a token with a key and an algorithm.
func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "1"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestTokens gets tokens of all kinds, of which one is right.
func TestTokens(t *testing.T) {
	l := newLiar(t)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a secret of thirty-two bytes, yes"
	p := New(Options{Issuer: l.URL, ClientID: client, Secret: secret, GroupsClaim: "groups"})
	now := time.Now()
	claims := func(change ...any) map[string]any {
		c := map[string]any{"iss": l.URL, "sub": "zoe", "aud": client, "nonce": "n", "iat": now.Unix(),
			"exp": now.Add(time.Minute).Unix(), "email": "zoe@example.com", "email_verified": true,
			"groups": []any{"dev", 7, "ops"}}
		for i := 0; i < len(change); i += 2 {
			c[change[i].(string)] = change[i+1]
		}
		return c
	}
	es := func(c map[string]any) string { return sign(t, jose.ES256, l.key, c) }
	raw, err := json.Marshal(claims())
	if err != nil {
		t.Fatal(err)
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(raw) + "."
	ask := func(token string) (email string, groups []string, err error) {
		l.token = token
		issuer, subject, email, groups, err := p.Finish(t.Context(), "http://127.0.0.1/callback", "the code", "n", "the verifier")
		if err == nil && (issuer != l.URL || subject != "zoe") {
			t.Errorf("issuer %q, subject %q", issuer, subject)
		}
		return email, groups, err
	}
	email, groups, err := ask(es(claims()))
	if err != nil || email != "zoe@example.com" || len(groups) != 2 {
		t.Fatalf("%q %v %v", email, groups, err)
	}
	if l.form.Get("code_verifier") != "the verifier" || l.form.Get("code") != "the code" {
		t.Errorf("asked with %v", l.form)
	}
	for name, v := range map[string]any{"not verified": false, "verified as a text": "true", "missing": nil} {
		if email, _, err := ask(es(claims("email_verified", v))); email != "" || err != nil {
			t.Errorf("an address that is %s counts: %q %v", name, email, err)
		}
	}
	for name, token := range map[string]string{
		"no token":                      "",
		"no signature":                  none,
		"the client secret's signature": sign(t, jose.HS256, []byte(secret), claims()),
		"another key's signature":       sign(t, jose.ES256, other, claims()),
		"another audience":              es(claims("aud", "another")),
		"no audience":                   es(claims("aud", nil)),
		"another party of several":      es(claims("aud", []string{client, "another"}, "azp", "another")),
		"another issuer":                es(claims("iss", "https://evil.example.com")),
		"an old token":                  es(claims("exp", now.Add(-time.Hour).Unix())),
		"another sign-in's nonce":       es(claims("nonce", "m")),
		"no nonce":                      es(claims("nonce", nil)),
		"no subject":                    es(claims("sub", "")),
		"a token that was cut":          es(claims())[:80],
	} {
		if _, _, err := ask(token); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestBegin looks at the address to which a browser is sent, and at a provider that is not the one
// that it should be.
func TestBegin(t *testing.T) {
	l := newLiar(t)
	p := New(Options{Issuer: l.URL, ClientID: client, Scopes: []string{"groups"}})
	l.issuer = "https://evil.example.com"
	if _, err := p.Begin(t.Context(), "http://127.0.0.1/callback", "s", "n", "v"); err == nil {
		t.Error("the document of another issuer is taken")
	}
	l.issuer = l.URL // a failure is not kept
	text, err := p.Begin(t.Context(), "http://127.0.0.1/callback", "s", "n", "the verifier")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Get("state") != "s" || q.Get("nonce") != "n" || q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" ||
		q.Get("code_challenge") == "" || q.Get("code_challenge") == "the verifier" || q.Get("scope") != "openid email profile groups" {
		t.Errorf("%v", q)
	}
}

package identity

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/carrel-dev/carrel"
)

// The routes of Handler. All but IntrospectPath are open to everybody, because a relying party has
// no key of ours.
const (
	DiscoveryPath  = "/.well-known/openid-configuration"
	KeysPath       = "/carrel/v1/identity/jwks"
	BundlePath     = "/carrel/v1/identity/bundle" // the same keys as a SPIFFE bundle
	IntrospectPath = "/carrel/v1/identity/introspect"
)

const (
	maxForm = 16 << 10
	// keysAge is how long keys may be cached. A key is published for weeks before it signs. So this
	// only bounds how long a removed key is still trusted.
	keysAge = 15 * time.Minute
)

// Handler serves the documents that relying parties need, and introspection. It answers other paths
// with 404.
func (i *Issuer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+DiscoveryPath, i.discovery)
	mux.HandleFunc("GET "+KeysPath, func(w http.ResponseWriter, _ *http.Request) { i.publish(w, "sig", false) })
	mux.HandleFunc("GET "+BundlePath, func(w http.ResponseWriter, _ *http.Request) { i.publish(w, "jwt-svid", true) })
	mux.HandleFunc("POST "+IntrospectPath, i.introspect)
	return mux
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	issuer, err := i.issuer()
	if err != nil {
		i.broken(w, err)
		return
	}
	answer(w, http.StatusOK, keysAge, map[string]any{
		"issuer":                                issuer,
		"jwks_uri":                              issuer + KeysPath,
		"introspection_endpoint":                issuer + IntrospectPath,
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{string(jose.ES256)},
		"scopes_supported":                      []string{"openid"},
		"claims_supported":                      []string{"iss", "sub", "aud", "iat", "nbf", "exp", "jti", "scope", "carrel"},
	})
}

// publish answers with the public keys.
func (i *Issuer) publish(w http.ResponseWriter, use string, bundle bool) {
	i.mu.Lock()
	_, err := i.keys.current(i.opts.Now()) // a new one may be due
	set, sequence := i.keys.public(use), i.keys.file.Sequence
	i.mu.Unlock()
	if err != nil {
		i.opts.Logger.Error("signing keys can't be renewed", "err", err) // those there are still verify
	}
	if !bundle {
		answer(w, http.StatusOK, keysAge, set)
		return
	}
	answer(w, http.StatusOK, keysAge, struct {
		jose.JSONWebKeySet
		Sequence int64 `json:"spiffe_sequence"`
		Refresh  int64 `json:"spiffe_refresh_hint"`
	}{set, sequence, int64(keysAge.Seconds())})
}

// introspect is RFC 7662.
func (i *Issuer) introspect(w http.ResponseWriter, r *http.Request) {
	var sees func(context.Context, carrel.ID) bool
	if i.opts.Authorize != nil {
		sees = i.opts.Authorize(r)
	}
	if sees == nil {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		answer(w, http.StatusUnauthorized, 0, oauthError{"invalid_token", "send the API key"})
		return
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/x-www-form-urlencoded" {
		answer(w, http.StatusUnsupportedMediaType, 0, oauthError{"invalid_request", "want a form"})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		answer(w, http.StatusBadRequest, 0, oauthError{"invalid_request", "the form can't be read"})
		return
	}
	if tokens := r.PostForm["token"]; len(tokens) != 1 || tokens[0] == "" {
		answer(w, http.StatusBadRequest, 0, oauthError{"invalid_request", "want one token"})
		return
	}
	told := i.Introspect(r.Context(), r.PostForm.Get("token"))
	if told.Active && !sees(r.Context(), told.Carrel.Sandbox) {
		told = Introspection{} // another project's token counts as worthless for this caller
	}
	answer(w, http.StatusOK, 0, told)
}

// Introspection says whether a token is active. For an inactive token it says nothing else.
type Introspection struct {
	Active    bool   `json:"active"`
	TokenType string `json:"token_type,omitempty"`
	*body
}

// Introspect verifies a token: its signature, its time, and that its sandbox still exists.
func (i *Issuer) Introspect(ctx context.Context, token string) Introspection {
	issuer, err := i.issuer()
	if err != nil || len(token) > maxForm {
		return Introspection{}
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil || len(parsed.Headers) != 1 {
		return Introspection{}
	}
	i.mu.Lock()
	key, known := i.keys.verifier(parsed.Headers[0].KeyID)
	i.mu.Unlock()
	if !known {
		return Introspection{}
	}
	b := &body{}
	if err := parsed.Claims(key, b); err != nil {
		return Introspection{}
	}
	if now := i.opts.Now(); b.Issuer != issuer || !now.Before(b.Expires.Time()) || now.Before(b.NotBefore.Time()) {
		return Introspection{}
	}
	id := b.Carrel.Sandbox
	i.mu.Lock()
	revoked := i.revoked.has(id)
	i.mu.Unlock()
	if revoked || (i.opts.Alive != nil && !i.opts.Alive(ctx, id)) {
		return Introspection{}
	}
	return Introspection{Active: true, TokenType: "Bearer", body: b}
}

// oauthError is an error in the form of RFC 6749.
type oauthError struct {
	Error       string `json:"error"`
	Description string `json:"error_description,omitempty"`
}

func (i *Issuer) broken(w http.ResponseWriter, err error) {
	i.opts.Logger.Error("identity", "err", err, "hint", carrel.HintOf(err))
	answer(w, http.StatusServiceUnavailable, 0, oauthError{"temporarily_unavailable", "the issuer is not set up"})
}

// answer answers with JSON that may be cached for age.
func answer(w http.ResponseWriter, status int, age time.Duration, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	if age > 0 {
		h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(age.Seconds())))
		h.Set("Access-Control-Allow-Origin", "*") // public keys are for everybody
	} else {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone: then nobody can be told
}

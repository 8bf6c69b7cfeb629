package identity

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/carrel-dev/carrel"
)

const (
	opOpen = "open identity"
	opMint = "mint token"

	// MaxLife is the longest life of a token.
	MaxLife = time.Hour
	// DefaultLife is the life of a token when the request gives none.
	DefaultLife = 15 * time.Minute

	keyLife = 30 * 24 * time.Hour
	// skew is how wrong the clocks of verifiers may be.
	skew = time.Minute

	maxAudience = 2 << 10
	maxScopes   = 64
	maxScope    = 256
	maxPart     = 128
)

// Options configures an Issuer.
type Options struct {
	// Issuer returns the URL under which relying parties reach the documents of Handler: a scheme,
	// a host and an optional path. It is called at each use, because a daemon may learn its port
	// late. Required.
	Issuer func() string
	// TrustDomain is the first part of SPIFFE IDs; "" is the issuer's host name.
	TrustDomain string
	// Alive reports whether a sandbox of any project still exists. With nil, every sandbox that was
	// not revoked counts as alive. Alive covers a daemon that died between a sandbox's end and its
	// revocation.
	Alive func(context.Context, carrel.ID) bool
	// Authorize says which sandboxes' tokens a request may ask about. It returns nil for a request
	// that may not ask at all. With a nil Authorize no request may.
	Authorize func(*http.Request) (sees func(context.Context, carrel.ID) bool)
	// Now returns the time; nil is time.Now.
	Now func() time.Time
	// Logger receives errors outside of requests; nil discards them.
	Logger *slog.Logger
}

// Claims are a token's claims about a sandbox.
type Claims struct {
	Sandbox carrel.ID
	// Org and Project own the sandbox; "" is "default".
	Org, Project string
	// Task is the sandbox's task. It is a part of the subject if a SPIFFE ID may contain it:
	// letters, digits, '.', '_' and '-'.
	Task       string
	Audience   string
	Scopes     []string
	Template   string
	Generation int
}

// Issuer mints tokens. It is safe for concurrent use. It must be the only one to use its directory.
type Issuer struct {
	opts   Options
	opened time.Time

	mu      sync.Mutex
	keys    *keyring
	revoked *revocations
	// minted is when the last token of each sandbox expires. Tokens from before opened are not
	// known.
	minted map[carrel.ID]time.Time
	swept  time.Time
	signer jose.Signer
	signID string // of the signer's key
}

// Open opens the issuer whose keys are in dir. It makes the directory if needed.
func Open(dir string, opts Options) (*Issuer, error) {
	if opts.Issuer == nil {
		return nil, &carrel.Error{Op: opOpen, Kind: carrel.Invalid, Field: "issuer", Err: errors.New("an issuer needs a URL")}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.TrustDomain != "" && !isTrustDomain(opts.TrustDomain) {
		return nil, &carrel.Error{Op: opOpen, Kind: carrel.Invalid, Field: "trust-domain", Err: fmt.Errorf("%q is not a trust domain", opts.TrustDomain),
			Hint: "such as example.com: lower-case letters, digits, '.', '-' and '_'"}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &carrel.Error{Op: opOpen, Kind: carrel.Internal, Err: err}
	}
	i := &Issuer{opts: opts, opened: opts.Now(), minted: map[carrel.ID]time.Time{}}
	var err error
	if i.keys, err = openKeys(dir, keyLife, MaxLife+2*skew); err != nil {
		return nil, err
	}
	if _, err = i.keys.current(i.opened); err != nil {
		return nil, err
	}
	if i.revoked, err = openRevoked(dir, i.opened); err != nil {
		return nil, &carrel.Error{Op: opOpen, Kind: carrel.Internal, Err: err}
	}
	return i, nil
}

// Close closes the files.
func (i *Issuer) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.revoked.file.Close()
}

// Format implements fmt.Formatter, so that no verb prints a key.
func (i *Issuer) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "issuer(%s)", i.opts.Issuer()) }

// body is a token's content. The audience is a text and not a list of one, because some relying
// parties accept only that.
type body struct {
	Issuer    string          `json:"iss"`
	Subject   string          `json:"sub"`
	Audience  string          `json:"aud"`
	Expires   jwt.NumericDate `json:"exp"`
	NotBefore jwt.NumericDate `json:"nbf"`
	IssuedAt  jwt.NumericDate `json:"iat"`
	ID        string          `json:"jti"`
	Scope     string          `json:"scope,omitempty"`
	Carrel    workload        `json:"carrel"`
}

// workload is the claim "carrel".
type workload struct {
	Sandbox    carrel.ID `json:"sandbox"`
	Org        string    `json:"org"`
	Project    string    `json:"project"`
	Task       string    `json:"task,omitempty"`
	Template   string    `json:"template,omitempty"`
	Generation int       `json:"generation,omitempty"`
}

// TaskKey is the metadata key for a sandbox's task.
const TaskKey = "task"

// Mint makes one of the tokens of a sandbox, with the default life. Its claims come from the
// service's record of the sandbox. Errors as of Sign.
func (i *Issuer) Mint(ctx context.Context, sb carrel.Sandbox, spec carrel.TokenSpec) (carrel.Token, error) {
	return i.Sign(ctx, Claims{Sandbox: sb.ID, Project: sb.Project, Task: sb.Metadata[TaskKey], Audience: spec.Audience, Scopes: spec.Scopes,
		Template: sb.Template, Generation: sb.Generation}, 0)
}

// Sign makes a token that lives for ttl. 0 is DefaultLife; more than MaxLife is Invalid. Errors:
// Invalid; Forbidden for a sandbox that has ended.
func (i *Issuer) Sign(ctx context.Context, c Claims, ttl time.Duration) (carrel.Token, error) {
	if ttl == 0 {
		ttl = DefaultLife
	}
	if c.Org == "" {
		c.Org = "default"
	}
	if c.Project == "" {
		c.Project = "default"
	}
	if err := c.check(ttl); err != nil {
		return carrel.Token{}, err
	}
	issuer, err := i.issuer()
	if err != nil {
		return carrel.Token{}, err
	}
	if i.opts.Alive != nil && !i.opts.Alive(ctx, c.Sandbox) {
		return carrel.Token{}, ended(c.Sandbox)
	}
	now := i.opts.Now()
	// A JWT counts whole seconds, so the returned time is the one in the token.
	expires := now.Add(ttl).Truncate(time.Second)
	signer, err := i.begin(c.Sandbox, now, expires)
	if err != nil {
		return carrel.Token{}, err
	}
	text, err := jwt.Signed(signer).Claims(body{
		Issuer: issuer, Subject: c.subject(i.trustDomain(issuer)), Audience: c.Audience, ID: randomText(),
		IssuedAt: *jwt.NewNumericDate(now), NotBefore: *jwt.NewNumericDate(now.Add(-skew)), Expires: *jwt.NewNumericDate(expires),
		Scope:  strings.Join(c.Scopes, " "),
		Carrel: workload{c.Sandbox, c.Org, c.Project, c.Task, c.Template, c.Generation},
	}).Serialize()
	if err != nil {
		return carrel.Token{}, &carrel.Error{Op: opMint, Kind: carrel.Internal, ID: c.Sandbox, Err: err}
	}
	return carrel.Token{Value: text, Expires: expires.UTC()}, nil
}

// begin refuses sandboxes that have ended, remembers the token's expiry, and returns the signer.
func (i *Issuer) begin(id carrel.ID, now, expires time.Time) (jose.Signer, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.revoked.has(id) {
		return nil, ended(id)
	}
	k, err := i.keys.current(now)
	if err != nil {
		return nil, err
	}
	if i.signer == nil || i.signID != k.Key.KeyID {
		// JWT-SVIDs may have only the headers alg, kid and typ.
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: k.Key}, (&jose.SignerOptions{}).WithType("JWT"))
		if err != nil {
			return nil, &carrel.Error{Op: opMint, Kind: carrel.Internal, Err: err}
		}
		i.signer, i.signID = s, k.Key.KeyID
	}
	if expires.After(i.minted[id]) {
		i.minted[id] = expires
	}
	i.sweep(now)
	return i.signer, nil
}

// sweep forgets expired tokens and their revocations. The caller holds i.mu.
func (i *Issuer) sweep(now time.Time) {
	if now.Sub(i.swept) < time.Minute && !now.Before(i.swept) {
		return
	}
	i.swept = now
	for id, until := range i.minted {
		if until.Add(skew).Before(now) {
			delete(i.minted, id)
		}
	}
	for id, until := range i.revoked.byID {
		if until.Before(now) {
			delete(i.revoked.byID, id)
		}
	}
}

// Revoke must be called when a sandbox ends. From then on none of its tokens is active, and it gets
// no more. It needs a write if unexpired tokens may exist.
func (i *Issuer) Revoke(_ context.Context, id carrel.ID) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.revoked.has(id) {
		return nil
	}
	now := i.opts.Now()
	until := now.Add(MaxLife + 2*skew)
	i.sweep(now)
	_, known := i.minted[id]
	if !known && now.Sub(i.opened) > MaxLife+2*skew {
		i.revoked.byID[id] = until // only this process needs to remember it
		return nil
	}
	if err := i.revoked.add(id, until, now); err != nil {
		return &carrel.Error{Op: "revoke tokens", Kind: carrel.Internal, ID: id, Err: err}
	}
	return nil
}

// issuer returns the issuer's URL.
func (i *Issuer) issuer() (string, error) {
	text := strings.TrimRight(i.opts.Issuer(), "/")
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", &carrel.Error{Op: opMint, Kind: carrel.Unavailable, Field: "issuer", Err: fmt.Errorf("%q is not an issuer's URL", text),
			Hint: "start the daemon with --issuer https://carrel.example.com"}
	}
	return text, nil
}

// trustDomain returns the trust domain, by default the issuer's host.
func (i *Issuer) trustDomain(issuer string) string {
	if i.opts.TrustDomain != "" {
		return i.opts.TrustDomain
	}
	if u, err := url.Parse(issuer); err == nil {
		if host := strings.ToLower(u.Hostname()); isTrustDomain(host) {
			return host
		}
	}
	return "carrel.local" // an IPv6 address can't be one
}

func isTrustDomain(s string) bool {
	return s != "" && len(s) <= 255 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == ""
}

// subject is the SPIFFE ID.
func (c Claims) subject(trustDomain string) string {
	s := "spiffe://" + trustDomain + "/org/" + c.Org + "/project/" + c.Project + "/sandbox/" + string(c.Sandbox)
	if isSegment(c.Task) {
		s += "/task/" + c.Task
	}
	return s
}

// isSegment reports whether a text may be a segment of a SPIFFE ID.
func isSegment(s string) bool {
	return s != "" && len(s) <= maxPart && s != "." && s != ".." &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == ""
}

// check checks the claims of a token.
func (c Claims) check(ttl time.Duration) error {
	bad := func(field, format string, args ...any) error {
		return &carrel.Error{Op: opMint, Kind: carrel.Invalid, ID: c.Sandbox, Field: field, Err: fmt.Errorf(format, args...)}
	}
	if _, err := carrel.ParseID(string(c.Sandbox)); err != nil {
		return &carrel.Error{Op: opMint, Kind: carrel.Invalid, Field: "sandbox", Err: err}
	}
	switch {
	case ttl < time.Second || ttl > MaxLife:
		return bad("ttl", "%v is not between 1s and %v", ttl, MaxLife)
	case !isSegment(c.Org):
		return bad("org", "%q can't be a part of a subject", c.Org)
	case !isSegment(c.Project):
		return bad("project", "%q can't be a part of a subject", c.Project)
	}
	return checkSpec(carrel.TokenSpec{Audience: c.Audience, Scopes: c.Scopes})
}

// checkSpec checks the audience and the scopes of a token.
func checkSpec(s carrel.TokenSpec) error {
	bad := func(field, format string, args ...any) error {
		return &carrel.Error{Op: opMint, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
	}
	if s.Audience == "" || len(s.Audience) > maxAudience || !utf8.ValidString(s.Audience) || strings.ContainsFunc(s.Audience, unicode.IsControl) {
		return bad("audience", "want 1 to %d bytes of printable text", maxAudience)
	}
	if len(s.Scopes) > maxScopes {
		return bad("scopes", "more than %d", maxScopes)
	}
	for _, scope := range s.Scopes {
		// RFC 6749, section 3.3.
		if scope == "" || len(scope) > maxScope || strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			return bad("scopes", "%q is not a scope", scope)
		}
	}
	return nil
}

func ended(id carrel.ID) error {
	return &carrel.Error{Op: opMint, Kind: carrel.Forbidden, ID: id, Err: errors.New("the sandbox has ended")}
}

// randomText returns a random text that makes each token unique.
func randomText() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

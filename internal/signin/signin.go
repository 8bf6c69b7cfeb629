package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/attempts"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/state"
)

// The paths of the door. Those of the device flow are for programs, the others for browsers.
const (
	LoginPath    = "/login"
	providerPath = LoginPath + "/provider"
	CallbackPath = LoginPath + "/callback"
	logoutPath   = "/logout"
	passwordPath = "/password"
	DevicePath   = "/device"
	confirmPath  = DevicePath + "/confirm"

	DeviceAuthPath = "/carrel/v1/login/device"
	TokenPath      = "/carrel/v1/login/token"
	RevokePath     = "/carrel/v1/login/revoke"
)

// People proves who somebody is, and makes sessions. Package access implements it.
type People interface {
	// Password returns the person with a name and a password. Errors: Unauthenticated, Exhausted,
	// Unavailable.
	Password(ctx context.Context, name, password string) (person string, err error)
	// Provided returns the person whom the identity provider names. An address is only given if the
	// provider has verified it. Errors: Forbidden, Unavailable.
	Provided(ctx context.Context, issuer, subject, email string, groups []string) (person string, err error)
	// Begin makes a session, and returns its secret and its end.
	Begin(ctx context.Context, person string, kind state.SessionKind, label string) (secret string, ends time.Time, err error)
	// End ends the session with a secret; it is no error if there is none.
	End(ctx context.Context, secret string) error
	// Who returns the person of a browser's session, and the session's ID.
	Who(secret string) (p carrel.Person, session string, ok bool)
	// FormToken is what forms of a session carry.
	FormToken(secret string) string
}

// Cookies are the browser's cookies for sessions. Package access implements it, which also reads
// them at the API.
type Cookies interface {
	SessionOf(r *http.Request) (secret string)
	SessionCookie(secret string, r *http.Request) *http.Cookie
}

// Provider is an identity provider. Package provider implements it.
type Provider interface {
	// Begin returns the address where a person signs in.
	Begin(ctx context.Context, callback, state, nonce, verifier string) (address string, err error)
	// Finish exchanges the code of the answer, and checks the token. email is "" unless the provider
	// has verified it.
	Finish(ctx context.Context, callback, code, nonce, verifier string) (issuer, subject, email string, groups []string, err error)
	// Issuer is the provider's own name.
	Issuer() string
}

// Options configures a Door.
type Options struct {
	People  People
	Cookies Cookies
	// Passwords changes a person's own one.
	Passwords carrel.Persons
	// Provider is the identity provider; nil is none.
	Provider Provider
	// PublicURL returns the address at which browsers reach the daemon.
	PublicURL func() string
	// Devices keep the command lines that wait; nil keeps them in memory.
	Devices Devices
	// Seal signs what a browser keeps on its way to the provider. Doors that serve the same browsers
	// have the same one; nil makes one.
	Seal []byte
	// Interval is the shortest pause between two questions of a command line; 0 is 5 seconds.
	Interval time.Duration
	// Journal takes who signed in; nil is none.
	Journal request.Journal
	Log     *slog.Logger
}

// Door answers the requests of people who sign in. It is safe for concurrent use.
type Door struct {
	opts     Options
	mux      *http.ServeMux
	patterns []string
	seal     [32]byte // signs what a browser keeps between its way to the provider and back
	codes    *attempts.Counter
	asks     *attempts.Counter
}

// New returns the door.
func New(opts Options) *Door {
	if opts.Interval == 0 {
		opts.Interval = 5 * time.Second
	}
	if opts.Devices == nil {
		opts.Devices = &memory{all: map[string]*kept{}}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	d := &Door{opts: opts, mux: http.NewServeMux(),
		codes: attempts.New(10, time.Minute), asks: attempts.New(20, 10*time.Second)}
	if opts.Seal != nil {
		d.seal = sha256.Sum256(opts.Seal)
	} else {
		_, _ = rand.Read(d.seal[:]) // never fails: crypto/rand aborts the process instead
	}
	for pattern, h := range map[string]page{
		"GET " + LoginPath: d.login, "POST " + LoginPath: d.loginWith,
		"GET " + providerPath: d.toProvider, "GET " + CallbackPath: d.callback,
		"POST " + logoutPath:  d.logout,
		"GET " + passwordPath: d.password, "POST " + passwordPath: d.setPassword,
		"GET " + DevicePath: d.device, "POST " + DevicePath: d.deviceCode,
		"POST " + confirmPath:    d.confirm,
		"POST " + DeviceAuthPath: d.authorizeDevice, "POST " + TokenPath: d.token,
		"POST " + RevokePath: d.revoke,
	} {
		d.patterns = append(d.patterns, pattern)
		d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, h) })
	}
	return d
}

// Patterns lists the routes in the form of [http.ServeMux].
func (d *Door) Patterns() []string { return slices.Sorted(slices.Values(d.patterns)) }

// page is the code of a route. It answers itself, or returns an error for a page.
type page func(w http.ResponseWriter, r *http.Request) error

// maxForm bounds a form, in bytes.
const maxForm = 16 << 10

// Wrap answers what is for this door, and passes the rest to next.
func (d *Door) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := d.mux.Handler(r); pattern != "" {
			d.mux.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownOrigin refuses what a page of another origin sends.
var ownOrigin = http.NewCrossOriginProtection()

func (d *Door) serve(w http.ResponseWriter, r *http.Request, h page) {
	harden(w.Header())
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := ownOrigin.Check(r); err != nil {
		d.fail(w, r, &carrel.Error{Kind: carrel.Forbidden, Field: "Origin",
			Err: errOrigin})
		return
	}
	if err := r.ParseForm(); err != nil {
		d.fail(w, r, &carrel.Error{Kind: carrel.Invalid, Err: errForm})
		return
	}
	if err := h(w, r); err != nil {
		d.fail(w, r, err)
	}
}

// note gives an operation to the audit trail.
func (d *Door) note(r *http.Request, c carrel.Caller, op string, status int) {
	if d.opts.Journal == nil {
		return
	}
	o := request.Operation{Kind: request.Refused(carrel.TrailChange, status), Caller: c, Op: op,
		Status: status}
	if info := request.Of(r.Context()); info != nil {
		o.From, o.Request = info.From, info.ID
	}
	d.opts.Journal.Note(o)
}

// signedIn is a request of a browser with a session.
type signedIn struct {
	carrel.Person
	secret, token, session string
}

// who returns the person who asks.
func (d *Door) who(r *http.Request) (signedIn, bool) {
	secret := d.opts.Cookies.SessionOf(r)
	if secret == "" {
		return signedIn{}, false
	}
	p, session, ok := d.opts.People.Who(secret)
	return signedIn{p, secret, d.opts.People.FormToken(secret), session}, ok
}

// caller is the person as the author of an operation.
func (s signedIn) caller() carrel.Caller {
	return carrel.Caller{Key: "person:" + s.Name, Person: s.ID, Session: s.session, Role: carrel.RolePerson}
}

// mustBe returns the person who sends a form. Errors: Unauthenticated, Forbidden.
func (d *Door) mustBe(r *http.Request) (signedIn, error) {
	s, ok := d.who(r)
	if !ok {
		return s, &carrel.Error{Kind: carrel.Unauthenticated, Err: errNotSignedIn}
	}
	if !hmac.Equal([]byte(r.PostForm.Get("token")), []byte(s.token)) {
		return s, &carrel.Error{Kind: carrel.Forbidden, Field: "token", Err: errToken}
	}
	return s, nil
}

// begin makes a session and sends the browser on. A session that was there ends: whoever knew its
// secret does not know the new one.
func (d *Door) begin(w http.ResponseWriter, r *http.Request, person, next string) error {
	secret, _, err := d.opts.People.Begin(r.Context(), person, state.BrowserSession, "")
	if err != nil {
		return err
	}
	if old := d.opts.Cookies.SessionOf(r); old != "" {
		if err := d.opts.People.End(r.Context(), old); err != nil {
			return err
		}
	}
	http.SetCookie(w, d.opts.Cookies.SessionCookie(secret, r))
	c := carrel.Caller{Person: person, Role: carrel.RolePerson}
	if p, session, ok := d.opts.People.Who(secret); ok {
		c.Key, c.Session = "person:"+p.Name, session
	}
	d.note(r, c, "sign in", http.StatusOK)
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

// nextPath returns where a browser goes after it signed in. It is always a path of this daemon:
// everything else becomes the page that says who is signed in.
func nextPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || text == "" || text[0] != '/' || strings.HasPrefix(u.Path, "//") || u.Scheme != "" ||
		u.Host != "" || u.User != nil || u.Opaque != "" || strings.HasPrefix(text, "//") ||
		strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == '\\' || c >= 0x7f }) {
		return LoginPath
	}
	return text
}

// random returns a text of 256 random bits.
func random() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// mac signs a text that a browser keeps for us.
func (d *Door) mac(text string) string {
	m := hmac.New(sha256.New, d.seal[:])
	m.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// logout ends the session.
func (d *Door) logout(w http.ResponseWriter, r *http.Request) error {
	s, err := d.mustBe(r)
	if err != nil {
		return err
	}
	if err := d.opts.People.End(r.Context(), s.secret); err != nil {
		return err
	}
	http.SetCookie(w, d.opts.Cookies.SessionCookie("", r))
	d.note(r, s.caller(), "sign out", http.StatusOK)
	http.Redirect(w, r, LoginPath, http.StatusSeeOther)
	return nil
}

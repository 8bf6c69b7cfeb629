package console

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/carrel-dev/carrel"
)

// The paths of the console. Everything else below Path is the page, which reads the rest itself.
const (
	Path        = "/console"
	SessionPath = Path + "/session"
	assetsPath  = Path + "/assets/"
)

// Sessions knows the sessions of people's browsers. Packages access and signin make them.
type Sessions interface {
	// SessionOf returns the secret of the session that a request shows; "" for none.
	SessionOf(r *http.Request) string
	// Who returns the person of a session. ok is false for one that ended.
	Who(secret string) (p carrel.Person, session string, ok bool)
	// FormToken returns the token that requests with this session's cookie must carry.
	FormToken(secret string) string
}

// Options configures a Handler.
type Options struct {
	// Sessions are the sessions of people; nil is none: then people sign in with an API key.
	Sessions Sessions
	// Provider says that people can sign in at an identity provider.
	Provider bool
	// PublicURL returns the address at which browsers reach the daemon; nil is none.
	PublicURL func() string
	// Domain is the end of sandboxes' host names, perhaps with a port; "" is none. Ports are then
	// shown below localhost, to browsers on the same machine.
	Domain string
	// Names are more host names at which the page may be served.
	Names []string
}

// Handler serves the console. It is safe for concurrent use.
type Handler struct {
	opts Options
	page []string // the page, split where nonces go
}

// New returns the console.
func New(opts Options) *Handler {
	return &Handler{opts: opts, page: pageParts()}
}

// Wrap answers what is for the console, and passes the rest to next.
func (h *Handler) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == Path || strings.HasPrefix(r.URL.Path, Path+"/") {
			h.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the console is only read", http.StatusMethodNotAllowed)
	case !h.serves(r.Host):
		http.Error(w, "The console is not served at this host name.\n"+
			"hint: name it with carrel serve --public-url, or use the daemon's address",
			http.StatusMisdirectedRequest)
	case r.URL.Path == Path:
		http.Redirect(w, r, Path+"/", http.StatusPermanentRedirect)
	case r.URL.Path == SessionPath:
		h.session(w, r)
	case strings.HasPrefix(r.URL.Path, assetsPath):
		serveAsset(w, r, strings.TrimPrefix(r.URL.Path, assetsPath))
	default:
		h.index(w, r)
	}
}

// harden sets what each answer has.
func harden(head http.Header) {
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Referrer-Policy", "same-origin") // with none, forms would have no origin
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), usb=(), payment=()")
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
	head.Set("Cache-Control", "no-store")
}

// serves reports whether the page is served at a host name. An address has no name that another
// site could have made for it, and browsers resolve localhost by themselves.
func (h *Handler) serves(host string) bool {
	name := hostName(host)
	if _, err := netip.ParseAddr(name); err == nil || local(name) {
		return true
	}
	names := h.opts.Names
	if h.opts.PublicURL != nil {
		if u, err := url.Parse(h.opts.PublicURL()); err == nil && u.Hostname() != "" {
			names = append(names[:len(names):len(names)], u.Hostname())
		}
	}
	if d := hostName(h.opts.Domain); d != "" {
		names = append(names[:len(names):len(names)], d, "api."+d)
	}
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// hostName returns a host without its port, in small letters.
func hostName(host string) string {
	return strings.ToLower((&url.URL{Host: host}).Hostname())
}

// local reports whether a name is this machine's, in every browser.
func local(name string) bool { return name == "localhost" || strings.HasSuffix(name, ".localhost") }

// previews returns the source expression for the hosts of sandboxes; "" is none.
func (h *Handler) previews(host string) string {
	domain, name := h.opts.Domain, hostName(host)
	if domain == "" {
		if a, err := netip.ParseAddr(name); !local(name) && (err != nil || !a.IsLoopback()) {
			return ""
		}
		domain = "localhost"
	}
	if _, port, err := net.SplitHostPort(host); err == nil && (&url.URL{Host: domain}).Port() == "" {
		domain = net.JoinHostPort(domain, port)
	}
	return " *." + domain
}

// nonce returns a text that nobody guesses.
func nonce() string {
	var b [18]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// index serves the page. Its scripts and styles have nonces, so no other script or style runs, even
// if a program in a sandbox gets markup into the page. The nonce for styles is known to the page,
// because the terminal and the editor make style sheets.
func (h *Handler) index(w http.ResponseWriter, r *http.Request) {
	script, style := nonce(), nonce()
	frames := h.previews(r.Host)
	if frames == "" {
		frames = " 'none'"
	}
	head := w.Header()
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Security-Policy", strings.Join([]string{
		"default-src 'none'",
		"script-src 'nonce-" + script + "'",
		"style-src 'nonce-" + style + "'",
		"img-src 'self' blob:",
		"connect-src 'self'",
		"frame-src" + frames,
		"form-action 'self'",
		"base-uri 'none'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
		"trusted-types 'none'",
	}, "; "))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = io.WriteString(w, fill(h.page, script, style)) // a client that hung up needs no answer
}

// ownPage refuses requests of pages of other origins, also those that only read.
var ownPage = http.NewCrossOriginProtection()

// signedIn is who uses the console, and how people sign in.
type signedIn struct {
	// Person is the name of the person whose session the browser has; "" for none.
	Person string `json:"person,omitempty"`
	// Form is the value of the header Carrel-Form with that session.
	Form string `json:"form,omitempty"`
	// People says that there is a form for people, and Provider that there is an identity provider.
	People   bool `json:"people"`
	Provider bool `json:"provider"`
}

// session tells the page who uses it.
func (h *Handler) session(w http.ResponseWriter, r *http.Request) {
	ask := *r
	ask.Method = http.MethodPost
	if err := ownPage.Check(&ask); err != nil {
		http.Error(w, "a page of another origin asked", http.StatusForbidden)
		return
	}
	answer := signedIn{People: h.opts.Sessions != nil, Provider: h.opts.Provider}
	if h.opts.Sessions != nil {
		if secret := h.opts.Sessions.SessionOf(r); secret != "" {
			if p, _, ok := h.opts.Sessions.Who(secret); ok {
				answer.Person, answer.Form = p.Name, h.opts.Sessions.FormToken(secret)
			}
		}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(answer)
}

package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// The names of the cookie that holds the secret of a browser's session. A browser takes one whose
// name begins with __Host- only over TLS, and from no other host. So a sandbox's page, on a host
// below the daemon's, can't put its own in place of it.
const (
	cookieTLS   = "__Host-carrel"
	cookiePlain = "carrel_session"
)

// HeaderForm is the header with which a page says that it is one of ours. See [FormToken].
const HeaderForm = "Carrel-Form"

// caller returns the person who signed in, without a project.
func (s *liveSession) caller(now time.Time) (carrel.Caller, proof, error) {
	if err := s.fault(now); err != nil {
		return carrel.Caller{}, proof{known: true}, err
	}
	s.touch(now)
	rec, person := s.rec.Load(), s.person.rec.Load().Person
	return carrel.Caller{Key: "person:" + person.Name, Person: person.ID, Session: rec.ID,
			Role: carrel.RolePerson},
		proof{known: true, ends: []context.Context{s.ctx}, session: s}, nil
}

// inProject returns the person as a member of the project that a request names, or of the only one.
// Errors: Invalid, Forbidden.
func inProject(c carrel.Caller, p proof, r *http.Request) (carrel.Caller, proof, error) {
	grants := *p.session.person.grants.Load()
	if host := hostProject(r.Host); host != "" {
		for name := range grants {
			if strings.EqualFold(name, host) || carrel.TeamID(name) == host {
				return with(c, p, grants[name])
			}
		}
		return c, proof{}, noMember("Host", host)
	}
	named := r.Header.Values(headerTenant)
	switch {
	case len(named) > 1:
		_, err := actFor(c, named)
		return c, proof{}, err
	case len(named) == 1 && named[0] != "":
		if err := carrel.CheckProject(named[0]); err != nil {
			return c, proof{}, &carrel.Error{Kind: carrel.Invalid, Field: headerTenant,
				Err: errors.Unwrap(err)}
		}
		if g := grants[named[0]]; g != nil {
			return with(c, p, g)
		}
		return c, proof{}, noMember(headerTenant, named[0])
	case len(grants) == 1:
		for _, g := range grants {
			return with(c, p, g)
		}
	}
	return c, p, nil
}

// with returns the caller with a right, and everything that it opens ends with that right.
func with(c carrel.Caller, p proof, g *grant) (carrel.Caller, proof, error) {
	c.Project, c.Role = g.project, g.scope.Role()
	p.ends = append(p.ends, g.ctx)
	return c, p, nil
}

// noMember is the error for a project that is not the person's, whether there is one or not.
func noMember(field, project string) error {
	return &carrel.Error{Kind: carrel.Forbidden, Field: field,
		Err:  fmt.Errorf("you are no member of a project %q", clip(project)),
		Hint: "'carrel whoami' tells your projects"}
}

// SecureCookies says whether browsers reach the daemon over TLS, also where something else than the
// daemon ends it. Then only the cookie counts that no other host can set.
func (a *Authenticator) SecureCookies(yes bool) { a.secure.Store(yes) }

// cookieName returns the name of the cookie for a request.
func (a *Authenticator) cookieName(r *http.Request) string {
	if r.TLS != nil || a.secure.Load() {
		return cookieTLS
	}
	return cookiePlain
}

// SessionOf returns the secret of the browser's session that a request shows; "" for none.
func (a *Authenticator) SessionOf(r *http.Request) string {
	c, err := r.Cookie(a.cookieName(r))
	if err != nil {
		return ""
	}
	return c.Value
}

// SessionCookie returns the cookie with which a browser keeps a session's secret. With a secret of
// "" the browser forgets it.
func (a *Authenticator) SessionCookie(secret string, r *http.Request) *http.Cookie {
	c := &http.Cookie{Name: a.cookieName(r), Value: secret, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteLaxMode}
	c.Secure = c.Name == cookieTLS
	if secret == "" {
		c.MaxAge = -1
	}
	return c
}

// sameOrigin refuses requests that a page of another host sent. A sandbox's page is one: its host is
// below the daemon's, so that SameSite does not keep the cookie back.
var sameOrigin = http.NewCrossOriginProtection()

// byCookie identifies a person by a browser's session. shown says that the request shows one. A
// page of another origin can do nothing with it, not even read. What changes something must also
// carry the session's form token.
func (a *Authenticator) byCookie(r *http.Request) (_ carrel.Caller, _ proof, shown bool, err error) {
	secret, d := a.SessionOf(r), a.directory.Load()
	if secret == "" || d == nil {
		return carrel.Caller{}, proof{}, false, nil
	}
	s := d.session(secret, state.BrowserSession)
	if s == nil {
		return carrel.Caller{}, proof{}, true, errSignedOut
	}
	c, p, err := s.caller(time.Now())
	if err != nil {
		return carrel.Caller{}, proof{}, true, err
	}
	ask := *r
	ask.Method = http.MethodPost // also for what only reads
	if err := sameOrigin.Check(&ask); err != nil {
		return carrel.Caller{}, proof{}, true, &carrel.Error{Kind: carrel.Forbidden, Field: "Origin",
			Err: errors.New("a page of another origin sent this with your session")}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead &&
		!sameToken(r.Header.Get(HeaderForm), FormToken(secret)) {
		return carrel.Caller{}, proof{}, true, &carrel.Error{Kind: carrel.Forbidden, Field: HeaderForm,
			Err: errors.New("the session's form token is missing or wrong")}
	}
	c, p, err = inProject(c, p, r)
	return c, p, true, err
}

// stripCookies removes our cookies from a request that goes into a sandbox.
func stripCookies(h http.Header) {
	lines := h.Values("Cookie")
	if !strings.Contains(strings.Join(lines, ";"), cookieTLS) &&
		!strings.Contains(strings.Join(lines, ";"), cookiePlain) {
		return
	}
	h.Del("Cookie")
	for _, line := range lines {
		var kept []string
		for pair := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if name != cookieTLS && name != cookiePlain {
				kept = append(kept, strings.TrimSpace(pair))
			}
		}
		if len(kept) > 0 {
			h.Add("Cookie", strings.Join(kept, "; "))
		}
	}
}

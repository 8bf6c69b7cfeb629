package front

import (
	"net/http"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/console"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/signin"
)

// openSignIns opens the people, the pages on which they sign in, and the console. People and sessions are in the
// fleet's database. What a browser keeps on its way to the provider is good at every front. Only a
// command line's codes are one front's own.
func (f *Front) openSignIns(people *access.People) (carrel.Persons, func(http.Handler) http.Handler, error) {
	s := f.cfg.SignIn
	if err := s.Check(); err != nil {
		return nil, nil, err
	}
	provider, err := daemon.OpenProvider(s)
	if err != nil {
		return nil, nil, err
	}
	// Fronts don't tell each other when a session was used: one that is used ends with its time alone.
	signIns := access.NewSignIns(f.directory, access.Lifetimes{Browser: s.Browser, Idle: s.Browser, Token: s.Token})
	signIns.UseGroups(daemon.GroupRoles(s))
	persons := access.NewPersons(people, signIns)
	f.callers.SecureCookies(strings.HasPrefix(f.publicURL(), "https://"))
	door := signin.New(signin.Options{People: signIns, Cookies: f.callers, Passwords: persons, Provider: provider,
		PublicURL: f.publicURL, Seal: derived(f.authority.Key, "carrel fleet sign-in"), Journal: f.journal(), Log: f.log})
	page := daemon.Console(f.callers, signIns, console.Options{Provider: provider != nil, PublicURL: f.publicURL})
	return persons, func(next http.Handler) http.Handler { return page(door.Wrap(next)) }, nil
}

// publicURL is where browsers reach the fronts.
func (f *Front) publicURL() string {
	if f.cfg.SignIn.PublicURL != "" {
		return f.cfg.SignIn.PublicURL
	}
	return f.url
}

package front

import (
	"context"
	"net/http"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/console"
	"github.com/carrel-dev/carrel/internal/daemon"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/signin"
)

// openSignIns opens the people, the pages on which they sign in, and the console. People and sessions are in the
// fleet's database, and so are the command lines that wait. What a browser keeps on its way to the
// provider is good at every front.
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
		PublicURL: f.publicURL, Devices: devices{f.registry}, Seal: derived(f.authority.Key, "carrel fleet sign-in"), Journal: f.journal(), Log: f.log})
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

// devices are the command lines that wait at any front.
type devices struct{ logins fleet.Logins }

// Add implements signin.Devices.
func (d devices) Add(ctx context.Context, dev signin.Device, most int) error {
	return d.logins.AddLogin(ctx, fleet.Login(dev), most)
}

// Change implements signin.Devices.
func (d devices) Change(ctx context.Context, hash, code string, fn func(*signin.Device) bool) error {
	return d.logins.ChangeLogin(ctx, hash, code, func(l *fleet.Login) bool {
		dev := signin.Device(*l)
		keep := fn(&dev)
		*l = fleet.Login(dev)
		return keep
	})
}

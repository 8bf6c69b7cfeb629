package daemon

import (
	"net/http"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/console"
)

// browsers knows the sessions of people's browsers, for the console.
type browsers struct {
	callers *access.Authenticator
	signIns *access.SignIns
}

var _ console.Sessions = browsers{}

// SessionOf implements console.Sessions.
func (b browsers) SessionOf(r *http.Request) string { return b.callers.SessionOf(r) }

// Who implements console.Sessions.
func (b browsers) Who(secret string) (carrel.Person, string, bool) { return b.signIns.Who(secret) }

// FormToken implements console.Sessions.
func (b browsers) FormToken(secret string) string { return b.signIns.FormToken(secret) }

// Console returns what wraps a control plane in the web page for people. Fronts have the same page.
func Console(callers *access.Authenticator, signIns *access.SignIns, opts console.Options) func(http.Handler) http.Handler {
	opts.Sessions = browsers{callers, signIns}
	return console.New(opts).Wrap
}

// console wraps the control plane in the web page for people.
func (d *Daemon) console(next http.Handler) http.Handler {
	return Console(d.callers, d.parts.SignIns, console.Options{Provider: d.provider != nil,
		PublicURL: d.publicURL, Domain: d.cfg.Domain, Names: d.cfg.Ingress.ACMEDomains})(next)
}

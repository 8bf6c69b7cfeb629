package assembly

import "github.com/carrel-dev/carrel/internal/access"

// openSignIns opens the people and their sessions.
func (a *Assembly) openSignIns() {
	s := a.cfg.SignIn
	a.SignIns = access.NewSignIns(a.directory,
		access.Lifetimes{Browser: s.Browser, Idle: s.Idle, Token: s.Token})
	a.Persons = access.NewPersons(a.People, a.SignIns)
}

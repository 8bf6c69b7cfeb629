package assembly

import "github.com/carrel-dev/carrel/internal/access"

// openSignIns opens the people and their sessions.
func (a *Assembly) openSignIns() {
	a.SignIns = access.NewSignIns(a.directory, access.Lifetimes{})
	a.Persons = access.NewPersons(a.People, a.SignIns)
}

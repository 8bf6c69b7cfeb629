package api

import (
	"net/http"
	"slices"

	"github.com/carrel-dev/carrel"
)

// personRoutes are our routes about people, members and organisations.
type personRoutes struct{ *Server }

func (s personRoutes) add() {
	const v1 = " /carrel/v1"
	s.handle("GET"+v1+"/whoami", s.self)
	s.handle("GET"+v1+"/people", s.people)
	s.handle("POST"+v1+"/people", s.create)
	s.handle("GET"+v1+"/people/{person}", s.get)
	s.handle("PATCH"+v1+"/people/{person}", s.update)
	s.handle("DELETE"+v1+"/people/{person}", s.remove)
	s.handle("PUT"+v1+"/people/{person}/password", s.setPassword)
	s.handle("GET"+v1+"/members", s.members)
	s.handle("PUT"+v1+"/members/{person}", s.setMember)
	s.handle("DELETE"+v1+"/members/{person}", s.removeMember)
	s.handle("GET"+v1+"/organisations", s.organisations)
	s.handle("POST"+v1+"/organisations", s.createOrganisation)
	s.handle("PUT"+v1+"/organisations/{name}", s.setOrganisation)
	s.handle("DELETE"+v1+"/organisations/{name}", s.removeOrganisation)
}

// done answers with nothing, or returns the error of doing it.
func done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// onlyQuery refuses parameters that a route does not have.
func onlyQuery(r *http.Request, names ...string) error {
	for name := range r.URL.Query() {
		if !slices.Contains(names, name) {
			return invalid(clip(name), "there is no such parameter")
		}
	}
	return nil
}

func (s personRoutes) self(w http.ResponseWriter, r *http.Request) error {
	self, err := s.opts.Persons.Self(r.Context())
	return answer(w, self, err)
}

func (s personRoutes) people(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Persons.People(r.Context())
	return answer(w, all, err)
}

// newPersonIn is carrel.NewPerson.
type newPersonIn struct {
	Name     string `json:"name"`
	Email    string `json:"email"`
	Provider bool   `json:"provider"`
	Password string `json:"password"`
}

func (s personRoutes) create(w http.ResponseWriter, r *http.Request) error {
	var body newPersonIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	p, err := s.opts.Persons.CreatePerson(r.Context(), carrel.NewPerson(body))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, p)
	return nil
}

func (s personRoutes) get(w http.ResponseWriter, r *http.Request) error {
	p, err := s.opts.Persons.GetPerson(r.Context(), r.PathValue("person"))
	return answer(w, p, err)
}

// personUpdateIn is carrel.PersonUpdate.
type personUpdateIn struct {
	Disabled *bool   `json:"disabled"`
	Email    *string `json:"email"`
}

func (s personRoutes) update(w http.ResponseWriter, r *http.Request) error {
	var body personUpdateIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	p, err := s.opts.Persons.UpdatePerson(r.Context(), r.PathValue("person"),
		carrel.PersonUpdate(body))
	return answer(w, p, err)
}

func (s personRoutes) remove(w http.ResponseWriter, r *http.Request) error {
	return done(w, s.opts.Persons.DeletePerson(r.Context(), r.PathValue("person")))
}

// passwordIn is carrel.PasswordChange.
type passwordIn struct {
	Old string `json:"old"`
	New string `json:"new"`
}

func (s personRoutes) setPassword(w http.ResponseWriter, r *http.Request) error {
	var body passwordIn
	if err := decodeStrict(w, r, &body, true); err != nil {
		return err
	}
	p, err := s.opts.Persons.SetPassword(r.Context(), r.PathValue("person"),
		carrel.PasswordChange(body))
	return answer(w, p, err)
}

func (s personRoutes) members(w http.ResponseWriter, r *http.Request) error {
	if err := onlyQuery(r, "project", "organisation"); err != nil {
		return err
	}
	q := r.URL.Query()
	all, err := s.opts.Persons.Members(r.Context(), q.Get("project"), q.Get("organisation"))
	return answer(w, all, err)
}

// memberIn says a person's right.
type memberIn struct {
	Project      string          `json:"project"`
	Organisation string          `json:"organisation"`
	Role         carrel.KeyScope `json:"role"`
}

func (s personRoutes) setMember(w http.ResponseWriter, r *http.Request) error {
	var body memberIn
	if err := decodeStrict(w, r, &body, true); err != nil {
		return err
	}
	m, err := s.opts.Persons.SetMember(r.Context(), carrel.Member{Person: r.PathValue("person"),
		Project: body.Project, Organisation: body.Organisation, Role: body.Role})
	return answer(w, m, err)
}

func (s personRoutes) removeMember(w http.ResponseWriter, r *http.Request) error {
	if err := onlyQuery(r, "project", "organisation"); err != nil {
		return err
	}
	q := r.URL.Query()
	return done(w, s.opts.Persons.DeleteMember(r.Context(), carrel.Member{
		Person: r.PathValue("person"), Project: q.Get("project"), Organisation: q.Get("organisation")}))
}

func (s personRoutes) organisations(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Persons.Organisations(r.Context())
	return answer(w, all, err)
}

func (s personRoutes) createOrganisation(w http.ResponseWriter, r *http.Request) error {
	var body projectIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	o, err := s.opts.Persons.CreateOrganisation(r.Context(), body.Name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, o)
	return nil
}

// organisationIn replaces the projects of an organisation.
type organisationIn struct {
	Projects []string `json:"projects"`
}

func (s personRoutes) setOrganisation(w http.ResponseWriter, r *http.Request) error {
	var body organisationIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	o, err := s.opts.Persons.SetOrganisation(r.Context(), r.PathValue("name"), body.Projects)
	return answer(w, o, err)
}

func (s personRoutes) removeOrganisation(w http.ResponseWriter, r *http.Request) error {
	return done(w, s.opts.Persons.DeleteOrganisation(r.Context(), r.PathValue("name")))
}

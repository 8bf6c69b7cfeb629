package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/password"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	// maxPeople, maxOrganisations and maxMembers bound what the directory holds.
	maxPeople        = 10000
	maxOrganisations = 1000
	maxMembers       = 1000
)

// Persons is [carrel.Persons] as each caller sees it. It is safe for concurrent use.
type Persons struct {
	people *People
	dir    *Directory
	sign   *SignIns
}

var _ carrel.Persons = (*Persons)(nil)

// NewPersons returns the people of a directory, to the callers of a service.
func NewPersons(p *People, s *SignIns) *Persons { return &Persons{p, p.dir, s} }

// Self implements carrel.Persons.
func (p *Persons) Self(ctx context.Context) (carrel.Self, error) {
	c, _, err := p.people.service.user(ctx, "who am I")
	if err != nil {
		return carrel.Self{}, err
	}
	out := carrel.Self{Name: c.Key, Person: c.Person, KeyID: c.KeyID, Project: c.Project, Role: c.Role}
	p.dir.mu.Lock()
	defer p.dir.mu.Unlock()
	if live := p.dir.roll.people[c.Person]; live != nil {
		out.Name, out.Projects = live.rec.Load().Person.Name, live.memberships()
	}
	if s := p.dir.roll.sessions[c.Session]; s != nil {
		out.Expires = s.rec.Load().Expires
	}
	if k := p.dir.keys[c.KeyID]; k != nil {
		out.Expires = k.rec.Load().Key.Expires
	}
	return out, nil
}

func noPerson(op, ref string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "person",
		Err: fmt.Errorf("no person %s", clip(ref)), Hint: "'carrel person ls' lists them"}
}

// People implements carrel.Persons.
func (p *Persons) People(ctx context.Context) ([]carrel.Person, error) {
	if err := p.people.machine(ctx, "list people"); err != nil {
		return nil, err
	}
	p.dir.mu.Lock()
	defer p.dir.mu.Unlock()
	out := []carrel.Person{}
	for _, live := range p.dir.roll.people {
		out = append(out, live.now())
	}
	slices.SortFunc(out, func(a, b carrel.Person) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// findLocked returns the person that an administrator means, or that asks about itself.
func (p *Persons) findLocked(ctx context.Context, op, ref string) (_ *livePerson, own bool, err error) {
	c, _, err := p.people.service.user(ctx, op)
	if err != nil {
		return nil, false, err
	}
	live := p.dir.personLocked(ref)
	switch {
	case c.Role == carrel.RoleAdmin && live == nil:
		return nil, false, noPerson(op, ref)
	case c.Role == carrel.RoleAdmin:
		return live, false, nil
	case c.Person != "" && live != nil && live.rec.Load().Person.ID == c.Person:
		return live, true, nil
	}
	return nil, false, &carrel.Error{Op: op, Kind: carrel.Forbidden,
		Err:  errors.New("people are for administrators of the machine"),
		Hint: "use the daemon's own key"}
}

// GetPerson implements carrel.Persons.
func (p *Persons) GetPerson(ctx context.Context, idOrName string) (carrel.Person, error) {
	p.dir.mu.Lock()
	defer p.dir.mu.Unlock()
	live, _, err := p.findLocked(ctx, "get person", idOrName)
	if err != nil {
		return carrel.Person{}, err
	}
	return live.now(), nil
}

// CreatePerson implements carrel.Persons.
func (p *Persons) CreatePerson(ctx context.Context, n carrel.NewPerson) (carrel.IssuedPerson, error) {
	const op = "create person"
	none := carrel.IssuedPerson{}
	if err := p.people.machine(ctx, op); err != nil {
		return none, err
	}
	name, err := carrel.PersonName(n.Name)
	if err != nil {
		return none, err
	}
	if n.Email, err = checkEmail(op, n.Email); err != nil {
		return none, err
	}
	if n.Provider && n.Password != "" {
		return none, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "password",
			Err: errors.New("a person who signs in at the provider has none here")}
	}
	out := carrel.IssuedPerson{}
	rec := state.PersonRecord{Provider: n.Provider, Person: carrel.Person{ID: newUUID(), Name: name,
		Email: n.Email, Created: time.Now().UTC(), CreatedBy: carrel.CallerOf(ctx).Key}}
	if !n.Provider {
		if rec.Password, out.NewPassword, err = p.hash(ctx, op, n.Password); err != nil {
			return none, err
		}
	}
	p.dir.mu.Lock()
	defer p.dir.mu.Unlock()
	if err := p.dir.addPersonLocked(ctx, op, rec); err != nil {
		return none, err
	}
	request.Touch(ctx, rec.Person.ID)
	request.Touch(ctx, name)
	out.Person = p.dir.roll.people[rec.Person.ID].now()
	return out, nil
}

// addPersonLocked makes the record of a new person.
func (d *Directory) addPersonLocked(ctx context.Context, op string, rec state.PersonRecord) error {
	if d.personLocked(rec.Person.Name) != nil {
		return &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Field: "name",
			Err: fmt.Errorf("there is a person %s already", clip(rec.Person.Name))}
	}
	if len(d.roll.people) >= maxPeople {
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "people",
			Err:  fmt.Errorf("there are %d people, and no more may be", maxPeople),
			Hint: "remove some: carrel person rm"}
	}
	return d.applyLocked(ctx, state.Change{PutPeople: []state.PersonRecord{rec}})
}

// checkEmail returns the form in which an address is kept. It is only shown.
func checkEmail(op, email string) (string, error) {
	if email == "" {
		return "", nil
	}
	name, err := carrel.PersonName(email)
	if err != nil || strings.Count(name, "@") != 1 {
		return "", &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "email",
			Err: fmt.Errorf("%.80q is not an email address of letters, digits and . _ - +", email)}
	}
	return name, nil
}

// hash returns the hash of a password, and the password if it was made here.
func (p *Persons) hash(ctx context.Context, op, given string) (hash, made string, err error) {
	if given == "" {
		made = password.Make()
		given = made
	}
	if err := carrel.CheckPassword(given); err != nil {
		return "", "", err
	}
	hash, err = p.sign.hasher.Hash(ctx, given)
	return hash, made, p.sign.busy(op, err)
}

// UpdatePerson implements carrel.Persons.
func (p *Persons) UpdatePerson(ctx context.Context, idOrName string, u carrel.PersonUpdate) (carrel.Person, error) {
	const op = "update person"
	if err := p.people.machine(ctx, op); err != nil {
		return carrel.Person{}, err
	}
	d := p.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	live := d.personLocked(idOrName)
	if live == nil {
		return carrel.Person{}, noPerson(op, idOrName)
	}
	rec, c := *live.rec.Load(), state.Change{}
	if u.Email != nil {
		email, err := checkEmail(op, *u.Email)
		if err != nil {
			return carrel.Person{}, err
		}
		rec.Person.Email = email
	}
	switch {
	case u.Disabled == nil:
	case !*u.Disabled:
		rec.Person.Disabled = time.Time{}
	case rec.Person.Disabled.IsZero():
		rec.Person.Disabled = time.Now().UTC()
	}
	if !rec.Person.Disabled.IsZero() {
		c.DeleteSessions = d.sessionsOfLocked(rec.Person.ID, "")
	}
	c.PutPeople = []state.PersonRecord{rec}
	request.Touch(ctx, rec.Person.Name)
	if err := d.applyLocked(ctx, c); err != nil {
		return carrel.Person{}, err
	}
	return live.now(), nil
}

// sessionsOfLocked returns the IDs of a person's sessions but one.
func (d *Directory) sessionsOfLocked(person, but string) (out []string) {
	for id, s := range d.roll.sessions {
		if id != but && s.rec.Load().Person == person {
			out = append(out, id)
		}
	}
	return out
}

// SetPassword implements carrel.Persons.
func (p *Persons) SetPassword(ctx context.Context, idOrName string, ch carrel.PasswordChange) (carrel.IssuedPerson, error) {
	const op = "set password"
	none, d := carrel.IssuedPerson{}, p.dir
	d.mu.Lock()
	live, own, err := p.findLocked(ctx, op, idOrName)
	d.mu.Unlock()
	if err != nil {
		return none, err
	}
	before := live.rec.Load()
	if before.Provider {
		return none, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "person",
			Err: fmt.Errorf("%s signs in at the identity provider", clip(before.Person.Name))}
	}
	if own {
		if err := p.sign.verify(ctx, op, before.Person.Name, ch.Old); err != nil {
			if carrel.KindOf(err) == carrel.Unauthenticated { // the session itself is in order
				err = &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "old",
					Err: errors.New("it is not the password until now")}
			}
			return none, err
		}
	}
	hash, made, err := p.hash(ctx, op, ch.New)
	if err != nil {
		return none, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rec := *live.rec.Load()
	if d.roll.people[rec.Person.ID] != live {
		return none, noPerson(op, idOrName)
	}
	rec.Password = hash
	request.Touch(ctx, rec.Person.Name)
	err = d.applyLocked(ctx, state.Change{PutPeople: []state.PersonRecord{rec},
		DeleteSessions: d.sessionsOfLocked(rec.Person.ID, carrel.CallerOf(ctx).Session)})
	if err != nil {
		return none, err
	}
	return carrel.IssuedPerson{Person: live.now(), NewPassword: made}, nil
}

// DeletePerson implements carrel.Persons. Rights go with the person, so that nobody who gets the
// name later inherits them.
func (p *Persons) DeletePerson(ctx context.Context, idOrName string) error {
	const op = "delete person"
	if err := p.people.machine(ctx, op); err != nil {
		return err
	}
	d := p.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	live := d.personLocked(idOrName)
	if live == nil {
		return noPerson(op, idOrName)
	}
	person := live.rec.Load().Person
	c := state.Change{DeletePeople: []string{person.ID},
		DeleteSessions: d.sessionsOfLocked(person.ID, "")}
	is := func(m carrel.Member) bool { return m.Person == person.Name }
	for _, rec := range d.projects {
		if slices.ContainsFunc(rec.Members, is) {
			rec.Members = slices.DeleteFunc(slices.Clone(rec.Members), is)
			c.PutProjects = append(c.PutProjects, rec)
		}
	}
	for _, rec := range d.roll.organisations {
		if slices.ContainsFunc(rec.Members, is) {
			rec.Members = slices.DeleteFunc(slices.Clone(rec.Members), is)
			c.PutOrganisations = append(c.PutOrganisations, rec)
		}
	}
	request.Touch(ctx, person.Name)
	return d.applyLocked(ctx, c)
}

// place checks where a member is, and that the caller may manage it. It fills in the caller's
// project.
func (p *Persons) place(ctx context.Context, op string, project, organisation *string) error {
	if *organisation != "" {
		if err := p.people.machine(ctx, op); err != nil {
			return err
		}
		if *project != "" {
			return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "organisation",
				Err: errors.New("name a project or an organisation, not both")}
		}
		return nil
	}
	c, err := p.people.owner(ctx, op)
	if err != nil {
		return err
	}
	*project = cmp.Or(*project, c.Project)
	if _, known := p.dir.project(*project); !known || !c.Sees(*project) {
		return noProject(op, *project)
	}
	return nil
}

func noOrganisation(op, name string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "organisation",
		Err: fmt.Errorf("no organisation %s", clip(name)), Hint: "'carrel org ls' lists them"}
}

// Members implements carrel.Persons.
func (p *Persons) Members(ctx context.Context, project, organisation string) ([]carrel.Member, error) {
	const op = "list members"
	if err := p.place(ctx, op, &project, &organisation); err != nil {
		return nil, err
	}
	d := p.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []carrel.Member{}
	if organisation != "" {
		rec, ok := d.roll.organisations[organisation]
		if !ok {
			return nil, noOrganisation(op, organisation)
		}
		return append(out, rec.Members...), nil
	}
	out = append(out, d.projects[project].Members...)
	for _, o := range d.roll.organisations {
		if slices.Contains(o.Organisation.Projects, project) {
			out = append(out, o.Members...)
		}
	}
	for _, live := range d.roll.people {
		rec := live.rec.Load()
		for _, g := range d.roll.groups {
			if g.Project == project && slices.Contains(rec.Groups, g.Group) {
				out = append(out, carrel.Member{Project: project, Person: rec.Person.Name,
					Role: g.Role, Group: g.Group})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b carrel.Member) int {
		return cmp.Or(strings.Compare(a.Person, b.Person), strings.Compare(a.Organisation, b.Organisation))
	})
	return out, nil
}

// changeMembers changes the list of members of a project or an organisation. fn gets a copy.
func (p *Persons) changeMembers(ctx context.Context, op string, m carrel.Member,
	fn func([]carrel.Member) ([]carrel.Member, error)) error {
	d := p.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	c := state.Change{}
	var err error
	if m.Organisation != "" {
		rec, ok := d.roll.organisations[m.Organisation]
		if !ok {
			return noOrganisation(op, m.Organisation)
		}
		if rec.Members, err = fn(slices.Clone(rec.Members)); err != nil {
			return err
		}
		c.PutOrganisations = []state.OrganisationRecord{rec}
		return d.applyLocked(ctx, c)
	}
	known, ok := d.projectLocked(m.Project)
	if !ok {
		return noProject(op, m.Project)
	}
	rec, recorded := d.projects[m.Project]
	if !recorded { // the default one
		known.ID, known.Default = "", false
		rec = state.ProjectRecord{Project: known}
	}
	if rec.Members, err = fn(slices.Clone(rec.Members)); err != nil {
		return err
	}
	c.PutProjects = []state.ProjectRecord{rec}
	return d.applyLocked(ctx, c)
}

// SetMember implements carrel.Persons. There need be no such person: otherwise an owner of a project
// could find out who else uses the daemon.
func (p *Persons) SetMember(ctx context.Context, m carrel.Member) (carrel.Member, error) {
	const op = "set member"
	if err := p.place(ctx, op, &m.Project, &m.Organisation); err != nil {
		return carrel.Member{}, err
	}
	var err error
	if m.Person, err = carrel.PersonName(m.Person); err != nil {
		return carrel.Member{}, err
	}
	m.Role = cmp.Or(m.Role, carrel.ScopeRun)
	if m.Role.Role() == "" {
		return carrel.Member{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "role",
			Err: fmt.Errorf("%s is not read, run or admin", clip(string(m.Role)))}
	}
	m.Since, m.By, m.Group = time.Now().UTC().Round(0), carrel.CallerOf(ctx).Key, ""
	request.Touch(ctx, m.Person)
	return m, p.changeMembers(ctx, op, m, func(all []carrel.Member) ([]carrel.Member, error) {
		all = slices.DeleteFunc(all, func(o carrel.Member) bool { return o.Person == m.Person })
		if len(all) >= maxMembers {
			return nil, &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "members",
				Err:  fmt.Errorf("there are %d members, and no more may be", maxMembers),
				Hint: "remove some: carrel member rm"}
		}
		return append(all, m), nil
	})
}

// DeleteMember implements carrel.Persons.
func (p *Persons) DeleteMember(ctx context.Context, m carrel.Member) error {
	const op = "delete member"
	if err := p.place(ctx, op, &m.Project, &m.Organisation); err != nil {
		return err
	}
	name, err := carrel.PersonName(m.Person)
	if err != nil {
		return err
	}
	request.Touch(ctx, name)
	return p.changeMembers(ctx, op, m, func(all []carrel.Member) ([]carrel.Member, error) {
		n := len(all)
		all = slices.DeleteFunc(all, func(o carrel.Member) bool { return o.Person == name })
		if len(all) == n {
			return nil, &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "person",
				Err:  fmt.Errorf("no member %s", clip(name)),
				Hint: "'carrel member ls' lists them; a right by an organisation or a group ends there"}
		}
		return all, nil
	})
}

// Organisations implements carrel.Persons.
func (p *Persons) Organisations(ctx context.Context) ([]carrel.Organisation, error) {
	if err := p.people.machine(ctx, "list organisations"); err != nil {
		return nil, err
	}
	p.dir.mu.Lock()
	defer p.dir.mu.Unlock()
	out := []carrel.Organisation{}
	for _, o := range p.dir.roll.organisations {
		out = append(out, o.Organisation)
	}
	slices.SortFunc(out, func(a, b carrel.Organisation) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// CreateOrganisation implements carrel.Persons.
func (p *Persons) CreateOrganisation(ctx context.Context, name string) (carrel.Organisation, error) {
	const op = "create organisation"
	if err := p.people.machine(ctx, op); err != nil {
		return carrel.Organisation{}, err
	}
	if err := carrel.CheckProject(name); err != nil {
		return carrel.Organisation{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "name",
			Err: errors.Unwrap(err)}
	}
	d := p.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.roll.organisations[name]; known {
		return carrel.Organisation{}, &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Field: "name",
			Err: fmt.Errorf("there is an organisation %s already", clip(name))}
	}
	if len(d.roll.organisations) >= maxOrganisations {
		return carrel.Organisation{}, &carrel.Error{Op: op, Kind: carrel.Exhausted,
			Field: "organisations", Hint: "remove some: carrel org rm",
			Err: fmt.Errorf("there are %d organisations, and no more may be", maxOrganisations)}
	}
	request.Touch(ctx, name)
	made := carrel.Organisation{Name: name, Projects: []string{}, Created: time.Now().UTC()}
	return made, d.applyLocked(ctx,
		state.Change{PutOrganisations: []state.OrganisationRecord{{Organisation: made}}})
}

// SetOrganisation implements carrel.Persons.
func (p *Persons) SetOrganisation(ctx context.Context, name string, projects []string) (carrel.Organisation, error) {
	const op = "set organisation"
	if err := p.people.machine(ctx, op); err != nil {
		return carrel.Organisation{}, err
	}
	d := p.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	rec, ok := d.roll.organisations[name]
	if !ok {
		return carrel.Organisation{}, noOrganisation(op, name)
	}
	projects = slices.Compact(slices.Sorted(slices.Values(projects)))
	for _, project := range projects {
		if _, known := d.projectLocked(project); !known {
			return carrel.Organisation{}, noProject(op, project)
		}
	}
	if rec.Organisation.Projects = projects; projects == nil {
		rec.Organisation.Projects = []string{}
	}
	return rec.Organisation, d.applyLocked(ctx,
		state.Change{PutOrganisations: []state.OrganisationRecord{rec}})
}

// DeleteOrganisation implements carrel.Persons.
func (p *Persons) DeleteOrganisation(ctx context.Context, name string) error {
	const op = "delete organisation"
	if err := p.people.machine(ctx, op); err != nil {
		return err
	}
	d := p.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.roll.organisations[name]; !ok {
		return noOrganisation(op, name)
	}
	return d.applyLocked(ctx, state.Change{DeleteOrganisations: []string{name}})
}

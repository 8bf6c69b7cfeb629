package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carrel-dev/carrel"
)

// Persons is the daemon's people, members and organisations.
type Persons struct{ c *Client }

var _ carrel.Persons = Persons{}

// Persons returns the daemon's people, members and organisations.
func (c *Client) Persons() Persons { return Persons{c} }

// Self implements carrel.Persons.
func (p Persons) Self(ctx context.Context) (out carrel.Self, err error) {
	err = p.c.call(ctx, "who am I", http.MethodGet, "/whoami", nil, nil, &out)
	return out, err
}

// People implements carrel.Persons.
func (p Persons) People(ctx context.Context) (out []carrel.Person, err error) {
	err = p.c.call(ctx, "list people", http.MethodGet, "/people", nil, nil, &out)
	return out, err
}

// GetPerson implements carrel.Persons.
func (p Persons) GetPerson(ctx context.Context, idOrName string) (out carrel.Person, err error) {
	err = p.c.call(ctx, "get person", http.MethodGet, "/people/"+url.PathEscape(idOrName), nil, nil, &out)
	return out, err
}

// CreatePerson implements carrel.Persons.
func (p Persons) CreatePerson(ctx context.Context, n carrel.NewPerson) (out carrel.IssuedPerson, err error) {
	err = p.c.call(ctx, "create person", http.MethodPost, "/people", nil, n, &out)
	return out, err
}

// UpdatePerson implements carrel.Persons.
func (p Persons) UpdatePerson(ctx context.Context, idOrName string, u carrel.PersonUpdate) (out carrel.Person, err error) {
	err = p.c.call(ctx, "update person", http.MethodPatch, "/people/"+url.PathEscape(idOrName), nil, u, &out)
	return out, err
}

// SetPassword implements carrel.Persons.
func (p Persons) SetPassword(ctx context.Context, idOrName string, ch carrel.PasswordChange) (out carrel.IssuedPerson, err error) {
	err = p.c.call(ctx, "set password", http.MethodPut,
		"/people/"+url.PathEscape(idOrName)+"/password", nil, ch, &out)
	return out, err
}

// DeletePerson implements carrel.Persons.
func (p Persons) DeletePerson(ctx context.Context, idOrName string) error {
	return p.c.call(ctx, "delete person", http.MethodDelete, "/people/"+url.PathEscape(idOrName), nil, nil, nil)
}

// within is the part of a query that says where a member is.
func within(project, organisation string) url.Values {
	q := url.Values{}
	if project != "" {
		q.Set("project", project)
	}
	if organisation != "" {
		q.Set("organisation", organisation)
	}
	return q
}

// Members implements carrel.Persons.
func (p Persons) Members(ctx context.Context, project, organisation string) (out []carrel.Member, err error) {
	err = p.c.call(ctx, "list members", http.MethodGet, "/members", within(project, organisation), nil, &out)
	return out, err
}

// SetMember implements carrel.Persons.
func (p Persons) SetMember(ctx context.Context, m carrel.Member) (out carrel.Member, err error) {
	body := map[string]string{"project": m.Project, "organisation": m.Organisation, "role": string(m.Role)}
	err = p.c.call(ctx, "set member", http.MethodPut, "/members/"+url.PathEscape(m.Person), nil, body, &out)
	return out, err
}

// DeleteMember implements carrel.Persons.
func (p Persons) DeleteMember(ctx context.Context, m carrel.Member) error {
	return p.c.call(ctx, "delete member", http.MethodDelete, "/members/"+url.PathEscape(m.Person),
		within(m.Project, m.Organisation), nil, nil)
}

// Organisations implements carrel.Persons.
func (p Persons) Organisations(ctx context.Context) (out []carrel.Organisation, err error) {
	err = p.c.call(ctx, "list organisations", http.MethodGet, "/organisations", nil, nil, &out)
	return out, err
}

// CreateOrganisation implements carrel.Persons.
func (p Persons) CreateOrganisation(ctx context.Context, name string) (out carrel.Organisation, err error) {
	err = p.c.call(ctx, "create organisation", http.MethodPost, "/organisations", nil,
		map[string]string{"name": name}, &out)
	return out, err
}

// SetOrganisation implements carrel.Persons.
func (p Persons) SetOrganisation(ctx context.Context, name string, projects []string) (out carrel.Organisation, err error) {
	err = p.c.call(ctx, "set organisation", http.MethodPut, "/organisations/"+url.PathEscape(name), nil,
		map[string][]string{"projects": projects}, &out)
	return out, err
}

// DeleteOrganisation implements carrel.Persons.
func (p Persons) DeleteOrganisation(ctx context.Context, name string) error {
	return p.c.call(ctx, "delete organisation", http.MethodDelete, "/organisations/"+url.PathEscape(name), nil, nil, nil)
}

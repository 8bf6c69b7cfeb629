package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/carrel-dev/carrel"
)

// People is the daemon's projects and API keys.
type People struct{ c *Client }

var _ carrel.People = People{}

// People returns the daemon's projects and API keys.
func (c *Client) People() People { return People{c} }

// Projects implements carrel.People.
func (p People) Projects(ctx context.Context) (out []carrel.Project, err error) {
	err = p.c.call(ctx, "list projects", http.MethodGet, "/projects", nil, nil, &out)
	return out, err
}

// GetProject implements carrel.People.
func (p People) GetProject(ctx context.Context, name string) (out carrel.Project, err error) {
	err = p.c.call(ctx, "get project", http.MethodGet, "/projects/"+url.PathEscape(name), nil, nil, &out)
	return out, err
}

// CreateProject implements carrel.People.
func (p People) CreateProject(ctx context.Context, name string) (out carrel.Project, err error) {
	err = p.c.call(ctx, "create project", http.MethodPost, "/projects", nil, map[string]string{"name": name}, &out)
	return out, err
}

// DeleteProject implements carrel.People.
func (p People) DeleteProject(ctx context.Context, name string) error {
	return p.c.call(ctx, "delete project", http.MethodDelete, "/projects/"+url.PathEscape(name), nil, nil, nil)
}

// Keys implements carrel.People.
func (p People) Keys(ctx context.Context) (out []carrel.APIKey, err error) {
	err = p.c.call(ctx, "list keys", http.MethodGet, "/keys", nil, nil, &out)
	return out, err
}

// GetKey implements carrel.People.
func (p People) GetKey(ctx context.Context, idOrName string) (out carrel.APIKey, err error) {
	err = p.c.call(ctx, "get key", http.MethodGet, "/keys/"+url.PathEscape(idOrName), nil, nil, &out)
	return out, err
}

// CreateKey implements carrel.People.
func (p People) CreateKey(ctx context.Context, n carrel.NewKey) (out carrel.IssuedKey, err error) {
	err = p.c.call(ctx, "create key", http.MethodPost, "/keys", nil, n, &out)
	return out, err
}

// UpdateKey implements carrel.People.
func (p People) UpdateKey(ctx context.Context, idOrName string, u carrel.KeyUpdate) (out carrel.APIKey, err error) {
	err = p.c.call(ctx, "update key", http.MethodPatch, "/keys/"+url.PathEscape(idOrName), nil, u, &out)
	return out, err
}

// RotateKey implements carrel.People.
func (p People) RotateKey(ctx context.Context, idOrName string, overlap time.Duration) (out carrel.IssuedKey, err error) {
	err = p.c.call(ctx, "rotate key", http.MethodPost, "/keys/"+url.PathEscape(idOrName)+"/rotate", nil,
		map[string]time.Duration{"overlap": overlap}, &out)
	return out, err
}

// RevokeKey implements carrel.People.
func (p People) RevokeKey(ctx context.Context, idOrName string) error {
	return p.c.call(ctx, "revoke key", http.MethodDelete, "/keys/"+url.PathEscape(idOrName), nil, nil, nil)
}

package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carrel-dev/carrel"
)

// Movement moves sandboxes and templates to and from the daemon. The key must be an administrator's.
type Movement struct{ c *Client }

var _ carrel.Movement = Movement{}

// Movement returns the daemon's movement.
func (p machineCalls) Movement() Movement { return Movement(p) }

// Publish implements carrel.Movement.
func (m Movement) Publish(ctx context.Context, id string) (out carrel.Passport, err error) {
	err = m.c.call(ctx, "publish sandbox", http.MethodPost, "/movement/sandboxes/"+url.PathEscape(id)+"/passport", nil, nil, &out)
	return out, err
}

// Adopt implements carrel.Movement.
func (m Movement) Adopt(ctx context.Context, p carrel.Passport) (out carrel.Sandbox, err error) {
	err = m.c.call(ctx, "adopt sandbox", http.MethodPost, "/movement/sandboxes", nil, p, &out)
	return out, err
}

// Release implements carrel.Movement.
func (m Movement) Release(ctx context.Context, id carrel.ID) error {
	return m.c.call(ctx, "release sandbox", http.MethodDelete, "/movement/sandboxes/"+url.PathEscape(string(id)), nil, nil, nil)
}

// PublishTemplate implements carrel.Movement.
func (m Movement) PublishTemplate(ctx context.Context, nameOrID string) (out carrel.TemplatePassport, err error) {
	err = m.c.call(ctx, "publish template", http.MethodPost, "/movement/templates/"+url.PathEscape(nameOrID)+"/passport", nil, nil, &out)
	return out, err
}

// AdoptTemplate implements carrel.Movement.
func (m Movement) AdoptTemplate(ctx context.Context, p carrel.TemplatePassport) (out carrel.Template, err error) {
	err = m.c.call(ctx, "adopt template", http.MethodPost, "/movement/templates", nil, p, &out)
	return out, err
}

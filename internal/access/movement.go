package access

import (
	"context"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// Movement moves sandboxes and templates of all projects to other machines and back. It is for
// administrators: a passport holds every secret of a sandbox.
type Movement struct {
	*Service
	Core carrel.Movement
}

var _ carrel.Movement = Movement{}

// Publish implements carrel.Movement.
func (m Movement) Publish(ctx context.Context, id string) (carrel.Passport, error) {
	ctx, err := m.admin(ctx, "publish sandbox")
	if err != nil {
		return carrel.Passport{}, err
	}
	request.Touch(ctx, id)
	return m.Core.Publish(ctx, id)
}

// Adopt implements carrel.Movement.
func (m Movement) Adopt(ctx context.Context, p carrel.Passport) (carrel.Sandbox, error) {
	ctx, err := m.admin(ctx, "adopt sandbox")
	if err != nil {
		return carrel.Sandbox{}, err
	}
	request.Touch(ctx, string(p.Sandbox))
	return m.Core.Adopt(ctx, p)
}

// Release implements carrel.Movement.
func (m Movement) Release(ctx context.Context, id carrel.ID) error {
	ctx, err := m.admin(ctx, "release sandbox")
	if err != nil {
		return err
	}
	request.Touch(ctx, string(id))
	return m.Core.Release(ctx, id)
}

// PublishTemplate implements carrel.Movement.
func (m Movement) PublishTemplate(ctx context.Context, nameOrID string) (carrel.TemplatePassport, error) {
	ctx, err := m.admin(ctx, "publish template")
	if err != nil {
		return carrel.TemplatePassport{}, err
	}
	return m.Core.PublishTemplate(ctx, nameOrID)
}

// AdoptTemplate implements carrel.Movement.
func (m Movement) AdoptTemplate(ctx context.Context, p carrel.TemplatePassport) (carrel.Template, error) {
	ctx, err := m.admin(ctx, "adopt template")
	if err != nil {
		return carrel.Template{}, err
	}
	return m.Core.AdoptTemplate(ctx, p)
}

package access

import (
	"context"

	"github.com/carrel-dev/carrel"
)

// TemplatePackages implements carrel.Catalog. A caller who may make sandboxes of a template can
// read all its files there, so he may list its packages.
func (s *Service) TemplatePackages(ctx context.Context,
	nameOrID string) (carrel.TemplatePackages, error) {
	_, ctx, t, err := s.template(ctx, "list packages", nameOrID)
	if err != nil {
		return carrel.TemplatePackages{}, err
	}
	return s.opts.Core.TemplatePackages(ctx, t.ID)
}

// TemplateChanges implements carrel.Catalog.
func (s *Service) TemplateChanges(ctx context.Context, from,
	to string) ([]carrel.FileChange, error) {
	const op = "compare templates"
	_, _, a, err := s.template(ctx, op, from)
	if err != nil {
		return nil, err
	}
	_, ctx, b, err := s.template(ctx, op, to)
	if err != nil {
		return nil, err
	}
	return s.opts.Core.TemplateChanges(ctx, a.ID, b.ID)
}

// TemplateUses implements carrel.Catalog.
func (s *Service) TemplateUses(ctx context.Context) ([]carrel.TemplateUse, error) {
	c, ctx, err := s.user(ctx, "count uses of templates")
	if err != nil {
		return nil, err
	}
	return s.opts.Core.TemplateUses(ctx, scope(c))
}

// CollectTemplates implements carrel.Catalog.
func (s *Service) CollectTemplates(ctx context.Context,
	opts carrel.CollectOptions) (carrel.Collected, error) {
	c, ctx, err := s.user(ctx, "collect templates")
	if err != nil {
		return carrel.Collected{}, err
	}
	return s.opts.Core.CollectTemplates(ctx, scope(c), opts)
}

// scope is the project that a caller may look at; "" is all of them.
func scope(c carrel.Caller) string {
	if c.Role == carrel.RoleAdmin {
		return ""
	}
	return c.Project
}

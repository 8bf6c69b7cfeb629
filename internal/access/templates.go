package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/carrel-dev/carrel"
)

// usable reports whether a caller may make sandboxes of a template.
func usable(c carrel.Caller, t carrel.Template) bool {
	return t.BuiltIn || t.Public || c.Sees(t.Project)
}

// noTemplate is the answer for a template that is not there, for this caller.
func noTemplate(op, field, ref string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: field, Err: fmt.Errorf("no template %s", clip(ref)),
		Hint: "'carrel template ls' lists them, 'carrel template import' and 'pull' make more"}
}

// mayStart checks that the caller may make a sandbox of what a template's reference means:
// a template or a snapshot. Names are the caller's own; it is IDs that may be another's.
func (s *Service) mayStart(ctx context.Context, op string, c carrel.Caller, ref string) error {
	if ref == "" || c.Role == carrel.RoleAdmin {
		return nil
	}
	const field = "templateID"
	if id, err := carrel.ParseSnapshotID(ref); err == nil {
		if project, known := s.opts.Core.SnapshotProject(ctx, id); !known || !c.Sees(project) {
			return noTemplate(op, field, ref)
		}
		return nil
	}
	all, err := s.opts.Core.ListTemplates(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.ID == ref && usable(c, t) {
			return nil
		}
	}
	for _, t := range all {
		if t.Name == ref && usable(c, t) {
			return nil
		}
	}
	if sn, err := s.opts.Core.GetSnapshot(ctx, ref); err == nil && c.Sees(sn.Project) {
		return nil
	}
	// A tag, or an ID of a template that another replaced: neither is in the list.
	if t, err := s.opts.Core.GetTemplate(ctx, ref); err == nil && usable(c, t) {
		return nil
	}
	return noTemplate(op, field, ref)
}

// template finds a template that the caller may use. It returns the context for the core.
func (s *Service) template(ctx context.Context, op, ref string) (carrel.Caller, context.Context, carrel.Template, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return c, ctx, carrel.Template{}, err
	}
	t, err := s.opts.Core.GetTemplate(ctx, ref)
	if carrel.KindOf(err) == carrel.NotFound || err == nil && !usable(c, t) {
		return c, ctx, carrel.Template{}, noTemplate(op, "template", ref)
	}
	return c, ctx, t, err
}

// isBuiltIn reports whether a reference means a built-in template. It makes none, as
// GetTemplate would.
func (s *Service) isBuiltIn(ctx context.Context, ref string) bool {
	all, err := s.opts.Core.ListTemplates(ctx)
	return err == nil && slices.ContainsFunc(all, func(t carrel.Template) bool {
		return t.BuiltIn && (t.ID == ref || t.Name == ref)
	})
}

// ownTemplate is template for what changes it, which a public one's users may not.
func (s *Service) ownTemplate(ctx context.Context, op, ref string) (carrel.Caller, context.Context, string, error) {
	if c, ctx, err := s.user(ctx, op); err == nil && s.isBuiltIn(ctx, ref) {
		return c, ctx, ref, nil // which the core refuses
	}
	c, ctx, t, err := s.template(ctx, op, ref)
	if err == nil && !c.Sees(t.Project) {
		err = &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "template", Err: fmt.Errorf("%s is another project's", clip(ref))}
	}
	return c, ctx, t.ID, err
}

// ListTemplates implements carrel.Templates.
func (s *Service) ListTemplates(ctx context.Context) ([]carrel.Template, error) {
	c, ctx, err := s.user(ctx, "list templates")
	if err != nil {
		return nil, err
	}
	all, err := s.opts.Core.ListTemplates(ctx)
	if err != nil {
		return nil, err
	}
	own := make([]carrel.Template, 0, len(all))
	for _, t := range all {
		if usable(c, t) {
			own = append(own, t)
		}
	}
	return own, nil
}

// GetTemplate implements carrel.Templates.
func (s *Service) GetTemplate(ctx context.Context, nameOrID string) (carrel.Template, error) {
	_, _, t, err := s.template(ctx, "get template", nameOrID)
	return t, err
}

// ImportTemplate implements carrel.Templates.
func (s *Service) ImportTemplate(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (carrel.Template, error) {
	_, ctx, err := s.user(ctx, "import template")
	if err != nil {
		return carrel.Template{}, err
	}
	return s.opts.Core.ImportTemplate(ctx, name, archive, progress)
}

// PullTemplate implements carrel.Templates.
func (s *Service) PullTemplate(ctx context.Context, name, image string, progress func(carrel.Progress)) (carrel.Template, error) {
	_, ctx, err := s.user(ctx, "pull template")
	if err != nil {
		return carrel.Template{}, err
	}
	return s.opts.Core.PullTemplate(ctx, name, image, progress)
}

// UpdateTemplate implements carrel.Templates. Only an administrator shares a template
// with all projects: its name would else stand for whatever a stranger put under it.
func (s *Service) UpdateTemplate(ctx context.Context, nameOrID string, u carrel.TemplateUpdate) (carrel.Template, error) {
	const op = "update template"
	c, ctx, id, err := s.ownTemplate(ctx, op, nameOrID)
	if err == nil && u.Public != nil && c.Role != carrel.RoleAdmin {
		err = &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "public", Err: errors.New("only an administrator shares a template with all projects")}
	}
	if err != nil {
		return carrel.Template{}, err
	}
	return s.opts.Core.UpdateTemplate(ctx, id, u)
}

// DeleteTemplate implements carrel.Templates.
func (s *Service) DeleteTemplate(ctx context.Context, nameOrID string) error {
	_, ctx, id, err := s.ownTemplate(ctx, "delete template", nameOrID)
	if err != nil {
		return err
	}
	return s.opts.Core.DeleteTemplate(ctx, id)
}

package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/request"
)

// resolve asks the core what a text means to the caller. The core passes over everything that the
// caller may not use, and answers as if it did not exist. resolve judges the result once more.
func (s *Service) resolve(ctx context.Context, op string, c carrel.Caller, text string) (carrel.TemplateRef, carrel.Template, carrel.SnapshotID, error) {
	ref, err := carrel.ParseTemplateRef(text)
	if err != nil {
		return ref, carrel.Template{}, "", err
	}
	t, snapshot, err := s.opts.Core.ResolveTemplate(ctx, op, ref)
	if err != nil {
		return ref, t, snapshot, err
	}
	seen := snapshot == "" && c.MayUse(t)
	if snapshot != "" {
		project, known := s.opts.Core.SnapshotProject(ctx, snapshot)
		seen = known && c.Sees(project)
	}
	if !seen {
		return ref, carrel.Template{}, "", ref.NotFound(op)
	}
	return ref, t, snapshot, nil
}

// mayStart checks that the caller may make a sandbox from a reference. It returns the ID of the
// judged template or snapshot, so that the core uses exactly that one. "" is the default.
func (s *Service) mayStart(ctx context.Context, op string, c carrel.Caller, text string) (id string, err error) {
	if text == "" {
		return "", nil
	}
	_, t, snapshot, err := s.resolve(ctx, op, c, text)
	if snapshot != "" {
		return string(snapshot), err
	}
	return t.ID, err
}

// template finds a template that the caller may use. It returns the context for the core.
func (s *Service) template(ctx context.Context, op, text string) (carrel.Caller, context.Context, carrel.Template, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return c, ctx, carrel.Template{}, err
	}
	ref, t, snapshot, err := s.resolve(ctx, op, c, text)
	if err == nil && snapshot != "" {
		err = ref.NotFound(op)
	}
	return c, ctx, t, err
}

// ownTemplate is template for changes, which the users of a public template may not make. The core
// refuses changes of a built-in one.
func (s *Service) ownTemplate(ctx context.Context, op, text string) (carrel.Caller, context.Context, string, error) {
	c, ctx, t, err := s.template(ctx, op, text)
	if err == nil && !t.BuiltIn && !c.Sees(t.Project) {
		err = &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "template", Err: fmt.Errorf("%s is another project's", clip(text))}
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
		if c.MayUse(t) {
			own = append(own, t)
		}
	}
	return own, nil
}

// GetTemplate implements carrel.Templates.
func (s *Service) GetTemplate(ctx context.Context, nameOrID string) (carrel.Template, error) {
	_, ctx, t, err := s.template(ctx, "get template", nameOrID)
	if err != nil {
		return carrel.Template{}, err
	}
	return s.opts.Core.GetTemplate(ctx, t.ID)
}

// ImportTemplate implements carrel.Templates.
func (s *Service) ImportTemplate(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (carrel.Template, error) {
	const op = "import template"
	c, ctx, err := s.user(ctx, op)
	if err == nil {
		err = mayMakeTemplates(s, op, c)
	}
	if err != nil {
		return carrel.Template{}, err
	}
	return s.opts.Core.ImportTemplate(ctx, name, archive, progress)
}

const opPull = "pull template"

// mayMake checks that a caller may make a built-in template. Base is every project's default, and
// what has been made takes the place of its stand-in. The kernel is that of every project's virtual
// machines. So only an administrator may make them.
func mayMake(c carrel.Caller, name, from string) error {
	if from != "" || c.Role == carrel.RoleAdmin {
		return nil
	}
	if name == image.Kernel {
		return &carrel.Error{Op: opPull, Kind: carrel.Forbidden, Field: "name",
			Err:  errors.New("the kernel is that of every project's virtual machines, and only an administrator gets it"),
			Hint: "ask one to run 'carrel template get kernel'"}
	}
	ref, err := carrel.ParseTemplateRef(name)
	if err != nil || ref.Name() != image.Base {
		return nil // the core judges names
	}
	return &carrel.Error{Op: opPull, Kind: carrel.Forbidden, Field: "name",
		Err: errors.New("base is the default of every project, and only an administrator makes it"),
		Hint: "ask one to run 'carrel template get base', or make a template of your own: " +
			"carrel template get python"}
}

// PullTemplate implements carrel.Templates.
func (s *Service) PullTemplate(ctx context.Context, name, ref string,
	progress func(carrel.Progress)) (carrel.Template, error) {
	c, ctx, err := s.user(ctx, opPull)
	if err == nil {
		err = first(mayMake(c, name, ref), mayMakeTemplates(s, opPull, c))
	}
	if err != nil {
		return carrel.Template{}, err
	}
	request.Touch(ctx, name)
	return s.opts.Core.PullTemplate(ctx, name, ref, progress)
}

// PullImage implements carrel.Registries.
func (s *Service) PullImage(ctx context.Context, name string, opts carrel.PullOptions,
	progress func(carrel.Progress)) (carrel.Template, error) {
	c, ctx, err := s.user(ctx, opPull)
	if err == nil {
		err = first(mayMake(c, name, opts.Image), mayMakeTemplates(s, opPull, c))
	}
	if err != nil {
		return carrel.Template{}, err
	}
	request.Touch(ctx, name)
	return s.opts.Core.PullImage(ctx, name, opts, progress)
}

// PushTemplate implements carrel.Registries. A caller who may make sandboxes from a template or a
// snapshot may read all its files there, so he may push it too.
func (s *Service) PushTemplate(ctx context.Context, nameOrID string, opts carrel.PushOptions,
	progress func(carrel.Progress)) (carrel.Pushed, error) {
	const op = "push template"
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return carrel.Pushed{}, err
	}
	_, t, snapshot, err := s.resolve(ctx, op, c, nameOrID)
	if err != nil {
		return carrel.Pushed{}, err
	}
	return s.opts.Core.PushTemplate(ctx, cmp.Or(string(snapshot), t.ID), opts, progress)
}

// UpdateTemplate implements carrel.Templates. Only an administrator may share a template with all
// projects. Otherwise its name could mean, in other projects, a stranger's template.
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

// first returns the first error that is not nil.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

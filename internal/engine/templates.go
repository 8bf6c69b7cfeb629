package engine

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/carrel-dev/carrel"
)

// ListTemplates implements carrel.Templates: the templates of all nodes that answer. Equal ones
// appear once: those of one ID, and those of one project and name.
func (e *Engine) ListTemplates(ctx context.Context) ([]carrel.Template, error) {
	const op = "list templates"
	type name struct{ project, full string }
	var all []carrel.Template
	ids, names := map[string]bool{}, map[name]bool{}
	var last error
	heard := false
	for _, a := range askAll(ctx, e.all(), op, "", e.opts.AskWithin,
		func(ctx context.Context, _ *member, r Remote) ([]carrel.Template, error) { return r.ListTemplates(ctx) }) {
		if a.err != nil {
			last = a.err
			continue
		}
		heard = true
		for _, t := range a.out {
			key := name{t.Project, t.FullName()}
			if ids[t.ID] || t.Name != "" && names[key] {
				continue
			}
			ids[t.ID], names[key] = true, true
			all = append(all, t)
		}
	}
	if !heard {
		return nil, cmp.Or[error](last, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errNoNodes})
	}
	slices.SortStableFunc(all, func(a, b carrel.Template) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// GetTemplate implements carrel.Templates: the template of the first node, by name, that has it.
func (e *Engine) GetTemplate(ctx context.Context, nameOrID string) (carrel.Template, error) {
	const op = "get template"
	var no error
	var silent []string
	for _, a := range askAll(ctx, e.all(), op, "", e.opts.AskWithin,
		func(ctx context.Context, _ *member, r Remote) (carrel.Template, error) {
			return r.GetTemplate(ctx, nameOrID)
		}) {
		switch {
		case a.err == nil:
			return a.out, nil
		case definite(a.err):
			no = a.err
		default:
			silent = append(silent, a.m.name)
		}
	}
	switch {
	case len(silent) > 0:
		return carrel.Template{}, notEverywhere(op, "", "the template", silent)
	case no == nil:
		return carrel.Template{}, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errNoNodes}
	}
	return carrel.Template{}, no
}

const sharedTemplates = "store of templates that all nodes share"

// ImportTemplate implements carrel.Templates. A fleet can't do it yet.
func (e *Engine) ImportTemplate(context.Context, string, io.Reader, func(carrel.Progress)) (carrel.Template, error) {
	return carrel.Template{}, unsupported("import template", sharedTemplates)
}

// PullTemplate implements carrel.Templates. A fleet can't do it yet.
func (e *Engine) PullTemplate(context.Context, string, string, func(carrel.Progress)) (carrel.Template, error) {
	return carrel.Template{}, unsupported("pull template", sharedTemplates)
}

// UpdateTemplate implements carrel.Templates. A fleet can't do it yet.
func (e *Engine) UpdateTemplate(context.Context, string, carrel.TemplateUpdate) (carrel.Template, error) {
	return carrel.Template{}, unsupported("update template", sharedTemplates)
}

// DeleteTemplate implements carrel.Templates. A fleet can't do it yet.
func (e *Engine) DeleteTemplate(context.Context, string) error {
	return unsupported("delete template", sharedTemplates)
}

package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/carrel-dev/carrel"
)

// catalogCalls are a Client's calls about what is in templates and what uses them.
type catalogCalls struct{ c *Client }

// TemplatePackages implements carrel.Catalog.
func (p catalogCalls) TemplatePackages(ctx context.Context,
	nameOrID string) (carrel.TemplatePackages, error) {
	const op = "list packages"
	var out carrel.TemplatePackages
	if nameOrID == "" {
		return out, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "name", Err: errors.New("empty")}
	}
	err := p.c.call(ctx, op, http.MethodGet, "/templates/"+url.PathEscape(nameOrID)+"/packages", nil,
		nil, &out)
	return out, err
}

// TemplateChanges implements carrel.Catalog.
func (p catalogCalls) TemplateChanges(ctx context.Context, from,
	to string) ([]carrel.FileChange, error) {
	const op = "compare templates"
	if from == "" {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "from", Err: errors.New("empty")}
	}
	var out []carrel.FileChange
	err := p.c.call(ctx, op, http.MethodGet, "/templates/"+url.PathEscape(from)+"/diff",
		url.Values{"to": {to}}, nil, &out)
	return out, err
}

// TemplateUses implements carrel.Catalog.
func (p catalogCalls) TemplateUses(ctx context.Context) ([]carrel.TemplateUse, error) {
	var out []carrel.TemplateUse
	err := p.c.call(ctx, "count uses of templates", http.MethodGet, "/template-store/uses", nil, nil,
		&out)
	return out, err
}

// CollectTemplates implements carrel.Catalog.
func (p catalogCalls) CollectTemplates(ctx context.Context,
	opts carrel.CollectOptions) (carrel.Collected, error) {
	var out carrel.Collected
	err := p.c.call(ctx, "collect templates", http.MethodPost, "/template-store/gc", nil, opts, &out)
	return out, err
}

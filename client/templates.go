package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/carrel-dev/carrel"
)

// ListTemplates implements carrel.Templates.
func (c *Client) ListTemplates(ctx context.Context) ([]carrel.Template, error) {
	var out []carrel.Template
	err := c.call(ctx, "list templates", http.MethodGet, "/templates", nil, nil, &out)
	return out, err
}

// GetTemplate implements carrel.Templates.
func (c *Client) GetTemplate(ctx context.Context, nameOrID string) (carrel.Template, error) {
	var t carrel.Template
	if nameOrID == "" {
		return t, &carrel.Error{Op: "get template", Kind: carrel.Invalid, Field: "name", Err: errors.New("empty")}
	}
	err := c.call(ctx, "get template", http.MethodGet, "/templates/"+url.PathEscape(nameOrID), nil, nil, &t)
	return t, err
}

// UpdateTemplate implements carrel.Templates.
func (c *Client) UpdateTemplate(ctx context.Context, nameOrID string, u carrel.TemplateUpdate) (carrel.Template, error) {
	var t carrel.Template
	if nameOrID == "" {
		return t, &carrel.Error{Op: "update template", Kind: carrel.Invalid, Field: "name", Err: errors.New("empty")}
	}
	err := c.call(ctx, "update template", http.MethodPatch, "/templates/"+url.PathEscape(nameOrID), nil, u, &t)
	return t, err
}

// DeleteTemplate implements carrel.Templates.
func (c *Client) DeleteTemplate(ctx context.Context, nameOrID string) error {
	if nameOrID == "" {
		return &carrel.Error{Op: "delete template", Kind: carrel.Invalid, Field: "name", Err: errors.New("empty")}
	}
	return c.call(ctx, "delete template", http.MethodDelete, "/templates/"+url.PathEscape(nameOrID), nil, nil, nil)
}

// ImportTemplate implements carrel.Templates. It sends the archive while it reads it.
func (c *Client) ImportTemplate(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (carrel.Template, error) {
	// Hide all methods but Read: the transport must not close or seek the caller's archive.
	body := struct{ io.Reader }{archive}
	return c.job(ctx, "import template", "/templates/import", url.Values{"name": {name}}, body, progress)
}

// PullTemplate implements carrel.Templates. The daemon pulls the image.
func (c *Client) PullTemplate(ctx context.Context, name, image string, progress func(carrel.Progress)) (carrel.Template, error) {
	body := map[string]string{"name": name, "image": image}
	return c.job(ctx, "pull template", "/templates/pull", nil, body, progress)
}

// job starts a long job and reads its lines up to the result.
func (c *Client) job(ctx context.Context, op, path string, q url.Values, body any, progress func(carrel.Progress)) (carrel.Template, error) {
	resp, err := c.send(ctx, op, http.MethodPost, path, q, body)
	if err != nil {
		return carrel.Template{}, err
	}
	defer resp.Body.Close()
	lines := jsonLines(resp.Body)
	for {
		var line struct {
			Progress *carrel.Progress `json:"progress"`
			Template *carrel.Template `json:"template"`
			Error    *wireError       `json:"error"`
		}
		_, err := lines(&line)
		switch {
		case err != nil:
			return carrel.Template{}, c.fail(ctx, op, err)
		case line.Error != nil:
			return carrel.Template{}, line.Error.restore(op)
		case line.Template != nil:
			return *line.Template, nil
		case line.Progress != nil && progress != nil:
			progress(*line.Progress)
		}
	}
}

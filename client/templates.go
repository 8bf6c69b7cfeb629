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
	done, err := c.job(ctx, "import template", "/templates/import", url.Values{"name": {name}}, body,
		progress)
	return done.template(), err
}

// PullTemplate implements carrel.Templates. The daemon pulls the image.
func (c *Client) PullTemplate(ctx context.Context, name, image string, progress func(carrel.Progress)) (carrel.Template, error) {
	return c.PullImage(ctx, name, carrel.PullOptions{Image: image}, progress)
}

// PullImage implements carrel.Registries. The daemon pulls the image.
func (c *Client) PullImage(ctx context.Context, name string, opts carrel.PullOptions,
	progress func(carrel.Progress)) (carrel.Template, error) {
	body := struct {
		Name string `json:"name"`
		carrel.PullOptions
	}{name, opts}
	done, err := c.job(ctx, "pull template", "/templates/pull", nil, body, progress)
	return done.template(), err
}

// PushTemplate implements carrel.Registries. The daemon pushes the template.
func (c *Client) PushTemplate(ctx context.Context, nameOrID string, opts carrel.PushOptions,
	progress func(carrel.Progress)) (carrel.Pushed, error) {
	const op = "push template"
	if nameOrID == "" {
		return carrel.Pushed{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "name",
			Err: errors.New("empty")}
	}
	done, err := c.job(ctx, op, "/templates/"+url.PathEscape(nameOrID)+"/push", nil, opts, progress)
	if err != nil || done.Pushed == nil {
		return carrel.Pushed{}, err
	}
	return *done.Pushed, nil
}

// jobLine is one line of a job's answer.
type jobLine struct {
	Progress *carrel.Progress `json:"progress"`
	Template *carrel.Template `json:"template"`
	Pushed   *carrel.Pushed   `json:"pushed"`
	Error    *wireError       `json:"error"`
}

func (l jobLine) template() carrel.Template {
	if l.Template == nil {
		return carrel.Template{}
	}
	return *l.Template
}

// job starts a long job and reads its lines up to the result, which it returns.
func (c *Client) job(ctx context.Context, op, path string, q url.Values, body any,
	progress func(carrel.Progress)) (jobLine, error) {
	resp, err := c.send(ctx, op, http.MethodPost, path, q, body)
	if err != nil {
		return jobLine{}, err
	}
	defer resp.Body.Close()
	lines := jsonLines(resp.Body)
	for {
		var line jobLine
		_, err := lines(&line)
		switch {
		case err != nil:
			return jobLine{}, c.fail(ctx, op, err)
		case line.Error != nil:
			return jobLine{}, line.Error.restore(op)
		case line.Template != nil, line.Pushed != nil:
			return line, nil
		case line.Progress != nil && progress != nil:
			progress(*line.Progress)
		}
	}
}

package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/carrel-dev/carrel"
)

// Preparation are the steps of a build before its start, as E2B's clients take them: a build that
// waits, and the archives of its COPY instructions. [Client.StartBuild] with the build's ID is next.
type Preparation struct{ c *Client }

// PreparationOf returns the first steps of builds at a client's daemon.
func PreparationOf(c *Client) Preparation { return Preparation{c} }

// NewBuild makes a build that waits for its start. Of the options, it takes name, tags and sizes.
func (p Preparation) NewBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	const op = "create template"
	raw, err := json.Marshal(map[string]any{"name": spec.Name, "tags": spec.Tags, "cpuCount": int(spec.CPUs),
		"memoryMB": spec.MemoryMB, "minFreeDiskMb": spec.MinFreeDiskMB})
	if err != nil {
		return carrel.Build{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Err: err}
	}
	var made struct {
		BuildID string `json:"buildID"`
	}
	if err := p.call(ctx, op, http.MethodPost, "/v3/templates", strings.NewReader(string(raw)), &made); err != nil {
		return carrel.Build{}, err
	}
	return p.c.GetBuild(ctx, made.BuildID)
}

// uploadAnswer says whether an archive is there, and where to send it.
type uploadAnswer struct {
	Present bool   `json:"present"`
	URL     string `json:"url"`
}

// look asks for an archive.
func (p Preparation) look(ctx context.Context, op, template, name string) (out uploadAnswer, err error) {
	err = p.call(ctx, op, http.MethodGet, "/templates/"+url.PathEscape(template)+"/files/"+url.PathEscape(name), nil, &out)
	return out, err
}

// HasUpload reports whether the archive with a name is there, for the builds of a template.
func (p Preparation) HasUpload(ctx context.Context, template, name string) (bool, error) {
	got, err := p.look(ctx, "look for files", template, name)
	return got.Present, err
}

// PutUpload sends an archive for the builds of a template. It goes to the client's own daemon,
// whatever host that names.
func (p Preparation) PutUpload(ctx context.Context, template, name string, r io.Reader) error {
	const op = "upload files"
	got, err := p.look(ctx, op, template, name)
	if err != nil {
		return err
	}
	to, err := url.Parse(got.URL)
	if err != nil || !strings.HasPrefix(to.Path, uploads) || strings.Contains(to.Path[len(uploads):], "/") {
		return p.c.fail(ctx, op, errors.New("the daemon names no place for the files"))
	}
	return p.call(ctx, op, http.MethodPut, to.EscapedPath(), struct{ io.Reader }{r}, nil)
}

// uploads begins the paths of uploads.
const uploads = ownAPI + "/uploads/"

// call sends a request to a route of E2B's.
func (p Preparation) call(ctx context.Context, op, method, path string, body io.Reader, out any) error {
	kind := "application/json"
	if body == nil {
		kind = ""
	}
	resp, err := p.c.sendTyped(ctx, op, method, path, nil, body, kind)
	if err != nil {
		return err
	}
	return readAnswer(ctx, p.c, op, resp, out)
}

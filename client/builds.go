package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

// buildCalls are a Client's calls about builds and tags of templates.
type buildCalls struct{ c *Client }

// StartBuild implements carrel.Builder. It sends the options and then the context, in one request.
func (p buildCalls) StartBuild(ctx context.Context, spec carrel.BuildSpec) (carrel.Build, error) {
	const op = "build template"
	raw, err := json.Marshal(spec)
	if err != nil {
		return carrel.Build{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Err: err}
	}
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(writeBuild(form, raw, spec.Context))
	}()
	defer func() {
		_ = r.CloseWithError(errors.New("the daemon has answered"))
		<-done
	}()
	resp, err := p.c.sendTyped(ctx, op, http.MethodPost, ownAPI+"/builds", nil, struct{ io.Reader }{r},
		form.FormDataContentType())
	if err != nil {
		return carrel.Build{}, err
	}
	defer resp.Body.Close()
	var b carrel.Build
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&b); err != nil {
		return b, p.c.fail(ctx, op, err)
	}
	return b, nil
}

// writeBuild writes the parts of a build's request.
func writeBuild(form *multipart.Writer, options []byte, files io.Reader) error {
	part, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="options"`}, "Content-Type": {"application/json"}})
	if err == nil {
		_, err = part.Write(options)
	}
	if err == nil && files != nil {
		part, err = form.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {`form-data; name="context"`}, "Content-Type": {"application/x-tar"}})
		if err == nil {
			_, err = io.Copy(part, files)
		}
	}
	if err == nil {
		err = form.Close()
	}
	return err
}

// GetBuild implements carrel.Builder.
func (p buildCalls) GetBuild(ctx context.Context, id string) (carrel.Build, error) {
	var b carrel.Build
	err := p.c.call(ctx, "get build", http.MethodGet, "/builds/"+url.PathEscape(id), nil, nil, &b)
	return b, err
}

// ListBuilds implements carrel.Builder.
func (p buildCalls) ListBuilds(ctx context.Context,
	opts carrel.BuildListOptions) ([]carrel.Build, error) {
	q := url.Values{}
	if opts.Template != "" {
		q.Set("template", opts.Template)
	}
	for _, s := range opts.States {
		q.Add("state", string(s))
	}
	if opts.Limit != 0 {
		q.Set("limit", strconv.Itoa(opts.Limit))
	}
	var all []carrel.Build
	err := p.c.call(ctx, "list builds", http.MethodGet, "/builds", q, nil, &all)
	return all, err
}

// CancelBuild implements carrel.Builder.
func (p buildCalls) CancelBuild(ctx context.Context, id string) (carrel.Build, error) {
	var b carrel.Build
	err := p.c.call(ctx, "cancel build", http.MethodPost, "/builds/"+url.PathEscape(id)+"/cancel", nil,
		nil, &b)
	return b, err
}

// BuildLogs implements carrel.Builder. If a followed stream breaks, the client continues it after
// the last line that came.
func (p buildCalls) BuildLogs(ctx context.Context, id string,
	opts carrel.BuildLogOptions) iter.Seq2[carrel.BuildLog, error] {
	return following(ctx, opts.Follow, func(yield func(carrel.BuildLog) bool) (bool, bool, error) {
		return p.buildLogStream(ctx, id, &opts, yield)
	})
}

// buildLogStream reads one connection's lines and counts them in opts.Offset. It reports whether
// there was a connection and whether the stream is complete.
func (p buildCalls) buildLogStream(ctx context.Context, id string, opts *carrel.BuildLogOptions,
	yield func(carrel.BuildLog) bool) (connected, done bool, err error) {
	const op = "read build log"
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := url.Values{}
	if opts.Offset != 0 {
		q.Set("offset", strconv.Itoa(opts.Offset))
	}
	if opts.Limit != 0 {
		q.Set("limit", strconv.Itoa(opts.Limit))
	}
	if opts.MinLevel != "" {
		q.Set("level", opts.MinLevel)
	}
	if opts.Follow {
		q.Set("follow", "true")
	}
	resp, err := p.c.send(ctx, op, http.MethodGet, "/builds/"+url.PathEscape(id)+"/logs", q, nil)
	if err != nil {
		return false, false, err
	}
	defer resp.Body.Close()
	body := &answerBody{Reader: resp.Body}
	if opts.Follow {
		body.alarm = time.AfterFunc(silence, cancel)
		defer body.alarm.Stop()
	}
	lines := jsonLines(body)
	for {
		var line struct {
			Log   *carrel.BuildLog `json:"log"`
			Next  int              `json:"next"`
			End   bool             `json:"end"`
			Error *wireError       `json:"error"`
		}
		_, err := lines(&line)
		switch {
		case err != nil:
			return true, false, p.c.fail(outer, op, err)
		case line.End:
			return true, true, nil
		case line.Error != nil:
			return true, false, line.Error.restore(op)
		case line.Log != nil:
			opts.Offset = line.Next
			if !yield(*line.Log) {
				return true, true, nil
			}
		}
	}
}

// TagTemplate implements carrel.Builder.
func (p buildCalls) TagTemplate(ctx context.Context, target string,
	tags []string) (carrel.TemplateTag, error) {
	var t carrel.TemplateTag
	err := p.c.call(ctx, "tag template", http.MethodPost, "/template-tags", nil,
		map[string]any{"target": target, "tags": tags}, &t)
	return t, err
}

// UntagTemplate implements carrel.Builder.
func (p buildCalls) UntagTemplate(ctx context.Context, nameOrID string, tags []string) error {
	return p.c.call(ctx, "remove tag", http.MethodDelete, "/template-tags", nil,
		map[string]any{"name": nameOrID, "tags": tags}, nil)
}

// TemplateTags implements carrel.Builder.
func (p buildCalls) TemplateTags(ctx context.Context,
	nameOrID string) ([]carrel.TemplateTag, error) {
	var all []carrel.TemplateTag
	err := p.c.call(ctx, "list tags", http.MethodGet, "/templates/"+url.PathEscape(nameOrID)+"/tags",
		nil, nil, &all)
	return all, err
}

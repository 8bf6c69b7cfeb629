package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"sync"

	"github.com/carrel-dev/carrel"
)

// buildRoutes are our own routes about builds.
type buildRoutes struct{ *Server }

func (s buildRoutes) add(v1 string) {
	s.handle("POST"+v1+"/builds", s.start)
	s.handle("GET"+v1+"/builds", s.list)
	s.handle("GET"+v1+"/builds/{id}", s.get)
	s.handle("POST"+v1+"/builds/{id}/cancel", s.cancel)
	s.handle("GET"+v1+"/builds/{id}/logs", s.logs)
	s.handle("POST"+v1+"/template-tags", s.tag)
	s.handle("DELETE"+v1+"/template-tags", s.untag)
	s.handle("GET"+v1+"/templates/{name}/tags", s.tags)
}

// start begins a build. The request is a form whose first part is the options in JSON, and whose
// second part, which may be missing, is the context: a tar stream. A request in plain JSON has
// only the options.
func (s buildRoutes) start(w http.ResponseWriter, r *http.Request) error {
	var spec carrel.BuildSpec
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind != "multipart/form-data":
		if err := decodeStrict(w, r, &spec, false); err != nil {
			return err
		}
	default:
		if params["boundary"] == "" {
			return invalid("body", "the form names no boundary")
		}
		rc := http.NewResponseController(w)
		form := multipart.NewReader(&patientReader{r: r.Body, rc: rc}, params["boundary"])
		if err := readBuildOptions(form, &spec); err != nil {
			return err
		}
		part, err := form.NextPart()
		switch {
		case err == nil && part.FormName() == "context":
			spec.Context = part
		case err == nil:
			return invalid("body", "%q is no part of a build: the first is options, the second context",
				clip(part.FormName()))
		case !errors.Is(err, io.EOF):
			return invalid("body", "the form broke off: %s", err)
		}
	}
	b, err := s.opts.Service.StartBuild(r.Context(), spec)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, b)
	return nil
}

// readBuildOptions reads the first part of a build's form.
func readBuildOptions(form *multipart.Reader, spec *carrel.BuildSpec) error {
	part, err := form.NextPart()
	if err != nil || part.FormName() != "options" {
		return invalid("options", "missing: it is the first part of the form")
	}
	raw, err := io.ReadAll(io.LimitReader(part, maxBody+1))
	switch {
	case err != nil:
		return invalid("options", "the form broke off: %s", err)
	case len(raw) > maxBody:
		return invalid("options", "larger than %d bytes", maxBody)
	}
	if err := checkDepth(raw); err != nil {
		return invalid("options", "%s", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(spec); err != nil {
		return describe(err)
	}
	return nil
}

func (s buildRoutes) list(w http.ResponseWriter, r *http.Request) (err error) {
	q := r.URL.Query()
	opts := carrel.BuildListOptions{Template: q.Get("template")}
	for _, name := range q["state"] {
		opts.States = append(opts.States, carrel.BuildState(name))
	}
	if opts.Limit, err = wholeNumber(q.Get("limit"), "limit"); err != nil {
		return err
	}
	all, err := s.opts.Service.ListBuilds(r.Context(), opts)
	if err != nil {
		return err
	}
	if all == nil {
		all = []carrel.Build{}
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

// wholeNumber reads a number that is not negative; "" is 0.
func wholeNumber(text, field string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, invalid(field, "%q is not a whole number", clip(text))
	}
	return n, nil
}

func (s buildRoutes) get(w http.ResponseWriter, r *http.Request) error {
	b, err := s.opts.Service.GetBuild(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, b)
	return nil
}

func (s buildRoutes) cancel(w http.ResponseWriter, r *http.Request) error {
	b, err := s.opts.Service.CancelBuild(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, b)
	return nil
}

// buildLogLine is one line of the stream of a build's log. Exactly one of Log, End and Error is
// there.
type buildLogLine struct {
	Log   *carrel.BuildLog `json:"log,omitempty"`
	Next  int              `json:"next,omitempty"` // the offset after this line
	End   bool             `json:"end,omitempty"`
	Error *errorBody       `json:"error,omitempty"`
}

// logs streams a build's log as JSON lines.
func (s buildRoutes) logs(w http.ResponseWriter, r *http.Request) (err error) {
	q := r.URL.Query()
	opts := carrel.BuildLogOptions{MinLevel: q.Get("level")}
	if opts.Offset, err = wholeNumber(q.Get("offset"), "offset"); err != nil {
		return err
	}
	if opts.Limit, err = wholeNumber(q.Get("limit"), "limit"); err != nil {
		return err
	}
	if opts.Follow, err = boolean(q, "follow"); err != nil {
		return err
	}
	id := r.PathValue("id")
	if _, err := s.opts.Service.GetBuild(r.Context(), id); err != nil {
		return err
	}
	ctx, cancel := s.stopping(r.Context())
	defer cancel()
	out := startLines(w)
	var beat sync.WaitGroup
	beat.Go(func() { out.beat(ctx, cancel) })
	s.streamLog(ctx, r, id, opts, out)
	cancel()
	beat.Wait()
	return nil
}

// streamLog writes the lines. A stream that is complete ends with a line that says so.
func (s buildRoutes) streamLog(ctx context.Context, r *http.Request, id string,
	opts carrel.BuildLogOptions, out *lines) {
	next := opts.Offset
	for l, err := range s.opts.Service.BuildLogs(ctx, id, opts) {
		if err != nil {
			if ctx.Err() == nil {
				_, body := s.render(r, err)
				_ = out.write(buildLogLine{Error: &body})
			}
			return
		}
		next++
		if out.write(buildLogLine{Log: &l, Next: next}) != nil {
			return
		}
	}
	if ctx.Err() == nil {
		_ = out.write(buildLogLine{End: true})
	}
}

// tagIn names tags of a template.
type tagIn struct {
	Target string   `json:"target"` // name, name:tag or ID
	Tags   []string `json:"tags"`
}

func (s buildRoutes) tag(w http.ResponseWriter, r *http.Request) error {
	var body tagIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	t, err := s.opts.Service.TagTemplate(r.Context(), body.Target, body.Tags)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, t)
	return nil
}

// untagIn names tags that go.
type untagIn struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

func (s buildRoutes) untag(w http.ResponseWriter, r *http.Request) error {
	var body untagIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	if err := s.opts.Service.UntagTemplate(r.Context(), body.Name, body.Tags); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s buildRoutes) tags(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Service.TemplateTags(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	if all == nil {
		all = []carrel.TemplateTag{}
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

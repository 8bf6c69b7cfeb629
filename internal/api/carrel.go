package api

import (
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

func (s *Server) carrelRoutes() {
	const v1 = " /carrel/v1"
	s.handle("GET"+v1+"/version", s.version)
	s.handleAdmin("GET"+v1+"/doctor", s.doctor)
	s.handle("GET"+v1+"/pool", s.pool)
	s.handle("GET"+v1+"/unclaimed", s.unclaimed)
	s.handle("POST"+v1+"/unclaimed/{id}/reclaim", s.reclaim)
	s.handle("DELETE"+v1+"/unclaimed/{id}", s.discard)
	s.handleAdmin("GET"+v1+"/admission", s.admission)
	s.handleAdmin("GET"+v1+"/metrics", s.prometheus)
	s.handleAdmin("GET /metrics", s.prometheus)
	s.handleAdmin("GET"+v1+"/debug/pprof/{profile}", s.debugProfile)
	s.handle("POST"+v1+"/sandboxes", s.createOurs)
	s.handle("GET"+v1+"/sandboxes", s.listOurs)
	s.handle("GET"+v1+"/sandboxes/{id}", s.getOurs)
	s.handle("DELETE"+v1+"/sandboxes/{id}", s.killOurs)
	s.handle("POST"+v1+"/sandboxes/{id}/timeout", s.timeoutOurs)
	s.handle("PUT"+v1+"/sandboxes/{id}/network", s.networkOurs)
	s.handle("GET"+v1+"/sandboxes/{id}/metrics", s.metricsOurs)
	s.handle("GET"+v1+"/sandboxes/{id}/logs", s.logsOurs)
	s.handle("GET"+v1+"/sandboxes/{id}/trace", s.traceOurs)
	s.handle("GET"+v1+"/sandboxes/{id}/dial/{port}", s.dial)
	s.handle("GET"+v1+"/events", s.events)
	s.handle("GET"+v1+"/templates", s.templatesOurs)
	s.handle("GET"+v1+"/templates/{name}", s.templateOurs)
	s.handle("PATCH"+v1+"/templates/{name}", s.updateTemplateOurs)
	s.handle("DELETE"+v1+"/templates/{name}", s.deleteTemplateOurs)
	s.handle("POST"+v1+"/templates/import", s.importTemplate)
	s.handle("POST"+v1+"/templates/pull", s.pullTemplate)
	s.handle("POST"+v1+"/templates/{name}/push", s.pushTemplate)
	momentRoutes{s}.add(v1)
	outputRoutes{s}.add(v1)
	buildRoutes{s}.add(v1)
	catalogRoutes{s}.add(v1)
	usageRoutes{s}.add(v1)
	s.programRoutes(v1)
	s.sshKeyRoutes(v1)
	s.auditRoutes()
}

// versionBody says which daemon answers.
type versionBody struct {
	Version string `json:"version"`
	Envd    string `json:"envd"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, versionBody{s.opts.Version, carrel.EnvdVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH})
	return nil
}

func (s *Server) doctor(w http.ResponseWriter, r *http.Request) error {
	if s.opts.Doctor == nil {
		return later("", "doctor")
	}
	rows, err := s.opts.Doctor(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, rows)
	return nil
}

// pageBody is carrel.Page in JSON.
type pageBody struct {
	Sandboxes []carrel.Sandbox `json:"sandboxes"`
	Next      string           `json:"next,omitempty"`
	Running   int              `json:"running"`
	Missing   []string         `json:"missing,omitempty"`
}

func (s *Server) listOurs(w http.ResponseWriter, r *http.Request) error {
	opts, err := ourListOptions(r.URL.Query())
	if err != nil {
		return err
	}
	page, err := s.opts.Service.List(r.Context(), opts)
	if err != nil {
		return err
	}
	if page.Sandboxes == nil {
		page.Sandboxes = []carrel.Sandbox{}
	}
	writeJSON(w, http.StatusOK, pageBody(page))
	return nil
}

// ourListOptions reads carrel.ListOptions from a query. Metadata is one URL-encoded text of pairs.
// States are separated by commas.
func ourListOptions(q url.Values) (carrel.ListOptions, error) {
	opts := carrel.ListOptions{Match: q.Get("match"), Template: q.Get("template"), Project: q.Get("project"), Cursor: q.Get("cursor")}
	if v := q.Get("metadata"); v != "" {
		pairs, err := url.ParseQuery(v)
		if err != nil {
			return opts, invalid("metadata", "%s", err)
		}
		opts.Metadata = make(map[string]string, len(pairs))
		for k, vs := range pairs {
			opts.Metadata[k] = vs[len(vs)-1]
		}
	}
	for name := range strings.SplitSeq(q.Get("state"), ",") {
		switch st := carrel.State(name); st {
		case carrel.Starting, carrel.Running, carrel.Pausing, carrel.Paused, carrel.Resuming, carrel.Stopping:
			opts.States = append(opts.States, st)
		case "":
		default:
			return opts, invalid("state", "%q is not a state", clip(name))
		}
	}
	var err error
	if opts.StartedAfter, err = textTime(q, "startedAfter"); err != nil {
		return opts, err
	}
	if opts.OldestFirst, err = boolean(q, "oldestFirst"); err != nil {
		return opts, err
	}
	if opts.Builds, err = boolean(q, "builds"); err != nil {
		return opts, err
	}
	if v := q.Get("limit"); v != "" {
		if opts.Limit, err = strconv.Atoi(v); err != nil || opts.Limit < 0 || opts.Limit > maxPage {
			return opts, invalid("limit", "%q is not a whole number from 0 to %d", clip(v), maxPage)
		}
	}
	return opts, nil
}

func textTime(q url.Values, name string) (time.Time, error) {
	v := q.Get(name)
	if v == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return t, invalid(name, "%q is not an RFC 3339 time", clip(v))
	}
	return t, nil
}

func boolean(q url.Values, name string) (bool, error) {
	v := q.Get(name)
	if v == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, invalid(name, "%q is neither true nor false", clip(v))
	}
	return b, nil
}

func (s *Server) getOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	sb, err := s.opts.Service.Get(r.Context(), id)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, sb)
	return nil
}

func (s *Server) killOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	if err := s.opts.Service.Kill(r.Context(), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// timeoutIn says how long a sandbox is to live from now on.
type timeoutIn struct {
	Timeout    span `json:"timeout"`
	ExtendOnly bool `json:"extendOnly"`
}

func (s *Server) timeoutOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var body timeoutIn
	if err := decodeStrict(w, r, &body, false); err != nil {
		return err
	}
	if body.Timeout == nil {
		return invalid("timeout", "missing")
	}
	d, err := body.Timeout.duration("timeout", s.opts.MaxTimeout)
	if err != nil {
		return err
	}
	sb, err := s.opts.Service.SetTimeout(r.Context(), id, d, body.ExtendOnly)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, sb)
	return nil
}

func (s *Server) metricsOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	from, err := textTime(r.URL.Query(), "from")
	if err != nil {
		return err
	}
	to, err := textTime(r.URL.Query(), "to")
	if err != nil {
		return err
	}
	samples, err := s.opts.Service.Metrics(r.Context(), id, from, to)
	if err != nil {
		return err
	}
	if samples == nil {
		samples = []carrel.Metric{}
	}
	writeJSON(w, http.StatusOK, samples)
	return nil
}

func (s *Server) logsOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	var opts carrel.LogOptions
	if opts.Since, err = textTime(q, "since"); err != nil {
		return err
	}
	if opts.Until, err = textTime(q, "until"); err != nil {
		return err
	}
	if opts.NewestFirst, err = boolean(q, "newestFirst"); err != nil {
		return err
	}
	if v := q.Get("limit"); v != "" {
		if opts.Limit, err = strconv.Atoi(v); err != nil || opts.Limit < 0 {
			return invalid("limit", "%q is not a whole number", clip(v))
		}
	}
	entries, err := s.opts.Service.Logs(r.Context(), id, opts)
	if err != nil {
		return err
	}
	if entries == nil {
		entries = []carrel.LogEntry{}
	}
	writeJSON(w, http.StatusOK, entries)
	return nil
}

// traceOurs also answers for a sandbox that is gone, as long as it has traces, because users ask
// about a failure afterwards.
func (s *Server) traceOurs(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	traces, err := s.opts.Service.Traces(r.Context(), id)
	if err != nil {
		return err
	}
	if traces == nil {
		traces = []carrel.Trace{}
	}
	writeJSON(w, http.StatusOK, traces)
	return nil
}

func (s *Server) templatesOurs(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Service.ListTemplates(r.Context())
	if err != nil {
		return err
	}
	if all == nil {
		all = []carrel.Template{}
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

func (s *Server) templateOurs(w http.ResponseWriter, r *http.Request) error {
	t, err := s.opts.Service.GetTemplate(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, t)
	return nil
}

// updateTemplateOurs changes how a template starts.
func (s *Server) updateTemplateOurs(w http.ResponseWriter, r *http.Request) error {
	var u carrel.TemplateUpdate
	if err := decodeStrict(w, r, &u, false); err != nil {
		return err
	}
	if u == (carrel.TemplateUpdate{}) {
		return invalid("start", "missing, and ready and public too: nothing to change")
	}
	t, err := s.opts.Service.UpdateTemplate(r.Context(), r.PathValue("name"), u)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, t)
	return nil
}

func (s *Server) deleteTemplateOurs(w http.ResponseWriter, r *http.Request) error {
	if err := s.opts.Service.DeleteTemplate(r.Context(), r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

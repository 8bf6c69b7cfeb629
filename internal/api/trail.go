package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/carrel-dev/carrel"
)

// trailRoutes are the routes of the audit trail.
type trailRoutes struct{ *Server }

func (s trailRoutes) add() {
	const v1 = " /carrel/v1"
	s.handle("GET"+v1+"/trail", s.records)
	s.handle("GET"+v1+"/trail/verify", s.verify)
}

// records answers with records, one a line, as they were written: only these bytes have their hash.
func (s trailRoutes) records(w http.ResponseWriter, r *http.Request) error {
	opts, err := trailOptions(r.URL.Query())
	if err != nil {
		return err
	}
	var out *lines
	ctx, cancel := s.stopping(r.Context())
	defer cancel()
	for rec, err := range s.opts.Trails.Trail(ctx, opts) {
		switch {
		case err != nil && out == nil:
			return err
		case err != nil:
			_, body := s.render(r, err)
			_ = out.write(auditLine{Error: &body}) // not to be taken for the end
			return nil
		}
		if out == nil {
			out = startLines(w)
		}
		if _, err := out.w.Write(append(rec.Line, '\n')); err != nil {
			return nil // the client left
		}
	}
	if out == nil {
		startLines(w)
	}
	return nil
}

func (s trailRoutes) verify(w http.ResponseWriter, r *http.Request) error {
	report, err := s.opts.Trails.VerifyTrail(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, report)
	return nil
}

// trailParameters are the query's parameters. Any other is an error.
var trailParameters = []string{"project", "key", "kind", "op", "target", "since", "until", "after", "limit"}

func trailOptions(q url.Values) (o carrel.TrailOptions, err error) {
	for name, values := range q {
		if !slices.Contains(trailParameters, name) {
			return o, invalid(clip(name), "there is no such parameter")
		}
		if len(values) > 1 {
			return o, invalid(name, "given more than once")
		}
	}
	o = carrel.TrailOptions{Project: q.Get("project"), Key: q.Get("key"), Kind: q.Get("kind"), Op: q.Get("op"), Target: q.Get("target")}
	if o.Since, err = textTime(q, "since"); err != nil {
		return o, err
	}
	if o.Until, err = textTime(q, "until"); err != nil {
		return o, err
	}
	if v := q.Get("after"); v != "" {
		if o.After, err = strconv.ParseInt(v, 10, 64); err != nil || o.After < 0 {
			return o, invalid("after", "%q is not the number of a record", clip(v))
		}
	}
	if v := q.Get("limit"); v != "" {
		if o.Limit, err = strconv.Atoi(v); err != nil || o.Limit < -1 {
			return o, invalid("limit", "%q is not a whole number, or -1 for all", clip(v))
		}
	}
	return o, nil
}

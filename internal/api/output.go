package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

// Bounds on requests for kept output. The guest has bounds of its own, but it is not trusted.
const (
	maxOutput     = 256 << 10        // bytes of one answer
	maxOutputWait = 20 * time.Second // for output that is yet to come
)

// outputRoutes are the routes about the output of processes.
type outputRoutes struct{ *Server }

func (s outputRoutes) add(v1 string) {
	s.handle("GET"+v1+"/sandboxes/{id}/processes", s.records)
	s.handle("GET"+v1+"/sandboxes/{id}/processes/{process}/output", s.output)
}

// awake opens the inside of a running sandbox. It wakes no paused one: a client that only looks at
// output must not keep a sandbox awake that nobody uses.
func (s outputRoutes) awake(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	sb, err := s.opts.Service.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if sb.State == carrel.Paused {
		return nil, &carrel.Error{Op: "read output", Kind: carrel.Conflict, ID: id, Err: errors.New("the sandbox is paused: its output is paused with it"),
			Hint: "resume it first"}
	}
	return s.opts.Service.Computer(ctx, id)
}

// records answers with the processes of a sandbox, including ended ones that it remembers.
func (s outputRoutes) records(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	comp, err := s.awake(r.Context(), id)
	if err != nil {
		return err
	}
	all, err := comp.Records(r.Context())
	if err != nil {
		return err
	}
	if all == nil {
		all = []carrel.ProcessRecord{}
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

// output answers with a piece of a process's output.
func (s outputRoutes) output(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	q, err := outputQuery(r.PathValue("process"), r.URL.Query())
	if err != nil {
		return err
	}
	ctx, cancel := s.stopping(r.Context())
	defer cancel()
	comp, err := s.awake(ctx, id)
	if err != nil {
		return err
	}
	out, err := comp.Output(ctx, q)
	if err != nil {
		return err
	}
	if out.Pieces == nil {
		out.Pieces = []carrel.OutputPiece{}
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// outputQuery reads a request for output from a URL.
func outputQuery(process string, v url.Values) (carrel.OutputQuery, error) {
	q := carrel.OutputQuery{Process: process, Most: maxOutput}
	for name, to := range map[string]*int64{"serial": &q.Serial, "from": &q.From} {
		if text := v.Get(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				return q, invalid(name, "%q is not a whole number", clip(text))
			}
			*to = n
		}
	}
	if text := v.Get("most"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return q, invalid("most", "%q is not a number of bytes", clip(text))
		}
		q.Most = min(n, maxOutput)
	}
	if text := v.Get("wait"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return q, invalid("wait", "%q is not a duration such as 10s", clip(text))
		}
		q.Wait = min(d, maxOutputWait)
	}
	return q, nil
}

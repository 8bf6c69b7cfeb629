package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// maxAudit bounds how many past decisions one request may ask for.
const maxAudit = 1_000_000

// auditLine is one line of the audit log's answer.
type auditLine struct {
	Decision *carrel.Decision `json:"decision,omitempty"`
	Error    *errorBody       `json:"error,omitempty"`
}

func (s *Server) auditRoutes() {
	const v1 = " /carrel/v1"
	s.handle("GET"+v1+"/audit", s.audit)
	s.handle("GET"+v1+"/sandboxes/{id}/audit", s.auditOfOne)
}

// audit streams the audit log.
func (s *Server) audit(w http.ResponseWriter, r *http.Request) error {
	return s.streamAudit(w, r, "")
}

// auditOfOne streams the audit log of one sandbox. It works for a sandbox that is gone too, because
// then its log is most needed.
func (s *Server) auditOfOne(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	return s.streamAudit(w, r, id)
}

// streamAudit answers with one decision a line, of one sandbox or of all. An error in the query is
// an ordinary error answer. A later error is the last line.
func (s *Server) streamAudit(w http.ResponseWriter, r *http.Request, id carrel.ID) error {
	opts, err := auditOptions(r.URL.Query(), id)
	if err != nil {
		return err
	}
	ctx, cancel := s.stopping(r.Context())
	defer cancel()
	if err := s.probeAudit(ctx, opts); err != nil {
		return err
	}
	out := startLines(w)
	var beat sync.WaitGroup
	defer func() { cancel(); beat.Wait() }()
	write := out.add
	if opts.Follow {
		write = out.write
		beat.Go(func() { out.beat(ctx, cancel) })
	}
	for d, err := range s.opts.Service.Audit(ctx, opts) {
		if err != nil && ctx.Err() == nil {
			_, body := s.render(r, err)
			_ = out.write(auditLine{Error: &body})
		}
		if err != nil {
			break
		}
		if write(auditLine{Decision: &d}) != nil {
			return nil
		}
	}
	if ctx.Err() != nil && r.Context().Err() == nil {
		_, body := s.render(r, &carrel.Error{Op: "read audit log", Kind: carrel.Unavailable, Err: errors.New("the daemon is stopping")})
		_ = out.write(auditLine{Error: &body}) // not to be taken for the log's end
	}
	return nil
}

// probeAudit finds errors in a query before the answer begins. It runs the query for decisions
// after the last possible one.
func (s *Server) probeAudit(ctx context.Context, opts carrel.AuditOptions) error {
	opts.Follow, opts.After = false, math.MaxInt64-1
	for _, err := range s.opts.Service.Audit(ctx, opts) {
		if ce, ok := errors.AsType[*carrel.Error](err); ok && ce.Kind == carrel.Invalid {
			field := ce.Field
			if field == "id" {
				field = "sandbox"
			}
			return invalid(field, "%v", ce.Err)
		}
		return err
	}
	return nil
}

// add writes v as write does, but sends it only with the next line.
func (l *lines) add(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_ = l.rc.SetWriteDeadline(time.Now().Add(writeStall))
	_, err = l.w.Write(append(raw, '\n'))
	return err
}

// beat writes blank lines until ctx ends. It ends ctx when the client does not read them.
func (l *lines) beat(ctx context.Context, cancel context.CancelFunc) {
	t := time.NewTicker(heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if l.write(nil) != nil {
				cancel()
			}
		case <-ctx.Done():
			return
		}
	}
}

// auditParameters are the query's parameters. Any other is an error, because the answer would not
// be the intended one.
var auditParameters = []string{"since", "until", "verdict", "host", "rule", "secret", "sandbox", "project", "after", "limit", "follow"}

// auditOptions reads a query of the audit log.
func auditOptions(q url.Values, id carrel.ID) (carrel.AuditOptions, error) {
	for name, values := range q {
		if !slices.Contains(auditParameters, name) {
			return carrel.AuditOptions{}, invalid(clip(name), "there is no such parameter")
		}
		if len(values) > 1 {
			return carrel.AuditOptions{}, invalid(name, "given more than once")
		}
	}
	opts := carrel.AuditOptions{ID: id, Host: q.Get("host"), Rule: q.Get("rule"), Secret: q.Get("secret"), Project: q.Get("project")}
	if v := q.Get("sandbox"); v != "" {
		if id != "" && v != string(id) {
			return opts, invalid("sandbox", "%q is not the sandbox of the path", clip(v))
		}
		parsed, err := carrel.ParseID(v)
		if err != nil {
			return opts, invalid("sandbox", "%q is not a sandbox ID", clip(v))
		}
		opts.ID = parsed
	}
	switch v := q.Get("verdict"); v {
	case "":
	case "allowed", "denied":
		allowed := v == "allowed"
		opts.Allowed = &allowed
	default:
		return opts, invalid("verdict", "%q is neither allowed nor denied", clip(v))
	}
	var err error
	if opts.Since, err = textTime(q, "since"); err != nil {
		return opts, err
	}
	if opts.Until, err = textTime(q, "until"); err != nil {
		return opts, err
	}
	if opts.Follow, err = boolean(q, "follow"); err != nil {
		return opts, err
	}
	if v := q.Get("after"); v != "" {
		if opts.After, err = strconv.ParseInt(v, 10, 64); err != nil || opts.After < 0 {
			return opts, invalid("after", "%q is not the number of a decision", clip(v))
		}
	}
	if v := q.Get("limit"); v != "" {
		if opts.Limit, err = strconv.Atoi(v); err != nil || opts.Limit < 0 || opts.Limit > maxAudit {
			return opts, invalid("limit", "%q is not a whole number from 0 to %d", clip(v), maxAudit)
		}
	}
	return opts, nil
}

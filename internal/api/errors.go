package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// statuses is the one table from error kinds to HTTP statuses.
var statuses = map[carrel.Kind]int{
	carrel.Internal:        http.StatusInternalServerError,
	carrel.Invalid:         http.StatusBadRequest,
	carrel.Unauthenticated: http.StatusUnauthorized,
	carrel.Forbidden:       http.StatusForbidden,
	carrel.Denied:          http.StatusForbidden,
	carrel.NotFound:        http.StatusNotFound,
	carrel.AlreadyExists:   http.StatusConflict,
	carrel.Conflict:        http.StatusConflict,
	carrel.Exhausted:       http.StatusTooManyRequests,
	carrel.Unavailable:     http.StatusServiceUnavailable,
	carrel.Unsupported:     http.StatusNotImplemented,
	carrel.TimedOut:        http.StatusGatewayTimeout,
}

// errorBody is E2B's error with what we know beyond it.
type errorBody struct {
	Code    int         `json:"code"`
	Message string      `json:"message"`
	Kind    carrel.Kind `json:"kind,omitempty"`
	Op      string      `json:"op,omitempty"`
	ID      carrel.ID   `json:"id,omitempty"`
	Field   string      `json:"field,omitempty"`
	Hint    string      `json:"hint,omitempty"`
	// RetryAfter is the header of that name, in seconds.
	RetryAfter int `json:"retryAfter,omitempty"`
	// Cause is the message without the operation, sandbox and field above, for
	// package client to restore the error from.
	Cause string `json:"cause,omitempty"`
}

// problem is an error whose message is shown as it is: E2B's own texts.
type problem struct {
	status int
	body   errorBody
}

func (p *problem) Error() string { return p.body.Message }

// tell returns a problem with one of E2B's texts.
func tell(kind carrel.Kind, format string, args ...any) *problem {
	return &problem{status: statuses[kind], body: errorBody{Code: statuses[kind], Message: fmt.Sprintf(format, args...), Kind: kind}}
}

// invalid is a 400 that names the field.
func invalid(field, format string, args ...any) *problem {
	p := tell(carrel.Invalid, field+": "+format, args...)
	p.body.Field = field
	return p
}

// sandboxNotFound has the text that E2B's has.
func sandboxNotFound(id string) *problem {
	p := tell(carrel.NotFound, "Sandbox %q doesn't exist or you don't have access to it", clip(id))
	p.body.ID = carrel.ID(clip(id))
	return p
}

// templateNotFound has the text that E2B's has.
func templateNotFound(name string) *problem {
	p := tell(carrel.NotFound, "template '%s' not found", clip(name))
	p.body.Field = "templateID"
	p.body.Hint = "list them with: carrel template ls"
	return p
}

// clip bounds what an error repeats of a request.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// render turns any error into what the client is told. A fault of ours is told
// without its cause, which may name things of the host; the log has it under the
// same reference.
func (s *Server) render(r *http.Request, err error) (int, errorBody) {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.status, p.body
	}
	kind := carrel.KindOf(err)
	status, known := statuses[kind]
	if !known {
		kind, status = carrel.Internal, http.StatusInternalServerError
	}
	body := errorBody{Code: status, Kind: kind, Hint: carrel.HintOf(err), RetryAfter: seconds(carrel.RetryAfterOf(err))}
	body.Cause = string(kind)
	if ce, ok := errors.AsType[*carrel.Error](err); ok {
		body.Op, body.ID, body.Field = ce.Op, ce.ID, ce.Field
		if ce.Err != nil {
			body.Cause = ce.Error() // and not Err's text, which may repeat what is above
			for _, said := range []string{ce.Op, string(ce.ID), ce.Field} {
				if said != "" {
					body.Cause = strings.TrimPrefix(body.Cause, said+": ")
				}
			}
		}
	}
	if kind == carrel.Internal {
		ref := reference()
		s.opts.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "ref", ref, "err", err)
		body.Cause = "internal error (reference " + ref + ", see the daemon's log)"
		body.Message = body.Cause
		if body.Op != "" {
			body.Message = body.Op + ": " + body.Message
		}
		return status, body
	}
	body.Message = err.Error()
	return status, body
}

// reference is a short random text that ties an answer to a line of the log.
func reference() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// seconds rounds up: sooner than what it says would be too early.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// retryAfter is, for an error that does not say, the whole number of seconds E2B's SDKs wait after a 429. They
// retry only when it is an integer.
const retryAfter = "1"

// fail answers a request with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // nobody is there to read it
	}
	status, body := s.render(r, err)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		after := retryAfter
		if body.RetryAfter > 0 {
			after = strconv.Itoa(body.RetryAfter)
		}
		w.Header().Set("Retry-After", after)
	}
	writeJSON(w, status, body)
}

// writeJSON answers with one JSON document.
func writeJSON(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil { // our own types always marshal; a NaN in a metric would not
		status, raw = http.StatusInternalServerError, []byte(`{"code":500,"message":"internal error: the answer can't be written as JSON"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store") // answers hold access tokens
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n'))
}

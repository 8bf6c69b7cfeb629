package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/shortage"
)

// statuses is the only table from error kinds to HTTP statuses.
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

// errorBody is E2B's error body, with Carrel's additions.
type errorBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	// ErrorCode is E2B's word for the reason, where its clients know one.
	ErrorCode string      `json:"error_code,omitempty"`
	Kind      carrel.Kind `json:"kind,omitempty"`
	Op        string      `json:"op,omitempty"`
	ID        carrel.ID   `json:"id,omitempty"`
	Field     string      `json:"field,omitempty"`
	Hint      string      `json:"hint,omitempty"`
	// RetryAfter is the value of the Retry-After header, in seconds.
	RetryAfter int `json:"retryAfter,omitempty"`
	// Limit is the limit of a quota that refused the request.
	Limit *carrel.LimitHit `json:"limit,omitempty"`
	// Cause is the message without the operation, sandbox and field above. Package client restores
	// the error from it.
	Cause string `json:"cause,omitempty"`
	// RequestID is the request's ID, in errors that are the daemon's or the machine's. Every answer
	// has it in the header X-Request-Id.
	RequestID string `json:"requestID,omitempty"`
}

// problem is an error whose message is sent unchanged: one of E2B's texts.
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

// sandboxNotFound has E2B's text.
func sandboxNotFound(id string) *problem {
	p := tell(carrel.NotFound, "Sandbox %q doesn't exist or you don't have access to it", clip(id))
	p.body.ID = carrel.ID(clip(id))
	return p
}

// templateNotFound has E2B's text.
func templateNotFound(name string) *problem {
	p := tell(carrel.NotFound, "template '%s' not found", clip(name))
	p.body.Field = "templateID"
	p.body.Hint = "list them with: carrel template ls"
	return p
}

// clip shortens a text from a request for an error.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// render converts any error for the client. An internal error is sent without its cause, which may
// name things of the host. The log has the cause under the same reference.
func (s *Server) render(r *http.Request, err error) (int, errorBody) {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.status, p.body
	}
	if field, _ := shortage.Now(err); carrel.KindOf(err) == carrel.Internal && field != "" {
		s.opts.Log.ErrorContext(r.Context(), "the machine lacks something", "method", r.Method, "path", r.URL.Path, "err",
			err)
		err = shortage.Explain("", "", err)
	}
	kind := carrel.KindOf(err)
	status, known := statuses[kind]
	if !known {
		kind, status = carrel.Internal, http.StatusInternalServerError
	}
	if kind == carrel.Exhausted && shortage.Named(err) {
		status = http.StatusServiceUnavailable // the client did not ask for too much
	}
	body := errorBody{Code: status, Kind: kind, Hint: carrel.HintOf(err), RetryAfter: seconds(carrel.RetryAfterOf(err)),
		Limit: carrel.LimitOf(err)}
	body.Cause = string(kind)
	if ce, ok := errors.AsType[*carrel.Error](err); ok {
		body.Op, body.ID, body.Field = ce.Op, ce.ID, ce.Field
		if ce.Err != nil {
			body.Cause = ce.Error() // not Err's text, which may repeat the fields above
			for _, said := range []string{ce.Op, string(ce.ID), ce.Field} {
				if said != "" {
					body.Cause = strings.TrimPrefix(body.Cause, said+": ")
				}
			}
		}
	}
	if kind == carrel.Internal {
		ref := reference(r)
		s.opts.Log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "ref", ref, "err", err)
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

// reference returns the text that connects an answer with lines of the log: the request's ID.
func reference(r *http.Request) string {
	if i := request.Of(r.Context()); i != nil {
		return i.ID
	}
	return request.New("").ID
}

// seconds rounds up, so that no client tries again too early.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// retryAfter is the wait of E2B's SDKs after a 429 for an error without a time of its own. They
// retry only when it is a whole number of seconds.
const retryAfter = "1"

// fail answers a request with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if cut, ok := errors.AsType[*carrel.Error](context.Cause(r.Context())); ok {
		err = cut // the caller's key ended in the middle of the request
	}
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
	if status >= http.StatusInternalServerError && status != http.StatusNotImplemented {
		body.RequestID = reference(r)
	}
	writeJSON(w, status, body)
}

// writeJSON answers with one JSON document.
func writeJSON(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil { // our own types can be marshalled; a NaN in a metric could not
		status, raw = http.StatusInternalServerError, []byte(`{"code":500,"message":"internal error: the answer can't be written as JSON"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store") // answers hold access tokens
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n'))
}

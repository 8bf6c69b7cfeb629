package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/trace"
)

// deadlineHeader is how long a client will wait for the answer, in milliseconds. A request that
// can't be served in this time is refused at once. E2B's SDKs and Connect's clients know this
// header from the guest's protocol.
const deadlineHeader = "Connect-Timeout-Ms"

// Callers identifies callers. Package access implements it. No other code reads the headers that
// identify the caller.
type Callers interface {
	// Caller returns the caller of a request. Errors: Unauthenticated, Forbidden, Invalid.
	Caller(r *http.Request) (carrel.Caller, error)
	// Shown returns the API key in a request.
	Shown(r *http.Request) string
}

// arrive returns the request with a context that holds its caller, its trace, and its client's
// deadline. done ends the context.
func (s *Server) arrive(r *http.Request) (_ *http.Request, done func(), err error) {
	c, err := s.opts.Callers.Caller(r)
	if err != nil {
		return r, nil, err
	}
	ctx, done := carrel.WithCaller(r.Context(), c), context.CancelFunc(func() {})
	ctx = trace.Arrive(ctx, r.Header.Get("Traceparent"))
	if text := r.Header.Get(deadlineHeader); text != "" && r.Method == http.MethodPost {
		ms, err := strconv.ParseUint(text, 10, 40)
		if err != nil {
			return r, nil, invalid(deadlineHeader, "%q is not a number of milliseconds", clip(text))
		}
		if ms > 0 {
			ctx, done = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		}
	}
	return r.WithContext(ctx), done, nil
}

// admission is GET /carrel/v1/admission.
func (s *Server) admission(w http.ResponseWriter, _ *http.Request) error {
	if s.opts.Admission == nil {
		return later("", "admission")
	}
	writeJSON(w, http.StatusOK, s.opts.Admission())
	return nil
}

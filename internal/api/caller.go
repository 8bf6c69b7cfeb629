package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
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
	// Arrive returns a request's context, with its caller. It ends with the caller's key, and its
	// cause is then an Error of kind Unauthenticated. done gives up the context. The errors are
	// those of Caller.
	Arrive(r *http.Request) (ctx context.Context, done func(), err error)
	// Shown returns the API key in a request.
	Shown(r *http.Request) string
}

// arrive returns the request with a context that holds its caller, its trace, and its client's
// deadline. done ends the context.
func (s *Server) arrive(r *http.Request) (_ *http.Request, done func(), err error) {
	ctx, done, err := s.opts.Callers.Arrive(r)
	if err != nil {
		return r, nil, err
	}
	end := done
	defer func() {
		if err != nil {
			end()
		}
	}()
	if c := carrel.CallerOf(ctx); c.Role == carrel.RoleReader && !ownPassword(c, r) && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return r.WithContext(context.WithoutCancel(ctx)), nil, errReader() // the trail says who it was
	}
	ctx = trace.Arrive(ctx, r.Header.Get("Traceparent"))
	if text := r.Header.Get(deadlineHeader); text != "" && r.Method == http.MethodPost {
		ms, err := strconv.ParseUint(text, 10, 40)
		if err != nil {
			return r, nil, invalid(deadlineHeader, "%q is not a number of milliseconds", clip(text))
		}
		if ms > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
			done = func() { cancel(); end() }
		}
	}
	return r.WithContext(ctx), done, nil
}

// ownPassword reports whether a request is a person's, about a password. A reader changes the own
// one, too; package access lets nobody change another's.
func ownPassword(c carrel.Caller, r *http.Request) bool {
	return c.Person != "" && r.Method == http.MethodPut &&
		strings.HasPrefix(r.URL.Path, "/carrel/v1/people/")
}

// errReader is the error for a reader that would change something.
func errReader() error {
	p := tell(carrel.Forbidden, "this API key may only read")
	p.body.Hint = "use a key with the scope run"
	return p
}

// admission is GET /carrel/v1/admission.
func (s *Server) admission(w http.ResponseWriter, _ *http.Request) error {
	if s.opts.Admission == nil {
		return later("", "admission")
	}
	writeJSON(w, http.StatusOK, s.opts.Admission())
	return nil
}

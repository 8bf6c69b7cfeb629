package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest"
)

// interrupted is the reason why the guest itself ended a request early.
type interrupted struct{ reason string }

func (e *interrupted) Error() string { return e.reason }

// errRestored ends requests that were open when the snapshot of this restored guest was taken.
// Their clients are on another machine, or long gone.
var errRestored = &interrupted{"the sandbox was restored from a snapshot"}

// interruption returns the reason why the guest ended a request, or nil if it did not.
func interruption(ctx context.Context) *interrupted {
	var why *interrupted
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &why) {
		return why
	}
	return nil
}

// manner is the way to end a request early.
type manner int

const (
	plainCall   manner = iota // broken off: the answer can't carry a reason
	connectCall               // answered with the reason
	inputCall                 // the same, but its handler waits for the client's data
	tunnelCall                // ends by itself with its context
)

// mannerOf returns the manner of a route's requests.
func mannerOf(path string) manner {
	switch {
	case strings.HasSuffix(path, "/StreamInput"):
		return inputCall
	case isConnect(path):
		return connectCall
	case strings.HasPrefix(path, guest.TunnelPath), strings.HasPrefix(path, guest.ListenPath), strings.HasPrefix(path, guest.AcceptedPath):
		return tunnelCall
	}
	return plainCall
}

// exchange is a request that is being handled.
type exchange struct {
	manner manner
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the handler has returned
	// writes counts the beginnings and ends of writes to a Connect call's answer. If it stays odd,
	// the client takes nothing.
	writes atomic.Int64

	mu      sync.Mutex
	ctl     *http.ResponseController // nil once the handler returned; don't use it then
	stopped bool                     // interrupt was called
	writing int64                    // what writes was then
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// interrupt ends the exchange. A Connect call answers with the reason; any other request breaks
// off, because its answer can't carry one.
func (x *exchange) interrupt(why *interrupted) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopped, x.writing = true, x.writes.Load()
	x.cancel(why)
	if x.ctl == nil {
		return
	}
	// If a connection has no deadlines, the end of the context must do. A request that has been
	// read completely must get no read deadline: net/http reads on to notice that the client
	// leaves, and would take the deadline for that, for all later requests.
	switch x.manner {
	case inputCall:
		_ = x.ctl.SetReadDeadline(past)
	case plainCall:
		_ = x.ctl.SetReadDeadline(past)
		_ = x.ctl.SetWriteDeadline(past)
	}
}

// abort ends an exchange whose client has taken nothing since interrupt. A client that is only slow
// on a busy machine still gets the reason.
func (x *exchange) abort() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ctl != nil && x.writing%2 == 1 && x.writes.Load() == x.writing {
		_ = x.ctl.SetWriteDeadline(past)
	}
}

// insist checks an exchange that did not end in time again and again. It aborts the exchange when a
// write does not end, even one that began after the interruption.
func (x *exchange) insist() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ctl == nil {
		return
	}
	writes := x.writes.Load()
	if writes%2 == 1 && writes == x.writing {
		_ = x.ctl.SetWriteDeadline(past)
	}
	x.writing = writes
	time.AfterFunc(leaveInsist, x.insist)
}

// end is called when the handler has returned. It reports whether the answer must be broken off.
func (x *exchange) end() (broken bool) {
	x.mu.Lock()
	switch x.manner {
	case connectCall, inputCall:
		if x.stopped {
			_ = x.ctl.Flush() // a goroutine that waits for done may freeze us at once
		}
	case plainCall:
		broken = x.stopped
	}
	x.ctl = nil
	x.mu.Unlock()
	x.cancel(nil)
	close(x.done)
	return broken
}

// exchangeKey is the context key of a request's exchange.
type exchangeKey struct{}

// exchanges are the open requests, except the host's requests about the guest itself.
type exchanges struct {
	mu   sync.Mutex
	open map[*exchange]struct{}
}

// begin registers a request and returns it with a context that interrupt ends.
func (e *exchanges) begin(w http.ResponseWriter, r *http.Request) (*exchange, *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	x := &exchange{manner: mannerOf(r.URL.Path), cancel: cancel, done: make(chan struct{}), ctl: http.NewResponseController(w)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == nil {
		e.open = map[*exchange]struct{}{}
	}
	e.open[x] = struct{}{}
	return x, r.WithContext(context.WithValue(ctx, exchangeKey{}, x))
}

func (e *exchanges) end(x *exchange) (broken bool) {
	broken = x.end()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, x)
	return broken
}

// all returns the open exchanges.
func (e *exchanges) all() []*exchange {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*exchange, 0, len(e.open))
	for x := range e.open {
		out = append(out, x)
	}
	return out
}

func (e *exchanges) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.open)
}

// isConnect reports whether a route belongs to a Connect service.
func isConnect(path string) bool {
	return strings.HasPrefix(path, "/process.") || strings.HasPrefix(path, "/filesystem.")
}

// isShort reports whether a route is answered at once. Such a request needs no interruption, and
// asking for the guest's state does not count as activity.
func isShort(path string) bool {
	switch path {
	case "/health", "/init", "/metrics", "/envs", guest.LeavePath, guest.ActivityPath, guest.RefusedPath, guest.MachinePath:
		return true
	}
	return false
}

// admit registers requests and demands the access token. Both happen under one lock, which a
// restore takes for writing. So a request that was admitted with the old token is already
// registered when the restore comes, and is interrupted.
func (a *Agent) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isShort(r.URL.Path) {
			a.authorize(w, r, next)
			return
		}
		a.admission.RLock()
		x, r := a.exchanges.begin(w, r)
		ok := a.authorized(r)
		a.admission.RUnlock()
		if x.manner == inputCall && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // see interrupt
		}
		defer func() {
			if a.exchanges.end(x) {
				panic(http.ErrAbortHandler) // a cut-off answer must not look complete
			}
		}()
		if !ok {
			unauthorized(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// interrupts sets the error of calls that the guest ended to the reason.
type interrupts struct{}

var _ connect.Interceptor = interrupts{}

// explain returns the error for the client of a call.
func explain(ctx context.Context, err error) error {
	if why := interruption(ctx); err != nil && why != nil {
		return connect.NewError(connect.CodeUnavailable, why)
	}
	return err
}

// WrapUnary implements connect.Interceptor.
func (interrupts) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		return resp, explain(ctx, err)
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (interrupts) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return explain(ctx, next(ctx, conn))
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (interrupts) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

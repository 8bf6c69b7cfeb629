package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"weak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// routed is a request's state in the proxy. One goroutine at a time changes it: serve, or the round
// trip within serve.
type routed struct {
	target  Target
	sandbox carrel.Sandbox // as it was at the start of the visit
	body    *incoming
	wakes   bool // it may wake the sandbox
	grpc    bool
	health  bool // the request asks the guest whether the sandbox runs
	ours    bool // a browser counts the answer as a page of the daemon's own origin
	at      time.Time
	call    string       // what it is for
	status  atomic.Int32 // of its answer; 0 before it

	conn *guest.Conn
	done func()
}

type routedKey struct{}

func routedOf(ctx context.Context) *routed {
	rt, _ := ctx.Value(routedKey{}).(*routed)
	return rt
}

// visit gets the connection. If the sandbox must wake first, it waits for that.
func (rt *routed) visit(ctx context.Context, s Sandboxes) error {
	conn, done, err := s.Visit(ctx, rt.target.ID)
	if err != nil {
		return err
	}
	again := rt.conn != nil
	rt.leave()
	rt.conn, rt.done = conn, done
	if again || rt.sandbox.State != carrel.Running {
		// The sandbox is in another life now. If it is gone already, the request will show that.
		if sb, err := s.Get(ctx, rt.target.ID); err == nil {
			rt.sandbox = sb
		}
	}
	return nil
}

// leave ends the visit: the sandbox may become idle.
func (rt *routed) leave() {
	if rt.done != nil {
		rt.done()
	}
	rt.conn, rt.done = nil, nil
}

// lives numbers the Conns of a sandbox. Each restoration of a sandbox makes a new Conn. A kept
// connection to a port of an earlier Conn leads nowhere, or to a wrong program. With the number,
// each Conn has a connection pool of its own. The zero value is ready to use.
type lives struct {
	mu   sync.Mutex
	last uint64
	// The pointers are weak, so that this map keeps no sandbox's connections alive. Two weak
	// pointers are equal only when they point to the same object, even after its end.
	known map[weak.Pointer[guest.Conn]]life
}

// life is what is known of one Conn.
type life struct {
	number uint64
	began  time.Time // when it was first used for a port
}

// number returns the Conn's own number.
func (l *lives) number(c *guest.Conn) uint64 {
	key := weak.Make(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known[key]; ok {
		return known.number
	}
	if l.known == nil {
		l.known = map[weak.Pointer[guest.Conn]]life{}
	}
	l.last++
	l.known[key] = life{l.last, time.Now()}
	runtime.AddCleanup(c, l.forget, key)
	return l.last
}

// began returns when a Conn was first used for a port.
func (l *lives) began(c *guest.Conn) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[weak.Make(c)].began
}

func (l *lives) forget(key weak.Pointer[guest.Conn]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, key)
}

// transport sends a request over the guest's warm connections, or to another port.
type transport struct{ g *Gateway }

// RoundTrip implements http.RoundTripper. A request may meet the moment when its sandbox was
// paused, resumed or rolled back. RoundTrip then sends it once more, to the new life, if that can't
// do anything twice: nothing of it was sent, or it is idempotent and has no body.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	rt := routedOf(r.Context())
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err := t.once(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)), rt)
	if err == nil || r.Context().Err() != nil || !rt.wakes || (connected.Load() && !repeatable(r)) {
		return resp, err
	}
	before := rt.conn
	if verr := rt.visit(r.Context(), t.g.opts.Sandboxes); verr != nil || rt.conn == before {
		return nil, err // gone, or the same life: another try would fail too
	}
	return t.once(r, rt)
}

// once sends a request over the present visit's connections. It does not close the body, so that a
// second try can send it. The proxy closes it.
func (t transport) once(r *http.Request, rt *routed) (*http.Response, error) {
	r = r.WithContext(context.WithValue(r.Context(), connKey{}, rt.conn))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = io.NopCloser(r.Body)
	}
	if rt.target.Port == carrel.GuestPort {
		return rt.conn.Transport().RoundTrip(r)
	}
	u := *r.URL
	u.Host = fmt.Sprintf("%d.%s:%d", t.g.lives.number(rt.conn), rt.target.ID, rt.target.Port)
	r.URL = &u
	if rt.grpc {
		return t.g.grpc.RoundTrip(r)
	}
	return t.g.ports.RoundTrip(r)
}

// repeatable reports whether a request may be sent twice.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return r.Body == nil || r.Body == http.NoBody
	}
	return false
}

// Clients of the code interpreter call it as soon as they have a sandbox. A sandbox that does not
// continue from a snapshot has only begun to start it then, so the first calls wait a little.
const (
	interpreterPort  = 49999
	interpreterStart = 5 * time.Second
	interpreterPoll  = 20 * time.Millisecond
)

// connKey is the context key of the Conn for a dial. A pool belongs to one life, so any request
// that gets the connection is for the same life.
type connKey struct{}

// dialPort dials a port of a sandbox for the pools of ports.
func (g *Gateway) dialPort(ctx context.Context, _, addr string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	conn, ok := ctx.Value(connKey{}).(*guest.Conn)
	if !ok {
		return nil, errors.New("dial " + addr + ": no visit")
	}
	c, err := conn.Dial(ctx, uint16(n))
	for n == interpreterPort && errors.Is(err, syscall.ECONNREFUSED) {
		if time.Since(g.lives.began(conn)) > interpreterStart {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(interpreterPoll):
		}
		c, err = conn.Dial(ctx, uint16(n))
	}
	return c, err
}

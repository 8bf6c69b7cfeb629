package hostdoor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/request"
)

// Moments takes snapshots of sandboxes. It is a part of [carrel.Moments].
type Moments interface {
	Snapshot(ctx context.Context, id carrel.ID, opts carrel.SnapshotOptions) (carrel.Snapshot, error)
}

// Options configures a [Door].
type Options struct {
	// Inside returns the context for a request from inside a sandbox; nil leaves the context
	// unchanged.
	Inside func(ctx context.Context, id carrel.ID) context.Context
	// Moments takes the snapshots. Required.
	Moments Moments
	// Generation returns how often a sandbox has been restored; nil means never.
	Generation func(carrel.ID) int
	// Tokens mints one of a sandbox's identity tokens, by its name or by its audience; the other
	// one is "". With nil there are no tokens.
	Tokens func(ctx context.Context, id carrel.ID, name, audience string) (carrel.Token, error)
	// Sandbox returns a sandbox. With nil, a sandbox can't ask who it is.
	Sandbox func(ctx context.Context, id carrel.ID) (carrel.Sandbox, error)
	// Journal takes what sandboxes asked for; nil is none.
	Journal request.Journal
	// Logger receives the causes of errors, which the sandbox does not get; nil discards them.
	Logger *slog.Logger
	// Every and Burst bound one sandbox's requests for checkpoints: Burst at once, and one more
	// each Every. Zero is a second and 5.
	Every time.Duration
	Burst int
	// TokenEvery and TokenBurst are the same for requests for tokens and the sandbox's own data.
	// Zero is a tenth of a second and 30.
	TokenEvery time.Duration
	TokenBurst int
}

// Bounds on one connection. It carries one request.
const (
	readTimeout  = 10 * time.Second // for the request
	writeTimeout = 10 * time.Second // for the answer
	maxHeader    = 8 << 10
)

// Door serves the requests of sandboxes. It is safe for concurrent use.
type Door struct {
	opts   Options
	log    *slog.Logger
	limits limits // of checkpoints
	asked  limits // of the rest
	server *http.Server
	conns  *listener
	served chan struct{} // closed when the server has ended

	// ctx ends at Close, and ends the requests that are being carried out. busy waits for them.
	ctx    context.Context
	cancel context.CancelFunc
	busy   sync.WaitGroup
	mu     sync.Mutex
	closed bool
}

// New returns a Door. Its ServeConn is the wire's Options.Local.
func New(o Options) *Door {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Every <= 0 {
		o.Every = time.Second
	}
	if o.Burst <= 0 {
		o.Burst = 5
	}
	if o.TokenEvery <= 0 {
		o.TokenEvery = 100 * time.Millisecond
	}
	if o.TokenBurst <= 0 {
		o.TokenBurst = 30
	}
	if o.Generation == nil {
		o.Generation = func(carrel.ID) int { return 0 }
	}
	d := &Door{opts: o, log: o.Logger, conns: newListener(), served: make(chan struct{})}
	d.limits.init(o.Every, o.Burst)
	d.asked.init(o.TokenEvery, o.TokenBurst)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.server = &http.Server{
		Handler:        http.HandlerFunc(d.serve),
		ReadTimeout:    readTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			id := callerOf(c)
			if o.Inside != nil {
				ctx = o.Inside(ctx, id)
			}
			return context.WithValue(ctx, callerKey{}, id)
		},
	}
	d.server.SetKeepAlivesEnabled(false)
	go func() {
		defer close(d.served)
		_ = d.server.Serve(d.conns) // ends with Close
	}()
	return d
}

// serve knows only a few exact paths. It does not redirect or clean paths.
func (d *Door) serve(w http.ResponseWriter, r *http.Request) {
	d.note(r)
	switch r.URL.Path {
	case guest.CheckpointPath:
		d.serveCheckpoint(w, r)
	case guest.TokenPath:
		d.serveToken(w, r)
	case guest.SandboxPath:
		d.serveSandbox(w, r)
	default:
		refuse(w, http.StatusNotFound, "no such route",
			"POST "+guest.CheckpointPath+", GET "+guest.TokenPath+" and GET "+guest.SandboxPath+" are all there is")
	}
}

// ServeConn serves one connection of a sandbox, and returns when it is closed. The caller
// guarantees that the ID is right. A snapshot may go on for a moment afterwards, because the code
// that closes the connection may hold something that the snapshot waits for.
func (d *Door) ServeConn(id carrel.ID, c net.Conn) {
	conn := &conn{Conn: c, id: id, closed: make(chan struct{})}
	if !d.conns.hand(conn) {
		_ = c.Close()
		return
	}
	<-conn.closed
}

// Close refuses new connections, ends existing ones and waits for all work.
func (d *Door) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	_ = d.server.Close() // closes the listener and every connection
	<-d.served
	d.busy.Wait()
	return nil
}

// work runs fn in a goroutine that Close waits for. It reports false when the door is closed.
func (d *Door) work(fn func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.busy.Go(fn)
	return true
}

// carry runs fn for a sandbox's request. It returns early when the caller leaves or the link is
// cut. fn then ends by itself, because its context has ended. release is called when fn has ended.
func carry[T any](ctx context.Context, d *Door, id carrel.ID, release func(), fn func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	done := make(chan result, 1)
	if !d.work(func() {
		defer release()
		value, err := fn(ctx)
		done <- result{value, err}
	}) {
		release()
		return none, &carrel.Error{Op: "ask the host", Kind: carrel.Unavailable, ID: id, Err: errors.New("the door is closed")}
	}
	select {
	case res := <-done:
		return res.value, res.err
	case <-ctx.Done():
		return none, &carrel.Error{Op: "ask the host", Kind: carrel.Unavailable, ID: id, Err: ctx.Err()}
	}
}

// callerKey is the context key of the ID of the sandbox that sends the request.
type callerKey struct{}

// callerOf returns the sandbox of a connection; "" if it is none of ours.
func callerOf(c net.Conn) carrel.ID {
	if own, ok := c.(*conn); ok {
		return own.id
	}
	return ""
}

// conn is a connection with the ID of its sandbox.
type conn struct {
	net.Conn
	id     carrel.ID
	once   sync.Once
	closed chan struct{}
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

// listener hands connections to the server.
type listener struct {
	conns chan *conn
	done  chan struct{}
	once  sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan *conn), done: make(chan struct{})}
}

// hand gives the server a connection. It reports false when the server has ended.
func (l *listener) hand(c *conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
		return false
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener. There is no address, because connections are handed over.
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// note gives a request for a checkpoint or a token to the audit trail.
func (d *Door) note(r *http.Request) {
	if d.opts.Journal == nil {
		return
	}
	kind := carrel.TrailRead
	switch r.URL.Path {
	case guest.CheckpointPath:
		kind = carrel.TrailEnter // counted together: a program can ask again and again
	case guest.TokenPath:
	default:
		return
	}
	caller, _ := carrel.CallerIn(r.Context())
	d.opts.Journal.Note(request.Operation{Kind: kind, Caller: caller, Op: "host " + r.Method + " " + r.URL.Path,
		Targets: []string{string(caller.Sandbox)}})
}

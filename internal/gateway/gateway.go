package gateway

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/metrics"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/trace"
)

// Sandboxes is the part of the service that the gateway needs.
type Sandboxes interface {
	Get(ctx context.Context, id carrel.ID) (carrel.Sandbox, error)
	List(ctx context.Context, opts carrel.ListOptions) (carrel.Page, error)
	// Visit returns a connection to a sandbox's ports for one request. The sandbox is not idle
	// until done is called, so the caller must call done when the request is over. Visit first
	// resumes a paused sandbox with automatic wake-up. Errors: NotFound, Conflict (paused, or
	// changing its state). The Conn is a new one after each restoration.
	Visit(ctx context.Context, id carrel.ID) (conn *guest.Conn, done func(), err error)
}

// Options configures a Gateway. Only Sandboxes is required.
type Options struct {
	Sandboxes Sandboxes
	// MaxPerSandbox caps the requests under way to one sandbox; 0 is 1024.
	MaxPerSandbox int
	// Callers knows the API keys, and the caller on whose behalf a visit is. Nil knows none.
	Callers Callers
	// Journal takes what visitors did; nil is none.
	Journal request.Journal
	// Served is told of each request when its answer begins: what it was for, the status, and how
	// long it took. Nil tells nobody.
	Served func(call string, status int, took time.Duration)
	// Traces records requests that are part of their clients' traces; nil records none.
	Traces *trace.Recorder
	Log    *slog.Logger
}

// Callers is the part of the authenticator that the gateway needs. Package access implements it.
type Callers interface {
	// Strip removes API keys from a request that carries them here by mistake, because nothing
	// inside a sandbox may see one.
	Strip(h http.Header)
	// Visit returns the context of a request to a port of a sandbox.
	Visit(ctx context.Context, sb carrel.Sandbox) context.Context
}

// Gateway proxies requests to ports in sandboxes. It is safe for concurrent use. Close drops its
// warm connections.
type Gateway struct {
	opts  Options
	ports *http.Transport // to all ports but the guest's, whose pool is the Conn's
	grpc  *http.Transport // the same for gRPC
	proxy *httputil.ReverseProxy

	mu   sync.Mutex
	busy map[carrel.ID]int // requests under way, including those held for a wake-up

	lives lives
}

// New returns a gateway.
func New(opts Options) *Gateway {
	if opts.MaxPerSandbox <= 0 {
		opts.MaxPerSandbox = 1024
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{opts: opts, busy: map[carrel.ID]int{}}
	g.ports = &http.Transport{
		DialContext:            g.dialPort,
		DisableCompression:     true,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the sandbox's own port, dialed through its driver: nobody is between
		MaxIdleConnsPerHost:    16,
		MaxIdleConns:           512,
		MaxResponseHeaderBytes: 1 << 20,
		IdleConnTimeout:        4 * time.Second, // below Node's 5, so that the server never closes first
		ExpectContinueTimeout:  time.Second,
		WriteBufferSize:        bufferSize,
		ReadBufferSize:         32 << 10,
	}
	g.grpc = g.newGRPCTransport()
	g.proxy = &httputil.ReverseProxy{
		Rewrite:        g.rewrite,
		Transport:      transport{g},
		ModifyResponse: g.answered,
		FlushInterval:  -1,
		BufferPool:     &buffers{},
		ErrorHandler:   g.proxyError,
		ErrorLog:       log.New(io.Discard, "", 0), // ErrorHandler gets real errors; the rest is clients leaving
	}
	return g
}

// Close drops idle connections. Requests under way end by themselves.
func (g *Gateway) Close() error {
	g.ports.CloseIdleConnections()
	g.grpc.CloseIdleConnections()
	return nil
}

// bufferSize is the most bytes that one direction of one stream holds.
const bufferSize = 128 << 10

// buffers pools copy buffers.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// Wrap returns a handler that serves the requests for sandboxes and passes all others to next.
func (g *Gateway) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, ok, err := Route(r.Host, r.Header)
		if !ok && signed(r) {
			t, err = g.bySignature(r)
			ok = true
		}
		switch {
		case err != nil:
			g.refuse(w, r, err)
			if g.opts.Served != nil {
				g.opts.Served("none", refusalCode(err), 0)
			}
		case ok:
			g.serve(w, r, t)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// serve checks one request and proxies it. If the sandbox is paused and has automatic wake-up,
// serve wakes it and holds the request until then. The body is not read before the sandbox runs.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, t Target) {
	rt := &routed{target: t, grpc: isGRPC(r), health: isHealth(r, t), ours: onOurOrigin(r), at: time.Now(), call: callOf(r, t)}
	defer func() { g.served(rt, metrics.StatusLeft) }() // if nobody answered
	if ans := g.admit(r, rt); ans != nil {
		g.note(r, rt, ans.Code)
		g.refuseWith(w, r, rt, ans)
		return
	}
	if g.opts.Callers != nil {
		r = r.WithContext(g.opts.Callers.Visit(r.Context(), rt.sandbox))
	}
	if !g.enter(t.ID) {
		g.refuseWith(w, r, rt, tooMany(t, g.opts.MaxPerSandbox))
		return
	}
	defer g.leave(t.ID)
	visit := g.opts.Traces.Visit(r.Header.Values("Traceparent"), rt.call, t.ID)
	defer func() { g.served(rt, metrics.StatusLeft); visit.End(int(rt.status.Load())) }()
	if err := rt.visit(r.Context(), g.opts.Sandboxes); err != nil {
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the client left while the request was held
		}
		g.refuseWith(w, r, rt, g.lookupError(r.Context(), rt, err))
		return
	}
	defer rt.leave() // the proxy also returns at the end of an upgraded connection
	if r.ProtoMajor == 1 {
		defer resetCutOff(w, r)
		// Otherwise the server would wait for the whole request before it sends the first byte of
		// the answer.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	rt.body = &incoming{ReadCloser: r.Body}
	r = r.WithContext(context.WithValue(r.Context(), routedKey{}, rt))
	r.Body = rt.body
	g.proxy.ServeHTTP(w, r)
}

// admit finds the sandbox and decides whether the request may pass. A request that may not pass
// wakes nothing.
func (g *Gateway) admit(r *http.Request, rt *routed) *answer {
	t := rt.target
	sb, err := g.opts.Sandboxes.Get(r.Context(), t.ID)
	if err != nil {
		return g.lookupError(r.Context(), rt, err)
	}
	rt.sandbox = sb
	if ans := rt.stateAnswer(sb); ans != nil {
		return ans
	}
	if t.Port == carrel.GuestPort {
		// Clean resolves //init and /x/../init, whatever the guest would make of them.
		if guest.Internal(path.Clean("/" + r.URL.Path)) {
			return hidden(t)
		}
		if rt.wakes = mayWake(r, sb); !rt.wakes && sb.State != carrel.Running {
			return wakeDenied(t)
		}
		return nil
	}
	rt.wakes = true
	if sb.Network.PrivateTraffic {
		given := r.Header.Get(headerTraffic)
		switch {
		case given == "":
			return tokenMissing(t)
		case sb.TrafficToken == "" || subtle.ConstantTimeCompare([]byte(given), []byte(sb.TrafficToken)) != 1:
			return tokenWrong(t)
		}
	}
	return nil
}

// stateAnswer returns the refusal for a sandbox in a state that needs no Visit. It is nil for a
// sandbox that runs, or that a request wakes.
func (rt *routed) stateAnswer(sb carrel.Sandbox) *answer {
	switch sb.State {
	case carrel.Running:
		return nil
	case carrel.Starting:
		return rt.transitioning()
	case carrel.Resuming:
		if rt.health { // it will be healthy soon: the request waits for that
			return nil
		}
		fallthrough
	case carrel.Pausing:
		if !wakes(sb) {
			return rt.transitioning()
		}
		return nil
	case carrel.Paused:
		if wakes(sb) {
			return nil
		}
	}
	return notFound(rt.target)
}

// transitioning is the answer of a sandbox that is changing its state. A health check gets the
// answer of a sandbox that does not run, because nothing resumes the sandbox for such a check.
// E2B's SDKs expect 502 for this, and raise an error for 409.
func (rt *routed) transitioning() *answer {
	if rt.health {
		return notFound(rt.target)
	}
	return transitioning(rt.target)
}

// isHealth reports whether a request asks the guest whether the sandbox runs.
func isHealth(r *http.Request, t Target) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return reads && t.Port == carrel.GuestPort && r.URL.Path == "/health"
}

// wakes reports whether a request resumes this paused sandbox.
func wakes(sb carrel.Sandbox) bool {
	return sb.Lifecycle.AutoResume || sb.Lifecycle.Idle.After > 0
}

// lookupError converts the service's error about a sandbox into an answer.
func (g *Gateway) lookupError(ctx context.Context, rt *routed, err error) *answer {
	t := rt.target
	switch carrel.KindOf(err) {
	case carrel.NotFound:
		return notFound(t)
	case carrel.Conflict:
		// After admit looked, the sandbox may have been paused for good. Or it was paused on
		// request and without its memory. Then no request resumes it, whatever its lifecycle says.
		if sb, gerr := g.opts.Sandboxes.Get(ctx, t.ID); gerr == nil && sb.State != carrel.Running {
			if sb.State == carrel.Paused {
				return notFound(t)
			}
			if ans := rt.stateAnswer(sb); ans != nil {
				return ans
			}
		}
		return rt.transitioning()
	case carrel.Exhausted:
		return noRoom(t, err)
	case carrel.Unsupported:
		return cantWake(t, err)
	case carrel.Unavailable, carrel.TimedOut:
		return silent(t)
	}
	g.opts.Log.Error("look up sandbox", "sandbox", t.ID, "err", err)
	return broken(t)
}

// enter counts a request. It reports false if the sandbox has too many already.
func (g *Gateway) enter(id carrel.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[id] >= g.opts.MaxPerSandbox {
		return false
	}
	g.busy[id]++
	return true
}

func (g *Gateway) leave(id carrel.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[id]--; g.busy[id] == 0 {
		delete(g.busy, id)
	}
}

// rewrite builds the request that goes inside.
func (g *Gateway) rewrite(p *httputil.ProxyRequest) {
	rt := routedOf(p.In.Context())
	p.Out.URL.Scheme = "http"
	p.Out.URL.Host = "guest" // shares the Conn's warm connections; the transport sets another port's name
	p.Out.Host = p.In.Host
	p.Out.Trailer = p.In.Trailer // the same map: its values come after the body
	p.SetXForwarded()
	if rt.target.Port != carrel.GuestPort {
		port := strconv.Itoa(int(rt.target.Port))
		if slices.Contains(rt.sandbox.Network.HTTPSPorts, rt.target.Port) {
			p.Out.URL.Scheme = "https"
		}
		if mask := rt.sandbox.Network.MaskHost; mask != "" {
			p.Out.Host = strings.ReplaceAll(mask, "${PORT}", port)
		}
	}
	h := p.Out.Header
	h.Del(headerID)
	h.Del(headerPort)
	h.Del(headerTraffic)
	if onlyH2C(p.In.Header.Values("Upgrade")) {
		// After an upgrade to HTTP/2, requests would go in that nobody judged.
		h.Del("Upgrade")
		h.Del("Connection")
		h.Del("Http2-Settings")
	}
	if g.opts.Callers != nil {
		g.opts.Callers.Strip(h)
	}
	if _, agent := p.In.Header["User-Agent"]; !agent {
		h["User-Agent"] = nil // keep Go from adding its own
	}
	if rt.target.Port != carrel.GuestPort && rt.target.Port != carrel.InterpreterPort {
		// The interpreter asks the guest for the environment with this token. No other program
		// needs it.
		strip(h, "X-Access-Token", rt.sandbox.AccessToken)
	}
}

// strip removes a header that holds exactly this secret. Programs may use a header of the same name
// for other purposes.
func strip(h http.Header, name, secret string) {
	if v := h.Get(name); secret != "" && subtle.ConstantTimeCompare([]byte(v), []byte(secret)) == 1 {
		h.Del(name)
	}
}

// proxyError answers in place of a sandbox that did not.
func (g *Gateway) proxyError(w http.ResponseWriter, r *http.Request, err error) {
	rt := routedOf(r.Context())
	switch {
	case rt.body.broken.Load():
		w.Header().Set("Connection", "close") // what follows is no request
		g.refuseWith(w, r, rt, bodyBroken(rt.target))
		return
	case r.Context().Err() != nil || errors.Is(err, context.Canceled):
		// The client left, perhaps only in one direction. An empty 200 would be wrong.
		panic(http.ErrAbortHandler)
	}
	g.refuseWith(w, r, rt, g.outcome(r.Context(), rt, err))
}

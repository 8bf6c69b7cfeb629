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
)

// Sandboxes is what the gateway needs to know of the service.
type Sandboxes interface {
	Get(ctx context.Context, id carrel.ID) (carrel.Sandbox, error)
	List(ctx context.Context, opts carrel.ListOptions) (carrel.Page, error)
	// Visit returns the way to a sandbox's ports, for one request, and done must be called when
	// that is over: until then the sandbox is not idle. A paused one that wakes by
	// itself is resumed first. Errors: NotFound, Conflict (paused, or in between). The
	// Conn is another one after each restoration.
	Visit(ctx context.Context, id carrel.ID) (conn *guest.Conn, done func(), err error)
}

// Options configures a Gateway. Only Sandboxes is needed.
type Options struct {
	Sandboxes Sandboxes
	// MaxPerSandbox caps the requests under way to one sandbox; 0 is 1024.
	MaxPerSandbox int
	// Callers knows the API keys, and says on whose behalf a visit is; nil knows none.
	Callers Callers
	Log     *slog.Logger
}

// Callers is what the gateway asks the authenticator for; package access implements it.
type Callers interface {
	// Strip takes API keys off a request that carries them here by mistake: nothing inside
	// a sandbox may see one.
	Strip(h http.Header)
	// Visit returns the context of a request to a port of a sandbox.
	Visit(ctx context.Context, sb carrel.Sandbox) context.Context
}

// Gateway proxies requests to ports in sandboxes. It is safe for concurrent use;
// Close drops the connections it keeps warm.
type Gateway struct {
	opts  Options
	ports *http.Transport // to ports other than the guest's, whose pool is the Conn's
	grpc  *http.Transport // the same for gRPC
	proxy *httputil.ReverseProxy

	mu   sync.Mutex
	busy map[carrel.ID]int // requests under way, those held while a sandbox wakes among them

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
		IdleConnTimeout:        4 * time.Second, // below Node's 5, so that we never lose the race to close
		ExpectContinueTimeout:  time.Second,
		WriteBufferSize:        bufferSize,
		ReadBufferSize:         32 << 10,
	}
	g.grpc = g.newGRPCTransport()
	g.proxy = &httputil.ReverseProxy{
		Rewrite:        g.rewrite,
		Transport:      transport{g},
		ModifyResponse: g.withEnding,
		FlushInterval:  -1,
		BufferPool:     &buffers{},
		ErrorHandler:   g.proxyError,
		ErrorLog:       log.New(io.Discard, "", 0), // what matters reaches ErrorHandler; the rest is clients leaving
	}
	return g
}

// Close drops idle connections. Requests under way end by themselves.
func (g *Gateway) Close() error {
	g.ports.CloseIdleConnections()
	g.grpc.CloseIdleConnections()
	return nil
}

// bufferSize is what one direction of one stream holds at most.
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

// Wrap returns a handler that serves the requests for sandboxes and hands all
// others to next.
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
		case ok:
			g.serve(w, r, t)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// serve checks one request and proxies it. A sandbox that is paused and wakes by
// itself is woken, and the request held meanwhile: its body is not read before the
// sandbox runs.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, t Target) {
	rt := &routed{target: t, grpc: isGRPC(r), health: isHealth(r, t)}
	if ans := g.admit(r, rt); ans != nil {
		ans.write(w, r)
		return
	}
	if g.opts.Callers != nil {
		r = r.WithContext(g.opts.Callers.Visit(r.Context(), rt.sandbox))
	}
	if !g.enter(t.ID) {
		tooMany(t, g.opts.MaxPerSandbox).write(w, r)
		return
	}
	defer g.leave(t.ID)
	if err := rt.visit(r.Context(), g.opts.Sandboxes); err != nil {
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the client left while it was held
		}
		g.lookupError(r.Context(), rt, err).write(w, r)
		return
	}
	defer rt.leave() // after an upgraded connection ended, too: the proxy returns then
	if r.ProtoMajor == 1 {
		defer resetCutOff(w, r)
		// Otherwise the server would wait for the whole request before it lets the
		// first byte of the answer out.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	rt.body = &incoming{ReadCloser: r.Body}
	r = r.WithContext(context.WithValue(r.Context(), routedKey{}, rt))
	r.Body = rt.body
	g.proxy.ServeHTTP(w, r)
}

// admit finds the sandbox and decides whether the request may pass. Nothing is
// woken for one that may not.
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
		// Clean undoes //init and /x/../init, whatever the guest would make of them.
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

// stateAnswer refuses what no Visit is tried for: it is nil for a sandbox that
// runs, or that a request wakes.
func (rt *routed) stateAnswer(sb carrel.Sandbox) *answer {
	switch sb.State {
	case carrel.Running:
		return nil
	case carrel.Starting:
		return rt.transitioning()
	case carrel.Resuming:
		if rt.health { // it is about to be well: the answer waits for that
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

// transitioning is the answer of a sandbox that is between two states. A request for its health
// is told that it does not run, because nothing resumes it for that request. E2B's SDKs take 502
// for this, and raise an error for 409.
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

// wakes reports whether a paused sandbox is resumed by a request to it.
func wakes(sb carrel.Sandbox) bool {
	return sb.Lifecycle.AutoResume || sb.Lifecycle.Idle.After > 0
}

// lookupError turns the service's error about a sandbox into an answer.
func (g *Gateway) lookupError(ctx context.Context, rt *routed, err error) *answer {
	t := rt.target
	switch carrel.KindOf(err) {
	case carrel.NotFound:
		return notFound(t)
	case carrel.Conflict:
		// It may have been paused, for good, since admit looked; or, on request and
		// without its memory, which no request undoes whatever its lifecycle says.
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

// enter counts a request in, unless the sandbox has too many already.
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

// rewrite makes the request that goes inside.
func (g *Gateway) rewrite(p *httputil.ProxyRequest) {
	rt := routedOf(p.In.Context())
	p.Out.URL.Scheme = "http"
	p.Out.URL.Host = "guest" // the Conn's own name shares its warm connections; another port's is for the transport to say
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
		// Behind an upgrade to HTTP/2 more requests would go in that nobody judged.
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
		// The interpreter asks the guest for the environment with it; no one else
		// has a use for the token.
		strip(h, "X-Access-Token", rt.sandbox.AccessToken)
	}
}

// strip removes a header that holds exactly this secret. Programs may have
// headers of the same name for purposes of their own.
func strip(h http.Header, name, secret string) {
	if v := h.Get(name); secret != "" && subtle.ConstantTimeCompare([]byte(v), []byte(secret)) == 1 {
		h.Del(name)
	}
}

// proxyError answers when the sandbox did not.
func (g *Gateway) proxyError(w http.ResponseWriter, r *http.Request, err error) {
	rt := routedOf(r.Context())
	switch {
	case rt.body.broken.Load():
		w.Header().Set("Connection", "close") // what follows is no request
		bodyBroken(rt.target).write(w, r)
		return
	case r.Context().Err() != nil || errors.Is(err, context.Canceled):
		// The client left, perhaps only in one direction: an empty 200 would be a lie.
		panic(http.ErrAbortHandler)
	}
	g.outcome(r.Context(), rt, err).write(w, r)
}

package gateway

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
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
	// Conn returns the way to a running sandbox's ports. Errors: NotFound, Conflict.
	Conn(ctx context.Context, id carrel.ID) (*guest.Conn, error)
}

// Options configures a Gateway. Only Sandboxes is needed.
type Options struct {
	Sandboxes Sandboxes
	// MaxPerSandbox caps the requests under way to one sandbox; 0 is 1024.
	MaxPerSandbox int
	// Key is the daemon's API key. It is taken off requests that carry it here by
	// mistake: nothing inside a sandbox may see it.
	Key string
	Log *slog.Logger
}

// Gateway proxies requests to ports in sandboxes. It is safe for concurrent use;
// Close drops the connections it keeps warm.
type Gateway struct {
	opts  Options
	ports *http.Transport // to ports other than the guest's, whose pool is the Conn's
	proxy *httputil.ReverseProxy

	mu   sync.Mutex
	busy map[carrel.ID]int // requests under way
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
	g.proxy = &httputil.ReverseProxy{
		Rewrite:       g.rewrite,
		Transport:     transport{g},
		FlushInterval: -1,
		BufferPool:    &buffers{},
		ErrorHandler:  g.proxyError,
		ErrorLog:      log.New(io.Discard, "", 0), // what matters reaches ErrorHandler; the rest is clients leaving
	}
	return g
}

// Close drops idle connections. Requests under way end by themselves.
func (g *Gateway) Close() error {
	g.ports.CloseIdleConnections()
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

// routed is what a request carries through the proxy.
type routed struct {
	target  Target
	sandbox carrel.Sandbox
	conn    *guest.Conn
	body    *incoming
}

type routedKey struct{}

func routedOf(ctx context.Context) *routed {
	rt, _ := ctx.Value(routedKey{}).(*routed)
	return rt
}

// serve checks one request and proxies it.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, t Target) {
	rt, ans := g.admit(r, t)
	if ans != nil {
		ans.write(w, r)
		return
	}
	if !g.enter(t.ID) {
		tooMany(t, g.opts.MaxPerSandbox).write(w, r)
		return
	}
	defer g.leave(t.ID)
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

// admit finds the sandbox and decides whether the request may pass.
func (g *Gateway) admit(r *http.Request, t Target) (*routed, *answer) {
	sb, err := g.opts.Sandboxes.Get(r.Context(), t.ID)
	if err != nil {
		return nil, g.lookupError(t, err)
	}
	switch sb.State {
	case carrel.Running:
	case carrel.Starting:
		return nil, transitioning(t)
	default:
		return nil, notFound(t)
	}
	if t.Port == carrel.GuestPort {
		// Clean undoes //init and /x/../init, whatever the guest would make of them.
		if guest.Internal(path.Clean("/" + r.URL.Path)) {
			return nil, hidden(t)
		}
	} else if sb.Network.PrivateTraffic {
		given := r.Header.Get(headerTraffic)
		switch {
		case given == "":
			return nil, tokenMissing(t)
		case sb.TrafficToken == "" || subtle.ConstantTimeCompare([]byte(given), []byte(sb.TrafficToken)) != 1:
			return nil, tokenWrong(t)
		}
	}
	conn, err := g.opts.Sandboxes.Conn(r.Context(), t.ID)
	if err != nil {
		return nil, g.lookupError(t, err)
	}
	return &routed{target: t, sandbox: sb, conn: conn}, nil
}

// lookupError turns the service's error about a sandbox into an answer.
func (g *Gateway) lookupError(t Target, err error) *answer {
	switch carrel.KindOf(err) {
	case carrel.NotFound:
		return notFound(t)
	case carrel.Conflict:
		return transitioning(t)
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
	// Pools are keyed by this host, programs inside see the other: the Conn's own
	// name shares its warm connections, the ports' transport dials by ID and port.
	p.Out.URL.Host = "guest"
	p.Out.Host = p.In.Host
	p.SetXForwarded()
	if rt.target.Port != carrel.GuestPort {
		port := strconv.Itoa(int(rt.target.Port))
		if slices.Contains(rt.sandbox.Network.HTTPSPorts, rt.target.Port) {
			p.Out.URL.Scheme = "https"
		}
		if mask := rt.sandbox.Network.MaskHost; mask != "" {
			p.Out.Host = strings.ReplaceAll(mask, "${PORT}", port)
		}
		p.Out.URL.Host = net.JoinHostPort(string(rt.target.ID), port)
	}
	h := p.Out.Header
	h.Del(headerID)
	h.Del(headerPort)
	h.Del(headerTraffic)
	strip(h, "X-Api-Key", g.opts.Key)
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

// transport sends a request over the guest's warm connections or to another port.
type transport struct{ g *Gateway }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	rt := routedOf(r.Context())
	if rt.target.Port == carrel.GuestPort {
		return rt.conn.Transport().RoundTrip(r)
	}
	return t.g.ports.RoundTrip(r)
}

// dialPort dials what rewrite put into the URL: <id>:<port>.
func (g *Gateway) dialPort(ctx context.Context, _, addr string) (net.Conn, error) {
	id, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	conn, err := g.opts.Sandboxes.Conn(ctx, carrel.ID(id))
	if err != nil {
		return nil, err
	}
	return conn.Dial(ctx, uint16(n))
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
	g.outcome(r.Context(), rt.target, err).write(w, r)
}

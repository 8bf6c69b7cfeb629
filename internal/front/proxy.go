package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/gateway"
	"github.com/carrel-dev/carrel/internal/request"
)

// proxy passes requests for ports of sandboxes on to the sandbox's node, unchanged. That node's
// gateway checks their tokens. It is safe for concurrent use.
type proxy struct {
	homes   *homes
	nodes   *nodes
	callers stripper
	reverse *httputil.ReverseProxy

	mu    sync.Mutex
	pools map[[2]string]*pool // by node and URL
}

// stripper removes API keys from requests; an access.Authenticator is one.
type stripper interface{ Strip(h http.Header) }

// pool are the connections to one node.
type pool struct{ plain, grpc *http.Transport }

func newProxy(h *homes, n *nodes, callers stripper) *proxy {
	p := &proxy{homes: h, nodes: n, callers: callers, pools: map[[2]string]*pool{}}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:       passOn,
		Transport:     p,
		FlushInterval: -1,
		BufferPool:    &buffers{},
		ErrorHandler:  p.failed,
		ErrorLog:      log.New(io.Discard, "", 0), // ErrorHandler gets real errors; the rest is clients leaving
	}
	return p
}

// passOn keeps the headers of proxies before this one, which ReverseProxy drops.
func passOn(r *httputil.ProxyRequest) {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = v
		}
	}
}

// buffers pools copy buffers.
type buffers struct{ pool sync.Pool }

const bufferSize = 64 << 10

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// target is where a request goes; it travels in the request's context.
type target struct {
	id   carrel.ID // "" when the request has a signature only, or names a sandbox in a wrong way
	body *repeatable
}

type targetKey struct{}

// Wrap returns a handler that serves the requests for sandboxes and passes all others to next.
func (p *proxy) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, ok, err := gateway.Route(r.Host, r.Header)
		if !ok && !gateway.Signed(r) {
			next.ServeHTTP(w, r)
			return
		}
		if err != nil { // any node words the refusal
			t = gateway.Target{}
		}
		if r.ProtoMajor == 1 {
			_ = http.NewResponseController(w).EnableFullDuplex()
		}
		p.callers.Strip(r.Header)
		to := &target{id: t.ID, body: newRepeatable(r)}
		r = r.WithContext(context.WithValue(r.Context(), targetKey{}, to))
		p.reverse.ServeHTTP(w, r)
	})
}

// maxRepeat is the longest body that is kept to be sent again, in bytes.
const maxRepeat = 64 << 10

// repeatable is a request's body that can be sent again, if it is short.
type repeatable struct {
	rest io.ReadCloser
	kept []byte
	can  bool
}

// newRepeatable keeps a short body. It reads a body only when its length is said to be short.
func newRepeatable(r *http.Request) *repeatable {
	b := &repeatable{rest: r.Body}
	if r.Body == nil || r.ContentLength == 0 {
		b.can = r.ContentLength == 0 && r.Header.Get("Upgrade") == ""
		return b
	}
	if r.ContentLength < 0 || r.ContentLength > maxRepeat {
		return b
	}
	kept := make([]byte, r.ContentLength)
	n, err := io.ReadFull(r.Body, kept)
	b.kept = kept[:n]
	if b.can = err == nil; !b.can {
		b.rest = readCloser{io.MultiReader(bytes.NewReader(b.kept), failing{err}), r.Body}
	}
	return b
}

type readCloser struct {
	io.Reader
	io.Closer
}

// failing is a body that broke off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// body returns the body for one sending.
func (b *repeatable) body() io.ReadCloser {
	switch {
	case b.can && b.kept != nil:
		return io.NopCloser(bytes.NewReader(b.kept))
	case b.can:
		return http.NoBody
	}
	return b.rest
}

// sendings bounds how often a request is sent that a node did not want.
const sendings = 3

// RoundTrip implements http.RoundTripper: it sends a request to the node of its sandbox. If that node
// says that it does not have the sandbox, nothing has happened, and the request goes to the node
// that has it now.
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	to, _ := r.Context().Value(targetKey{}).(*target)
	if to.id == "" {
		return p.ask(r, to)
	}
	for n := 1; ; n++ {
		node, err := p.node(r.Context(), to.id)
		if err != nil {
			return nil, err
		}
		resp, err := p.send(r, to, node)
		if err != nil {
			p.homes.forget(to.id)
			if refused(err) && to.body.can && n < sendings {
				continue // nothing was sent: its node may be another by now
			}
			return nil, err
		}
		if resp.Header.Get(gateway.HeaderRefused) != gateway.RefusedGone {
			return resp, nil
		}
		p.homes.forget(to.id)
		again, err := p.node(r.Context(), to.id)
		if err != nil || again.Name == node.Name || !to.body.can || n == sendings {
			return resp, nil // the node's answer is right, or can't be mended
		}
		_ = resp.Body.Close()
	}
}

// send sends a request to a node. The connection ends with the sandbox's stay there.
func (p *proxy) send(r *http.Request, to *target, node fleet.Node) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	life, release := p.homes.lives.hold(to.id, node.Name)
	stop := context.AfterFunc(life, func() { cancel(errMoved) })
	done := func() { stop(); release(); cancel(nil) }
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = "https", hostOf(node.URL)
	out.Host = r.Host
	out.Body = to.body.body()
	if out.ContentLength == 0 && to.body.can {
		out.Body = nil
	}
	pool := p.pool(node)
	if p.nodes.engine.Away(node.Name) != nil {
		pool.closeIdle() // perhaps nobody hears what is sent on them; a new one shows it in time
	}
	resp, err := pool.of(r).RoundTrip(out)
	if err != nil {
		done()
		return nil, err
	}
	bindBody(resp, life, done)
	return resp, nil
}

// ask sends a request that names no sandbox, but has a signature, to one node after the other, until
// one has the sandbox whose token signed it. A body that can't be sent again goes to the node that
// does not refuse the question that browsers ask before they send one.
func (p *proxy) ask(r *http.Request, to *target) (*http.Response, error) {
	ready, _ := p.nodes.ready()
	if len(ready) == 0 {
		return nil, &carrel.Error{Op: "route request", Kind: carrel.Unavailable, Err: errNoNodes}
	}
	for i, node := range ready {
		if !to.body.can && i < len(ready)-1 && !p.wants(r, node) {
			continue
		}
		resp, err := p.send(r, to, node)
		if err != nil || resp.Header.Get(gateway.HeaderRefused) != gateway.RefusedGone || !to.body.can || i == len(ready)-1 {
			return resp, err
		}
		_ = resp.Body.Close()
	}
	return nil, errNoNodes // not reached: the last node's answer is returned
}

// wants reports whether a node has the sandbox whose token signed a request.
func (p *proxy) wants(r *http.Request, node fleet.Node) bool {
	q := r.Clone(r.Context())
	q.Method, q.Body, q.ContentLength = http.MethodOptions, nil, 0
	q.Header = http.Header{"Origin": {"https://example.com"}, "Access-Control-Request-Method": {r.Method}}
	resp, err := p.send(q, &target{body: &repeatable{can: true}}, node)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.Header.Get(gateway.HeaderRefused) != gateway.RefusedGone
}

// refused reports whether a connection was not made.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func hostOf(nodeURL string) string {
	u, err := url.Parse(nodeURL)
	if err != nil {
		return ""
	}
	return u.Host
}

// node returns the node of a sandbox. One that has no home is asked for at any node, which words the
// answer.
func (p *proxy) node(ctx context.Context, id carrel.ID) (fleet.Node, error) {
	home, err := p.homes.find(ctx, id)
	if err == nil {
		if n, ok := p.nodes.node(home.Node); ok {
			return n, nil
		}
		err = &carrel.Error{Op: "route request", Kind: carrel.Unavailable, ID: id, Err: errors.New("its node has left the fleet")}
	}
	if carrel.KindOf(err) != carrel.NotFound || errors.Is(err, errGone) {
		return fleet.Node{}, err
	}
	ready, _ := p.nodes.ready()
	if len(ready) == 0 {
		return fleet.Node{}, &carrel.Error{Op: "route request", Kind: carrel.Unavailable, ID: id, Err: errNoNodes}
	}
	return ready[0], nil
}

// pool returns the connections to a node.
func (p *proxy) pool(n fleet.Node) *pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := [2]string{n.Name, n.URL}
	if have := p.pools[at]; have != nil {
		return have
	}
	fresh := &pool{
		plain: &http.Transport{DialContext: dialNode, TLSClientConfig: p.nodes.tls(n.Name), TLSHandshakeTimeout: 5 * time.Second,
			DisableCompression: true, MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute, WriteBufferSize: bufferSize,
			ReadBufferSize: 32 << 10, MaxResponseHeaderBytes: 1 << 20,
			TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}},
		grpc: &http.Transport{DialContext: dialNode, TLSClientConfig: h2(p.nodes.tls(n.Name)), TLSHandshakeTimeout: 5 * time.Second,
			DisableCompression: true, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
			// A connection that brings nothing is asked, and given up without an answer.
			HTTP2: &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second}},
	}
	p.pools[at] = fresh
	return fresh
}

func h2(c *tls.Config) *tls.Config {
	c.NextProtos = []string{"h2"}
	return c
}

// of returns the transport for a request. gRPC needs HTTP/2, and upgrades need HTTP/1.1.
func (p *pool) of(r *http.Request) *http.Transport {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		return p.grpc
	}
	return p.plain
}

// closeIdle drops the idle connections to the node.
func (p *pool) closeIdle() {
	p.plain.CloseIdleConnections()
	p.grpc.CloseIdleConnections()
}

// close drops idle connections.
func (p *proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pool := range p.pools {
		pool.closeIdle()
	}
}

// failed answers for a node that did not.
func (p *proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client left
	}
	to, _ := r.Context().Value(targetKey{}).(*target)
	request.Touch(r.Context(), string(to.id))
	code, message := http.StatusBadGateway, "The node of the sandbox did not answer"
	if errors.Is(err, errGone) {
		message = "The sandbox was not found: " + err.Error() // with the code that the gateway has for it
	}
	if carrel.KindOf(err) == carrel.Unavailable {
		code, message = http.StatusServiceUnavailable, err.Error()
		if after := carrel.RetryAfterOf(err); after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int(after.Seconds()))))
		}
	}
	gateway.Refuse(w, r, to.id, code, message)
}

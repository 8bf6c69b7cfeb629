package web

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	// maxStreams bounds the requests at once on one HTTP/2 connection.
	maxStreams = 128
	// maxPlaces bounds the places of one HTTP/2 connection: the servers that it keeps connections
	// to, each with its credentials.
	maxPlaces = 4
)

// http2 serves an HTTP/2 connection, with several requests at once. The protocol's framing always
// shows where a request ends, so package net/http reads and writes it.
type http2 struct {
	*session
	busy sync.WaitGroup // handlers

	mu     sync.Mutex
	closed bool
	places []*place // the newest last
	conns  map[*keptConn]struct{}
}

// place is a destination of requests with the same credentials. These requests share connections.
type place struct {
	byName    string
	inject    *carrel.Injection
	transport *http.Transport
	planner   planner
}

// serveHTTP2 serves conn, a *tls.Conn or cleartext, until it ends.
func (c *session) serveHTTP2(ctx context.Context, conn net.Conn) {
	h := &http2{session: c, conns: make(map[*keptConn]struct{})}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	l := &oneListener{conn: conn, done: make(chan struct{})}
	server := &http.Server{
		Handler: h, Protocols: &protocols, MaxHeaderBytes: maxHead, IdleTimeout: idleTimeout, ReadHeaderTimeout: h.proxy.headTimeout,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 256 << 10},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed || s == http.StateHijacked {
				_ = l.Close()
			}
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	_ = server.Serve(l)
	stop()
	_ = server.Close()
	h.busy.Wait()
	h.closePlaces()
}

// oneListener gives one connection. It ends when that connection is closed.
type oneListener struct {
	conn net.Conn
	once sync.Once
	done chan struct{}

	mu    sync.Mutex
	given bool
}

// Accept implements net.Listener.
func (l *oneListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	first := !l.given
	l.given = true
	l.mu.Unlock()
	if first {
		return l.conn, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *oneListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *oneListener) Addr() net.Addr { return l.conn.LocalAddr() }

// place returns the place for an exchange's request.
func (h *http2) place(byName string, inject *carrel.Injection) *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.places {
		if p.byName == byName && sameInjection(p.inject, inject) {
			return p
		}
	}
	if len(h.places) >= maxPlaces {
		h.places[0].transport.CloseIdleConnections()
		h.places = h.places[1:]
	}
	var protocols http.Protocols
	if h.TLS {
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	} else {
		protocols.SetUnencryptedHTTP2(true)
	}
	p := &place{byName: byName, inject: inject, transport: &http.Transport{
		DialContext: h.dial, DialTLSContext: h.dial, Protocols: &protocols, DisableCompression: true,
		MaxIdleConnsPerHost: 8, MaxConnsPerHost: maxStreams, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 4 * maxHead,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 256 << 10},
	}}
	h.places = append(h.places, p)
	return p
}

type exchangeKey struct{}

// dial makes a connection for the request in its context.
func (h *http2) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	e, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, net.ErrClosed
	}
	return h.proxy.dial(ctx, h.Session, e.flow, e.verdict, []string{"h2", "http/1.1"}, h.keep)
}

// keep makes sure that a connection ends with its session.
func (h *http2) keep(conn net.Conn) net.Conn {
	k := &keptConn{Conn: conn, of: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		_ = conn.Close()
	} else {
		h.conns[k] = struct{}{}
	}
	return k
}

// keptConn is a connection to a server. The session closes it.
type keptConn struct {
	net.Conn
	of *http2
}

// Close implements net.Conn.
func (k *keptConn) Close() error {
	k.of.mu.Lock()
	delete(k.of.conns, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}

func (h *http2) closePlaces() {
	h.mu.Lock()
	h.closed = true
	places, conns := h.places, h.conns
	h.places, h.conns = nil, nil
	h.mu.Unlock()
	for _, p := range places {
		p.transport.CloseIdleConnections()
	}
	for c := range conns {
		_ = c.Conn.Close()
	}
}

// ServeHTTP serves one request.
func (h *http2) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.busy.Add(1)
	defer h.busy.Done()
	ctx := r.Context()
	var q request
	if ref := q.readHTTP2(r, h.TLS); ref != nil {
		e := exchange{start: time.Now()}
		e.flow.Method, e.flow.Path, e.flow.Name = q.method, q.path, q.host
		h.refuse(w, r, &q, &e, ref)
		return
	}
	if !h.proxy.enter(h.ID) {
		h.refuse(w, r, &q, &exchange{start: time.Now()}, crowded)
		return
	}
	defer h.proxy.leave(h.ID)
	e, ref := h.admit(ctx, &q)
	if ref == nil && e.inject != nil {
		ref = h.prepare(ctx, &q, &e, &h.place(e.verdict.ByName, e.verdict.Inject).planner)
	}
	if ref != nil {
		h.refuse(w, r, &q, &e, ref)
		return
	}
	h.forward(w, r, &q, &e)
}

// readHTTP2 reads a request of HTTP/2.
func (q *request) readHTTP2(r *http.Request, tls bool) *refusal {
	q.method = r.Method
	if !isToken(q.method) || len(q.method) > 32 {
		return malformed("the method is not a word")
	}
	for i := range len(r.RequestURI) {
		if c := r.RequestURI[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return malformed("the target holds a character that must be escaped")
		}
	}
	for name, values := range r.Header {
		switch known(name) {
		case "host":
			if len(values) != 1 || !strings.EqualFold(values[0], r.Host) {
				return malformed("a request needs exactly one Host")
			}
		case "content-length":
			if len(values) != 1 {
				return malformed("the length of the body is said more than once")
			}
			if _, ok := contentLength([]byte(values[0])); !ok {
				return malformed("the content length is not one number")
			}
		case "accept":
			q.json = q.json || wantsJSON(strings.Join(values, ","))
		default:
			for _, v := range values {
				if r := q.override([]byte(name), v); r != nil {
					return r
				}
			}
		}
	}
	return q.readTarget([]byte(r.RequestURI), []byte(r.Host), tls)
}

// refuse answers with a refusal.
func (h *http2) refuse(w http.ResponseWriter, r *http.Request, q *request, e *exchange, ref *refusal) {
	h.reportRefusal(r.Context(), e, ref)
	fields, text := ref.fields(q, h.TLS, q.json)
	for _, f := range fields {
		w.Header().Set(f[0], f[1])
	}
	w.WriteHeader(ref.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text)
	}
}

// forward sends the request to its server and the answer to the sandbox.
func (h *http2) forward(w http.ResponseWriter, r *http.Request, q *request, e *exchange) {
	ctx := context.WithValue(r.Context(), exchangeKey{}, e)
	a := &http2Answer{w: w, e: e}
	if r.ContentLength == 0 {
		// With a body, informational answers are left out. Once package net/http has sent one, it
		// no longer tells a waiting client to send the body.
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: a.inform})
	}
	sent := &countedBody{ReadCloser: r.Body}
	res, err := h.place(e.verdict.ByName, e.verdict.Inject).transport.RoundTrip(h.outgoing(ctx, r, q, e, sent))
	a.finish()
	if err != nil {
		e.sent = sent.n.Load()
		if r.Context().Err() != nil {
			h.report(ctx, e, statusGone)
			panic(http.ErrAbortHandler)
		}
		h.refuse(w, r, q, e, unreachable(e.verdict, unanswered(err)))
		return
	}
	defer res.Body.Close()
	encoding := ""
	if e.scrub() != nil && r.Method != http.MethodHead {
		for _, v := range res.Header.Values("Content-Encoding") {
			encoding = joinEncoding(encoding, v)
		}
		for _, v := range res.Header.Values("Grpc-Encoding") {
			encoding = joinEncoding(encoding, messageEncoding(v))
		}
	}
	err = decodable(encoding)
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols {
		err = errProtocol
	}
	if err != nil {
		h.refuse(w, r, q, e, unreachable(e.verdict, err))
		return
	}
	err = a.relay(res, encoding, r.Method)
	e.sent, e.received = sent.n.Load(), a.wrote
	h.report(ctx, e, res.StatusCode)
	if err != nil {
		panic(http.ErrAbortHandler) // the sandbox must not take the answer for complete
	}
}

// unanswered says why no answer came, in words of our own. Errors of package net/http quote the
// server's bytes, which may contain a secret.
func unanswered(err error) error {
	if own, ok := errors.AsType[dialError](err); ok {
		return own.error
	}
	if own, ok := errors.AsType[*carrel.Error](err); ok {
		return own
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		return &carrel.Error{Kind: carrel.TimedOut, Err: errors.New("the server did not answer in time")}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the server ended the connection without an answer")
	case isTransport(err):
		return errors.New("the connection to the server broke")
	}
	return errors.New("what the server answers is not HTTP as it is to be")
}

// outgoing builds the request anew.
func (h *http2) outgoing(ctx context.Context, r *http.Request, q *request, e *exchange, body *countedBody) *http.Request {
	u := &url.URL{Scheme: "http", Host: net.JoinHostPort(q.host, strconv.Itoa(int(h.Port))), Opaque: q.path}
	if h.TLS {
		u.Scheme = "https"
	}
	if strings.HasPrefix(q.path, "//") { // in Opaque it would mean something else
		u.Opaque, u.Path, u.RawPath = "", r.URL.Path, r.URL.RawPath
	}
	u.RawQuery = e.plan.rewriteQuery(q.query)
	u.ForceQuery = q.hasQuery
	out := (&http.Request{
		Method: r.Method, URL: u, Host: q.authority(), Header: make(http.Header, len(r.Header)+2),
		ContentLength: r.ContentLength, Proto: "HTTP/2.0", ProtoMajor: 2,
	}).WithContext(ctx)
	if r.ContentLength != 0 {
		out.Body = body
		out.Trailer = trailerKeys(r.Trailer)
		body.end = func() { copyTrailer(out.Trailer, r.Trailer) }
	}
	scrub := e.scrub() != nil
	for name, values := range r.Header {
		k := known(name)
		if k == "te" && len(values) == 1 && strings.EqualFold(values[0], "trailers") {
			out.Header["Te"] = values // of gRPC
			continue
		}
		if k == "host" || k == "content-length" || k == "expect" || hop(k) || (scrub && obscures(k)) || e.plan.replaces([]byte(name)) {
			continue
		}
		out.Header[name] = values
	}
	if scrub {
		out.Header["Accept-Encoding"] = []string{"identity"}
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			out.Header["Grpc-Accept-Encoding"] = []string{"identity"}
			delete(out.Header, "Accept-Encoding")
		}
	}
	if e.plan != nil {
		for _, f := range e.plan.headers {
			out.Header[textproto.CanonicalMIMEHeaderKey(f.name)] = []string{f.value}
		}
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{""} // or ours would be put in
	}
	return out
}

func trailerKeys(from http.Header) http.Header {
	if len(from) == 0 {
		return nil
	}
	to := make(http.Header, len(from))
	for k := range from {
		if trails(k) {
			to[k] = nil
		}
	}
	return to
}

func copyTrailer(to, from http.Header) {
	for k := range to {
		to[k] = from[k]
	}
}

// countedBody counts the bytes read of a request's body.
type countedBody struct {
	io.ReadCloser
	n   atomic.Int64
	end func() // at its end
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	if err == io.EOF && b.end != nil {
		b.end()
	}
	return n, err
}

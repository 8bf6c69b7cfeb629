package web

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// maxInformational bounds the informational answers before the final one.
const maxInformational = 16

// http1 serves a connection of HTTP/1, one request after the other. It writes each forwarded
// request anew from the parts that it understood and judged.
type http1 struct {
	*session
	ctx   context.Context
	conn  net.Conn
	in    *reader
	watch watcher
	q     http1Request
	head  head // of the request, then of the response
	out   []byte
	began int64 // bytes from the sandbox before the request
	wrote int64 // to the sandbox, of the answer
}

// serveHTTP1 serves conn. in is a reader on it, or nil.
func (c *session) serveHTTP1(ctx context.Context, conn net.Conn, in *reader) {
	if in == nil {
		in = newReader(conn)
	}
	in.patience = c.proxy.headTimeout
	h := &http1{session: c, ctx: ctx, conn: conn, in: in}
	h.watch = watcher{conn: conn, read: in.fill}
	defer in.release()
	for h.next() {
	}
}

// write sends bytes to the sandbox.
func (h *http1) write(b []byte) error {
	n, err := h.conn.Write(b)
	h.wrote += int64(n)
	return err
}

// next serves one request and reports whether another may come.
func (h *http1) next() bool {
	h.wrote = 0
	h.q = http1Request{nominated: h.q.nominated[:0]}
	b, err := h.in.requestHead()
	h.began = h.in.count - int64(len(h.in.buffered())) - int64(len(b))
	if err != nil {
		h.badHead(err)
		return false
	}
	if err := h.head.parseRequest(b); err != nil {
		h.refuse(&exchange{start: time.Now()}, malformed(err.Error()))
		return false
	}
	if r := h.q.read(&h.head, h.TLS); r != nil {
		e := exchange{start: time.Now()}
		e.flow.Method, e.flow.Path, e.flow.Name = h.q.method, h.q.path, h.q.host
		h.refuse(&e, r)
		return false
	}
	if !h.proxy.enter(h.ID) {
		return h.refuse(&exchange{start: time.Now()}, crowded)
	}
	defer h.proxy.leave(h.ID)
	e, r := h.admit(h.ctx, &h.q.request)
	if r == nil {
		r = h.prepare(h.ctx, &h.q.request, &e, &h.planner)
	}
	if r != nil {
		return h.refuse(&e, r)
	}
	return h.forward(&e) && h.ctx.Err() == nil
}

// badHead answers bytes that are no head. If no bytes came, it sends no answer.
func (h *http1) badHead(err error) {
	e := exchange{start: time.Now()}
	switch {
	case errors.Is(err, errTooLarge):
		h.refuse(&e, &refusal{status: http.StatusRequestHeaderFieldsTooLarge, rule: ruleHTTP, reason: err.Error(), close: true})
	case errors.Is(err, errBareLF):
		h.refuse(&e, malformed(err.Error()))
	case isTimeout(err) && h.in.r < h.in.w:
		h.refuse(&e, &refusal{status: http.StatusRequestTimeout, rule: ruleHTTP, reason: "the head of the request took too long", close: true})
	}
}

// refuse answers with a refusal. It reports whether the connection can go on.
func (h *http1) refuse(e *exchange, r *refusal) bool {
	h.reportRefusal(h.ctx, e, r)
	end := r.close || h.q.how != noBody || h.q.close
	fields, text := r.fields(&h.q.request, h.TLS, h.q.json)
	b := append(h.out[:0], "HTTP/1.1 "+strconv.Itoa(r.status)+" "+http.StatusText(r.status)+"\r\n"...)
	for _, f := range fields {
		b = append(append(append(append(b, f[0]...), ": "...), f[1]...), "\r\n"...)
	}
	if end {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(b, "\r\n"...)
	if h.q.method != http.MethodHead {
		b = append(b, text...)
	}
	h.out = b
	if h.write(b) != nil {
		return false
	}
	if end {
		h.linger()
	}
	return !end
}

// linger gives the sandbox time to read an answer, and discards everything that the sandbox still
// sends. If a connection is closed while bytes are unread, it is reset and the answer is lost.
func (h *http1) linger() {
	if w, ok := h.conn.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
	_ = h.conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for n := 0; n < 1<<20; {
		m, err := h.conn.Read((*buf)[:cap(*buf)])
		if n += m; err != nil {
			return
		}
	}
}

// buffers holds memory for moving bodies. Each buffer begins empty.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bigBuffer); return &b }}

// forward sends the request to its server and the answer to the sandbox. It reports whether the
// connection can go on.
func (h *http1) forward(e *exchange) bool {
	up := &upload{body: body{r: h.in, how: h.q.how, left: h.q.length}}
	h.out = up.inline(h.appendRequest(h.out[:0], e))
	for fresh := false; ; fresh = true {
		u, err := h.connect(h.ctx, e, fresh)
		if err != nil {
			return h.refuse(e, unreachable(e.verdict, err))
		}
		h.send(u, up)
		again, goOn := h.answer(e, u, up)
		if !again {
			return goOn
		}
	}
}

// send writes the request and starts to send the rest of its body. It returns no error: if the
// write fails, reading the answer shows it. The server may have answered before the end.
func (h *http1) send(u *upstream, up *upload) {
	u.asked = u.in.count
	if _, err := u.conn.Write(h.out); err == nil && !up.complete {
		up.start(h, u)
		return
	}
	h.watch.ended = func() { _ = u.conn.Close() }
	h.watch.arm()
}

// settle ends the sending and watching that send started. It reports whether the whole request was
// sent, so that another can follow it.
func (h *http1) settle(u *upstream, up *upload) bool {
	stopped := false
	if up.done != nil {
		select {
		case <-up.done:
		default:
			if up.read.Load() { // the last piece is being written
				_ = u.conn.SetWriteDeadline(time.Now().Add(time.Second))
			} else {
				stopped = true
				_ = u.conn.Close()
				_ = h.conn.SetReadDeadline(time.Unix(1, 0))
			}
			<-up.done
			_ = u.conn.SetWriteDeadline(time.Time{})
			_ = h.conn.SetReadDeadline(time.Time{})
		}
	}
	return h.watch.disarm() && up.complete && !stopped
}

// appendRequest writes the head of the request anew.
func (h *http1) appendRequest(b []byte, e *exchange) []byte {
	q := &h.q
	b = append(append(append(b, q.method...), ' '), q.path...)
	if query := e.plan.rewriteQuery(q.query); query != "" || q.hasQuery {
		b = append(append(b, '?'), query...)
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(append(b, q.authority()...), "\r\n"...)
	scrub := e.scrub() != nil
	for _, f := range h.head.fields {
		k := known(f.name)
		if k == "host" || k == "content-length" || hop(k) || (scrub && obscures(k)) || h.nominated(f.name) || e.plan.replaces(f.name) {
			continue
		}
		b = appendField(b, f.name, f.value)
	}
	switch q.how {
	case byLength:
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), q.length, 10), "\r\n"...)
	case byChunks:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	if q.websocket {
		b = append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n"...)
	}
	if scrub {
		b = append(b, "Accept-Encoding: identity\r\n"...)
	}
	if e.plan != nil {
		for _, f := range e.plan.headers {
			b = appendField(b, f.name, f.value)
		}
	}
	return append(b, "\r\n"...)
}

// nominated reports whether the request itself says that a field is for this connection only.
func (h *http1) nominated(name []byte) bool {
	for _, n := range h.q.nominated {
		if same(name, n) {
			return true
		}
	}
	return false
}

// obscures reports whether a request field can make the server hide secrets in its answer. It can
// do so by an encoding, or by ranges that are each too short to show a secret.
func obscures(known string) bool {
	switch known {
	case "accept-encoding", "grpc-accept-encoding", "sec-websocket-extensions", "range", "if-range":
		return true
	}
	return false
}

func appendField[N, V string | []byte](b []byte, name N, value V) []byte {
	return append(append(append(append(b, name...), ": "...), value...), "\r\n"...)
}

// upload is the body of a request that is being sent.
type upload struct {
	body     body
	complete bool          // all of it is sent
	err      error         // of the sandbox's side
	read     atomic.Bool   // the whole body has come from the sandbox
	done     chan struct{} // nil when nothing was started
}

// inline appends a body that has already arrived to the head.
func (up *upload) inline(b []byte) []byte {
	switch {
	case up.body.how == noBody || (up.body.how == byLength && up.body.left == 0):
		up.complete = true
	case up.body.how == byLength && up.body.left <= int64(len(up.body.r.buffered())):
		n := int(up.body.left)
		b = append(b, up.body.r.buffered()[:n]...)
		up.body.r.r += n
		up.complete = true
	}
	return b
}

// start sends the body while the answer is read.
func (up *upload) start(h *http1, u *upstream) {
	up.done = make(chan struct{})
	go func() {
		defer close(up.done)
		if up.err = up.run(u.conn); up.err != nil {
			_ = u.conn.Close() // the server must not take the body for complete
		} else if up.complete {
			h.watch.ended = func() { _ = u.conn.Close() }
			h.watch.arm()
		}
	}()
}

// run copies the body. It returns only the sandbox's errors. A server that accepts no more may
// still answer.
func (up *upload) run(to net.Conn) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	chunks := up.body.how == byChunks
	for {
		b := (*buf)[:0]
		if chunks {
			b = b[:chunkRoom]
		}
		n, err := up.body.Read(b[len(b) : cap(b)-chunkRoom])
		b = b[:len(b)+n]
		switch {
		case chunks && n > 0:
			b = appendChunk(b, 0)
		case chunks:
			b = b[:0]
		}
		if err == io.EOF {
			up.read.Store(true)
		}
		if err == io.EOF && chunks {
			b = appendTrailer(b, up.body.trailer.fields, nil)
		}
		if err != nil && err != io.EOF {
			return err
		}
		if len(b) > 0 {
			if _, werr := to.Write(b); werr != nil {
				return nil
			}
		}
		if err == io.EOF {
			up.complete = true
			return nil
		}
	}
}

// appendTrailer ends a chunked body, with its trailer.
func appendTrailer(b []byte, fields []field, scrub *needles) []byte {
	b = append(b, "0\r\n"...)
	for _, f := range fields {
		if trails(f.name) && !scrub.in(f.name) {
			b = appendField(b, f.name, scrub.strike(f.value))
		}
	}
	return append(b, "\r\n"...)
}

// trails reports whether a field may come after a body. It must not frame, route or authenticate.
func trails[T string | []byte](name T) bool {
	return known(name) == "" && !same(name, "authorization") && !same(name, "cookie") && !same(name, "set-cookie")
}

// replayable reports whether a request may be sent twice.
func replayable(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// statusGone is recorded when the sandbox did not wait for the answer.
const statusGone = 499

// answer is the parsed head of a response.
type answer struct {
	how       framing
	length    int64
	hasLength bool
	close     bool
	encoding  string
	websocket bool
	nominated []string
}

// read parses the head of an answer to a request with this method.
func (a *answer) read(h *head, method string) error {
	*a = answer{how: untilClose, close: h.minor == 0}
	chunked := false
	for _, f := range h.fields {
		switch known(f.name) {
		case "content-length":
			n, ok := contentLength(f.value)
			if !ok || (a.hasLength && n != a.length) {
				return errors.New("the answer's length is not one number")
			}
			a.length, a.hasLength, a.how = n, true, byLength
		case "transfer-encoding":
			if chunked || !strings.EqualFold(string(f.value), "chunked") {
				return errors.New("the answer's transfer encoding is another than chunked")
			}
			chunked = true
		case "connection":
			for name := range strings.SplitSeq(strings.ToLower(string(f.value)), ",") {
				switch name = strings.TrimSpace(name); name {
				case "close":
					a.close = true
				case "", "keep-alive", "upgrade":
				default:
					a.nominated = append(a.nominated, name)
				}
			}
		case "content-encoding":
			a.encoding = joinEncoding(a.encoding, string(f.value))
		case "grpc-encoding":
			a.encoding = joinEncoding(a.encoding, messageEncoding(string(f.value)))
		case "upgrade":
			a.websocket = strings.EqualFold(string(f.value), "websocket")
		}
	}
	if chunked {
		a.close = a.close || a.hasLength // somebody is confused
		a.how, a.hasLength = byChunks, false
	}
	if method == http.MethodHead || h.status < 200 || h.status == http.StatusNoContent || h.status == http.StatusNotModified {
		a.how = noBody
	}
	return nil
}

// joinEncoding appends an encoding to a list.
func joinEncoding(to, encoding string) string {
	switch encoding = strings.ToLower(strings.TrimSpace(encoding)); {
	case encoding == "" || encoding == "identity":
		return to
	case to == "":
		return encoding
	}
	return to + ", " + encoding
}

// messageEncoding is the encoding of each message within a body. Such an encoding is not decoded.
func messageEncoding(encoding string) string {
	if encoding == "" || strings.EqualFold(encoding, "identity") {
		return ""
	}
	return "messages in " + encoding
}

// answer reads the server's answer and forwards it. again means that nothing came, and that the
// request may be sent once more. goOn means that the connection can go on.
func (h *http1) answer(e *exchange, u *upstream, up *upload) (again, goOn bool) {
	var a answer
	for i := 0; ; i++ {
		err := h.readAnswer(&a, u)
		if err == nil && i > maxInformational {
			err = errors.New("the server answers without end")
		}
		if err == nil && h.head.status == http.StatusSwitchingProtocols {
			if h.q.websocket && a.websocket {
				h.settle(u, up)
				h.serveWebSocket(e, u)
				return false, false
			}
			err = errProtocol
		}
		if err != nil {
			return h.unanswered(e, u, up, err)
		}
		if h.head.status >= 200 {
			if e.scrub() == nil || a.how == noBody {
				a.encoding = ""
			}
			if err = decodable(a.encoding); err != nil {
				return h.unanswered(e, u, up, err)
			}
			break
		}
		if err := h.inform(e); err != nil {
			h.settle(u, up)
			h.drop()
			h.ended(e, statusGone)
			return false, false
		}
	}
	u.used = true
	ended, err := h.relay(e, &a, u)
	status := h.head.status
	whole := h.settle(u, up)
	switch {
	case !ended || !whole || a.close || a.how == untilClose || len(u.in.buffered()) > 0:
		h.drop()
	default:
		u.in.shrink()
		u.idle.arm()
	}
	if h.watch.gone() {
		status = statusGone
	}
	h.ended(e, status)
	if err == nil && !whole {
		h.linger()
	}
	return false, err == nil && whole && !h.q.close
}

// readAnswer reads the head of an answer.
func (h *http1) readAnswer(a *answer, u *upstream) error {
	b, err := u.in.head(true)
	if err != nil {
		return err
	}
	if err := h.head.parseResponse(b); err != nil {
		return err
	}
	return a.read(&h.head, h.q.method)
}

// ended reports an exchange that had an answer.
func (h *http1) ended(e *exchange, status int) {
	e.sent, e.received = h.in.count-int64(len(h.in.buffered()))-h.began, h.wrote
	h.report(h.ctx, e, status)
}

// unanswered ends an exchange that had no answer.
func (h *http1) unanswered(e *exchange, u *upstream, up *upload, err error) (again, goOn bool) {
	nothing := u.in.count == u.asked && len(u.in.buffered()) == 0
	inline := up.done == nil
	alive := h.settle(u, up) || !up.complete
	retry := nothing && u.used && inline && up.complete && alive && replayable(h.q.method)
	h.drop()
	switch {
	case h.ctx.Err() != nil || !alive:
		h.ended(e, statusGone)
		return false, false
	case retry:
		return true, false
	case up.err != nil && isTransport(up.err):
		h.ended(e, statusGone)
		return false, false
	case up.err != nil:
		return false, h.refuse(e, malformed(up.err.Error()))
	}
	if nothing && (err == io.EOF || isTransport(err)) {
		err = errors.New("the server ended the connection without an answer")
	}
	return false, h.refuse(e, unreachable(e.verdict, err))
}

// inform forwards an informational answer.
func (h *http1) inform(e *exchange) error {
	if h.q.old {
		return nil // HTTP/1.0 knows none
	}
	h.out = h.appendAnswer(h.out[:0], &answer{how: noBody}, e.scrub(), true)
	return h.write(h.out)
}

// appendAnswer writes the head of an answer anew, without the fields that frame its body.
func (h *http1) appendAnswer(b []byte, a *answer, scrub *needles, end bool) []byte {
	b = append(strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(h.head.status), 10), ' ')
	b = append(append(b, http.StatusText(h.head.status)...), "\r\n"...)
fields:
	for _, f := range h.head.fields {
		k := known(f.name)
		if hop(k) || k == "content-length" || k == "alt-svc" || k == "carrel-denied" || scrub.in(f.name) || (a.encoding != "" && scrub != nil && k == "content-encoding") {
			continue
		}
		for _, n := range a.nominated {
			if same(f.name, n) {
				continue fields
			}
		}
		b = appendField(b, f.name, scrub.strike(f.value))
	}
	if end {
		b = append(b, "\r\n"...)
	}
	return b
}

// relay forwards an answer. ended says that the server's body was read to its end. An error means
// that the sandbox can't know where the next answer begins.
func (h *http1) relay(e *exchange, a *answer, u *upstream) (ended bool, err error) {
	from := body{r: u.in, how: a.how, left: a.length, lenient: true}
	src := io.Reader(&from)
	scrub := e.scrub()
	if a.encoding != "" {
		dec, err := decoded(&from, a.encoding)
		if err != nil {
			return false, err
		}
		defer dec.Close()
		src = dec
	}
	outBuf := buffers.Get().(*[]byte)
	defer buffers.Put(outBuf)
	out := h.appendAnswer((*outBuf)[:0], a, scrub, false)
	chunks := false
	switch {
	case a.how == noBody && !a.hasLength:
	case a.how == noBody || (a.how == byLength && a.encoding == ""):
		out = append(strconv.AppendInt(append(out, "Content-Length: "...), a.length, 10), "\r\n"...)
	case h.q.old:
		h.q.close = true
	default:
		chunks = true
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	if h.q.close {
		out = append(out, "Connection: close\r\n"...)
	}
	out = append(out, "\r\n"...)
	if !from.ready() || a.encoding != "" || cap(out)-len(out) < bigBuffer/4 {
		if err := h.write(out); err != nil {
			return false, err
		}
		out = out[:0]
	}
	if a.how == noBody {
		if len(out) > 0 {
			err = h.write(out)
		}
		return true, err
	}
	err = h.stream(src, out, scrub, chunks, &from)
	return from.ended, err
}

// stream copies a body. out holds the bytes before it.
func (h *http1) stream(src io.Reader, out []byte, set *needles, chunks bool, from *body) error {
	s := scrubber{set: set}
	var in []byte
	if set != nil {
		inBuf := buffers.Get().(*[]byte)
		defer buffers.Put(inBuf)
		in = (*inBuf)[:cap(*inBuf)]
	}
	for {
		start := len(out)
		if chunks {
			out = append(out, "00000000"...)
		}
		empty := len(out)
		var n int
		var err error
		if set == nil {
			n, err = src.Read(out[len(out) : cap(out)-chunkRoom])
			out = out[:len(out)+n]
		} else {
			n, err = src.Read(in)
			if out = s.next(out, in[:n]); err == io.EOF {
				out = s.rest(out)
			}
		}
		switch {
		case len(out) == empty:
			out = out[:start]
		case chunks:
			out = appendChunk(out, start)
		}
		if err == io.EOF && chunks {
			var trailer []field
			if from.how == byChunks && from.ended {
				trailer = from.trailer.fields
			}
			out = appendTrailer(out, trailer, set)
		}
		if len(out) > 0 {
			if werr := h.write(out); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		out = out[:0]
	}
}

// isTransport reports whether an error comes from a connection, and not from the bytes on it.
func isTransport(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || isTimeout(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

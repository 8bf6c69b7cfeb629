package web

import (
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"sync"
)

// errProtocol is the error for an answer that changes the protocol without a request.
var errProtocol = errors.New("the server speaks another protocol than it was asked for")

// http2Answer forwards one answer.
type http2Answer struct {
	w     http.ResponseWriter
	e     *exchange
	wrote int64

	mu       sync.Mutex
	informed int
	finished bool // the answer itself is there
}

// inform forwards an informational answer.
func (a *http2Answer) inform(code int, header textproto.MIMEHeader) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.finished || code == http.StatusContinue {
		return nil
	}
	if a.informed++; a.informed > maxInformational {
		return errors.New("the server answers without end")
	}
	to := a.w.Header()
	a.copyHeader(to, http.Header(header), "")
	a.w.WriteHeader(code)
	clear(to)
	return nil
}

// finish ends the informational answers.
func (a *http2Answer) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.finished = true
}

// copyHeader copies the fields that are not for one connection only, and removes secrets from them.
func (a *http2Answer) copyHeader(to, from http.Header, encoding string) {
	scrub := a.e.scrub()
	nominated := from.Values("Connection")
	for name, values := range from {
		k := known(name)
		if hop(k) || k == "alt-svc" || k == "carrel-denied" || scrub.in([]byte(name)) || (encoding != "" && (k == "content-encoding" || k == "content-length")) || lists(nominated, name) {
			continue
		}
		if scrub == nil {
			to[name] = values
			continue
		}
		out := make([]string, len(values))
		for i, v := range values {
			out[i] = scrub.strikeText(v)
		}
		to[name] = out
	}
}

// relay forwards the answer as it comes.
func (a *http2Answer) relay(res *http.Response, encoding, method string) error {
	a.copyHeader(a.w.Header(), res.Header, encoding)
	a.w.WriteHeader(res.StatusCode)
	if method == http.MethodHead || res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified {
		return nil
	}
	control := http.NewResponseController(a.w)
	// A short body is probably here already, and is sent with its head.
	if res.ContentLength < 0 || res.ContentLength > smallBuffer {
		if err := control.Flush(); err != nil {
			return err
		}
	}
	src, length := io.Reader(res.Body), res.ContentLength
	if encoding != "" {
		length = -1
		dec, err := decoded(res.Body, encoding)
		if err != nil {
			return err
		}
		defer dec.Close()
		src = dec
	}
	if err := a.stream(src, control, length); err != nil {
		return err
	}
	for name, values := range res.Trailer {
		if !trails(name) {
			continue
		}
		for _, v := range values {
			a.w.Header().Add(http.TrailerPrefix+name, a.e.scrub().strikeText(v))
		}
	}
	return nil
}

// stream copies a body of length bytes, or of unknown length. It flushes each part, except the
// last: the end of the answer flushes that.
func (a *http2Answer) stream(src io.Reader, control *http.ResponseController, length int64) error {
	inBuf, outBuf := buffers.Get().(*[]byte), buffers.Get().(*[]byte)
	defer buffers.Put(inBuf)
	defer buffers.Put(outBuf)
	in := (*inBuf)[:cap(*inBuf)]
	s := scrubber{set: a.e.scrub()}
	came := int64(0)
	for {
		n, err := src.Read(in)
		out := in[:n]
		if s.set != nil {
			out = s.next((*outBuf)[:0], out)
			if err == io.EOF {
				out = s.rest(out)
			}
		}
		if len(out) > 0 {
			m, werr := a.w.Write(out)
			a.wrote += int64(m)
			if werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if came += int64(n); len(out) > 0 && came != length {
			if err := control.Flush(); err != nil {
				return err
			}
		}
	}
}

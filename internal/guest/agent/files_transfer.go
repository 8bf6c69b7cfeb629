package agent

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// chunkSize is how much of a file is moved at once. A call into the kernel costs
	// more inside a sandbox than outside, so there are few and large ones.
	chunkSize = 1 << 20
	// transferStall is how long a client may neither send nor take anything before
	// its transfer is cut.
	transferStall = 2 * time.Minute
	// stallCheck is how often the deadline that enforces it is moved.
	stallCheck = 5 * time.Second
)

// buffers are chunks that are used again: a transfer needs one whatever its size.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, chunkSize)
	return &p
}

func (b *buffers) put(p *[]byte) { b.pool.Put(p) }

// readError is an error of the source of a copy, as opposed to its target.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// copyChunks copies in whole chunks, however small the pieces that src gives. An
// error of src is a *readError; what came before it has been written.
func copyChunks(dst io.Writer, src io.Reader, buf []byte) (total int64, err error) {
	for {
		n, rerr := fill(src, buf)
		if n > 0 {
			w, werr := dst.Write(buf[:n])
			total += int64(w)
			if werr != nil {
				return total, werr
			}
		}
		if rerr == io.EOF {
			return total, nil
		}
		if rerr != nil {
			return total, &readError{rerr}
		}
	}
}

// fill reads until buf is full or src ends. Unlike io.ReadFull it tells an end
// from an end too early: both would be io.ErrUnexpectedEOF there.
func fill(src io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = src.Read(buf[n:])
		n += m
	}
	return n, err
}

// stallingBody cuts a request's body that stops arriving.
type stallingBody struct {
	r    io.Reader
	ctx  context.Context // of the request
	ctl  *http.ResponseController
	last time.Time
}

func newStallingBody(w http.ResponseWriter, r *http.Request) *stallingBody {
	return &stallingBody{r: r.Body, ctx: r.Context(), ctl: http.NewResponseController(w)}
}

// Read reads on; errors of the deadline itself mean that this kind of connection
// has none.
func (b *stallingBody) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(b.last) > stallCheck {
		_ = b.ctl.SetReadDeadline(now.Add(transferStall))
		b.last = now
		if b.ctx.Err() != nil { // interrupted at this very moment: its deadline counts, and not this one
			_ = b.ctl.SetReadDeadline(past)
		}
	}
	n, err := b.r.Read(p)
	if err != nil { // after its end the server reads on to notice that the client has gone
		_ = b.ctl.SetReadDeadline(time.Time{})
	}
	return n, err
}

// stallingWriter cuts an answer that is not taken, and sends files in chunks:
// net/http would copy 32 KiB at a time.
type stallingWriter struct {
	http.ResponseWriter
	ctx     context.Context // of the request
	ctl     *http.ResponseController
	buffers *buffers
	last    time.Time
}

func newStallingWriter(w http.ResponseWriter, r *http.Request, b *buffers) *stallingWriter {
	return &stallingWriter{ResponseWriter: w, ctx: r.Context(), ctl: http.NewResponseController(w), buffers: b}
}

// Unwrap is for http.ResponseController.
func (w *stallingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write sends p.
func (w *stallingWriter) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(w.last) > stallCheck {
		_ = w.ctl.SetWriteDeadline(now.Add(transferStall)) // see stallingBody.Read
		w.last = now
		if w.ctx.Err() != nil {
			_ = w.ctl.SetWriteDeadline(past)
		}
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom sends what src holds.
func (w *stallingWriter) ReadFrom(src io.Reader) (int64, error) {
	buf := w.buffers.get()
	defer w.buffers.put(buf)
	return copyChunks(writerOnly{w}, src, *buf)
}

// done lifts the deadline: the connection may serve other requests.
func (w *stallingWriter) done() { _ = w.ctl.SetWriteDeadline(time.Time{}) }

// writerOnly hides ReadFrom.
type writerOnly struct{ io.Writer }

package agent

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// chunkSize is the size of one read or write of a file. System calls cost more inside a sandbox
	// than outside, so there are few and large ones.
	chunkSize = 1 << 20
	// transferStall is how long a transfer may move nothing, in either direction, before it is cut.
	transferStall = 2 * time.Minute
	// stallCheck is how often the deadline for that is moved.
	stallCheck = 5 * time.Second
)

// buffers is a pool of chunks: a transfer of any size needs one.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, chunkSize)
	return &p
}

func (b *buffers) put(p *[]byte) { b.pool.Put(p) }

// readError is an error of a copy's source, not of its target.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// copyChunks copies in whole chunks, however small the pieces from src are. An error of src is
// returned as a *readError; the bytes before it have been written.
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

// fill reads until buf is full or src ends. Unlike io.ReadFull it distinguishes the end of src from
// io.ErrUnexpectedEOF that src itself returns.
func fill(src io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = src.Read(buf[n:])
		n += m
	}
	return n, err
}

// stallingBody cuts a request whose body stops arriving.
type stallingBody struct {
	r    io.Reader
	ctx  context.Context // of the request
	ctl  *http.ResponseController
	last time.Time
}

func newStallingBody(w http.ResponseWriter, r *http.Request) *stallingBody {
	return &stallingBody{r: r.Body, ctx: r.Context(), ctl: http.NewResponseController(w)}
}

// Read reads from the body. It ignores errors of setting the deadline: this kind of connection then
// has none.
func (b *stallingBody) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(b.last) > stallCheck {
		_ = b.ctl.SetReadDeadline(now.Add(transferStall))
		b.last = now
		if b.ctx.Err() != nil { // just interrupted: keep the interruption's deadline
			_ = b.ctl.SetReadDeadline(past)
		}
	}
	n, err := b.r.Read(p)
	if err != nil { // after the body the server reads on to see the client leave
		_ = b.ctl.SetReadDeadline(time.Time{})
	}
	return n, err
}

// stallingWriter cuts an answer whose client takes nothing. It sends files in chunks; net/http
// would copy 32 KiB at a time.
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

// ReadFrom sends all of src.
func (w *stallingWriter) ReadFrom(src io.Reader) (int64, error) {
	buf := w.buffers.get()
	defer w.buffers.put(buf)
	return copyChunks(writerOnly{w}, src, *buf)
}

// done removes the deadline: the connection may serve other requests.
func (w *stallingWriter) done() { _ = w.ctl.SetWriteDeadline(time.Time{}) }

// writerOnly hides ReadFrom.
type writerOnly struct{ io.Writer }

package web

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxHead bounds the head of a request or response, and a chunked body's trailer.
	maxHead = 64 << 10
	// smallBuffer is the size of the buffer that a connection keeps while it waits for a head.
	smallBuffer = 4 << 10
	// bigBuffer is the size of the buffer for moving bodies.
	bigBuffer = 32 << 10
	// headTimeout bounds a head from its first byte to its last.
	headTimeout = 15 * time.Second
	// idleTimeout ends a sandbox's connection after this time without a request.
	idleTimeout = 5 * time.Minute
)

// Errors in a head or in a body's framing.
var (
	errTooLarge = errors.New("the head is larger than 64 KiB")
	errBareLF   = errors.New("a line ends without a carriage return")
)

var smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}

// reader reads heads and bodies of HTTP/1 from a connection. It is for one goroutine
// at a time.
type reader struct {
	conn  net.Conn
	buf   []byte
	small *[smallBuffer]byte // behind buf at first
	r, w  int
	count int64 // bytes taken from conn
	// patience is how long a head may take.
	patience time.Duration
}

func newReader(conn net.Conn) *reader {
	small := smallBuffers.Get().(*[smallBuffer]byte)
	return &reader{conn: conn, buf: small[:], small: small, patience: headTimeout}
}

// release gives the buffer back. The reader must not be used after it.
func (r *reader) release() {
	if r.small != nil {
		smallBuffers.Put(r.small)
	}
	r.small, r.buf, r.r, r.w = nil, nil, 0, 0
}

func (r *reader) buffered() []byte { return r.buf[r.r:r.w] }

// fill reads more bytes behind the buffered ones. Slices of the buffer that were returned before
// are no longer valid.
func (r *reader) fill() error {
	switch {
	case r.r == r.w:
		r.r, r.w = 0, 0
	case r.w == len(r.buf) && r.r > 0:
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	case r.w == len(r.buf):
		if len(r.buf) >= maxHead {
			return errTooLarge
		}
		bigger := make([]byte, 2*len(r.buf))
		copy(bigger, r.buf[:r.w])
		r.buf = bigger
	}
	n, err := r.conn.Read(r.buf[r.w:])
	r.w += n
	r.count += int64(n)
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// shrink gives up a large buffer when it is empty.
func (r *reader) shrink() {
	if r.r == r.w && len(r.buf) > smallBuffer && r.small != nil {
		r.buf, r.r, r.w = r.small[:], 0, 0
	}
}

// Read implements io.Reader. When the buffer is empty it reads past it.
func (r *reader) Read(p []byte) (int, error) {
	if r.r < r.w {
		n := copy(p, r.buf[r.r:r.w])
		r.r += n
		return n, nil
	}
	n, err := r.conn.Read(p)
	r.count += int64(n)
	return n, err
}

// requestHead reads the head of a request, including its empty line. It waits idleTimeout for the
// first byte, and patience for the rest. The result is valid until the next read.
func (r *reader) requestHead() ([]byte, error) {
	r.shrink()
	if r.r == r.w {
		_ = r.conn.SetReadDeadline(time.Now().Add(idleTimeout))
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
	defer func() { _ = r.conn.SetReadDeadline(time.Time{}) }()
	waiting := false
	for next := 0; ; {
		end, n, err := headEnd(r.buffered(), next, false)
		if err != nil || end > 0 {
			head := r.buf[r.r : r.r+end]
			r.r += end
			return head, err
		}
		if next = n; !waiting {
			waiting = true
			_ = r.conn.SetReadDeadline(time.Now().Add(r.patience))
		}
		if err := r.fill(); err != nil {
			return nil, unexpected(err)
		}
	}
}

// head reads a head without a time limit. lenient accepts lines that end with a line feed alone.
func (r *reader) head(lenient bool) ([]byte, error) {
	for next := 0; ; {
		end, n, err := headEnd(r.buffered(), next, lenient)
		if err != nil || end > 0 {
			head := r.buf[r.r : r.r+end]
			r.r += end
			return head, err
		}
		next = n
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// line reads a line of a chunked body, without its line end.
func (r *reader) line(lenient bool) ([]byte, error) {
	const maxLine = 4 << 10
	for from := 0; ; {
		b := r.buffered()
		for i := from; i < len(b); i++ {
			if b[i] != '\n' {
				continue
			}
			r.r += i + 1
			if i > 0 && b[i-1] == '\r' {
				return b[:i-1], nil
			}
			if !lenient {
				return nil, errBareLF
			}
			return b[:i], nil
		}
		if from = len(b); from > maxLine {
			return nil, errTooLarge
		}
		if err := r.fill(); err != nil {
			return nil, unexpected(err)
		}
	}
}

// unexpected returns the error for an end where more bytes should come.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

package sshdoor

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/pkg/sftp"
)

// window is how much of a file's content is held for requests that come out of order. Clients have
// many requests under way at once.
const window = 2 << 20

// reader reads a file at any place. Reading in order costs one pass. Going back further than the
// window begins a new pass.
type reader struct {
	f    *fileServer
	name string

	mu     sync.Mutex
	cancel context.CancelFunc
	body   io.ReadCloser
	from   int64 // where held begins
	held   []byte
	end    bool // the body is at its end
	closed bool
}

// ReadAt implements io.ReaderAt.
func (r *reader) ReadAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if off < 0 || r.closed {
		return 0, errors.New("bad offset, or the file is closed")
	}
	if r.body == nil || off < r.from {
		if err := r.begin(); err != nil {
			return 0, err
		}
	}
	if err := r.fill(off + int64(len(p))); err != nil {
		return 0, err
	}
	if off >= r.from+int64(len(r.held)) {
		return 0, io.EOF
	}
	n := copy(p, r.held[off-r.from:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// begin starts a new pass from the beginning of the file.
func (r *reader) begin() error {
	r.drop()
	ctx, cancel := context.WithCancel(r.f.ctx)
	body, err := r.f.files.Read(ctx, r.name)
	if err != nil {
		cancel()
		return status(err)
	}
	r.cancel, r.body, r.from, r.held, r.end = cancel, body, 0, r.held[:0], false
	return nil
}

// fill reads on until to, or to the end of the file.
func (r *reader) fill(to int64) error {
	for buf := make([]byte, 64<<10); !r.end && r.from+int64(len(r.held)) < to; {
		n, err := r.body.Read(buf)
		r.held = append(r.held, buf[:n]...)
		if extra := len(r.held) - window; extra > window {
			r.held = append(r.held[:0], r.held[extra:]...)
			r.from += int64(extra)
		}
		if errors.Is(err, io.EOF) {
			r.end = true
		} else if err != nil {
			return status(err)
		}
	}
	return nil
}

func (r *reader) drop() {
	if r.body != nil {
		r.cancel()
		_ = r.body.Close()
		r.body = nil
	}
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.drop()
		r.f.leave()
	}
	return nil
}

// errNotWhole is the error for a change in the middle of a file.
var errNotWhole = errors.New("files are written whole, from the beginning to the end, here")

// writer writes a file from its beginning to its end. The next few pieces may arrive in any order.
type writer struct {
	f    *fileServer
	name string

	pipe   *io.PipeWriter
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of the transfer, once done

	after [][]string // commands; guarded by f.mu

	mu      sync.Mutex
	next    int64
	early   map[int64][]byte
	waiting int // bytes in early
	failed  error
	closed  bool
}

// newWriter begins to write.
func newWriter(f *fileServer, name string) *writer {
	ctx, cancel := context.WithCancel(f.ctx)
	pr, pw := io.Pipe()
	w := &writer{f: f, name: name, pipe: pw, cancel: cancel, done: make(chan struct{}), early: map[int64][]byte{}}
	go func() {
		defer close(w.done)
		_, err := f.files.Write(ctx, name, pr)
		_ = pr.CloseWithError(errOr(err, io.ErrClosedPipe))
		w.err = err
	}()
	return w
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// WriteAt implements io.WriterAt.
func (w *writer) WriteAt(p []byte, off int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.failed != nil:
		return 0, w.failed
	case w.closed:
		return 0, errors.New("the file is closed")
	case off < w.next:
		return 0, w.fail(errNotWhole)
	case off > w.next:
		if _, twice := w.early[off]; twice || w.waiting+len(p) > 2*window {
			return 0, w.fail(errNotWhole)
		}
		w.early[off] = append([]byte(nil), p...)
		w.waiting += len(p)
		return len(p), nil
	}
	if err := w.send(p); err != nil {
		return 0, err
	}
	for {
		piece, ok := w.early[w.next]
		if !ok {
			return len(p), nil
		}
		delete(w.early, w.next)
		w.waiting -= len(piece)
		if err := w.send(piece); err != nil {
			return 0, err
		}
	}
}

// send writes the next piece. A slow sandbox slows the client down.
func (w *writer) send(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	n, err := w.pipe.Write(p)
	w.next += int64(n)
	if err != nil {
		return w.fail(status(err))
	}
	return nil
}

// fail breaks the transfer off, because a half-written file must not look complete.
func (w *writer) fail(err error) error {
	if w.failed == nil {
		w.failed = err
		_ = w.pipe.CloseWithError(err)
	}
	return w.failed
}

// TransferError implements sftp.TransferError. It is called when the client has gone.
func (w *writer) TransferError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.fail(errOr(err, io.ErrUnexpectedEOF))
}

// Close implements io.Closer. The file is complete when it returns.
func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.failed
	}
	w.closed = true
	defer w.f.leave()
	if len(w.early) > 0 {
		_ = w.fail(errNotWhole)
	}
	if w.failed == nil {
		_ = w.pipe.Close()
	}
	<-w.done
	w.cancel()
	if w.failed == nil && w.err != nil {
		w.failed = status(w.err)
	}
	w.f.mu.Lock()
	commands := w.after
	if w.f.writing[w.name] == w {
		delete(w.f.writing, w.name)
	}
	w.f.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	return w.f.runAll(commands)
}

var (
	_ sftp.TransferError = (*writer)(nil)
	_ io.Closer          = (*reader)(nil)
)

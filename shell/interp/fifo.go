package interp

import (
	"context"
	"syscall"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// fifo is an open named pipe. The first process that opens it makes it. All others share it through
// the file: see vfs.File.Shared.
type fifo struct {
	p              *Pipe
	readers, wrote int // openings for reading and for writing so far; guarded by p.mu
}

func newFifo() any { return &fifo{p: &Pipe{}} }

// openFifo opens a named pipe as the kernel does: an opening for one direction waits until the
// other direction is opened. It takes ownership of f.
func openFifo(ctx context.Context, f *vfs.File, flags vfs.Flags) (stream, error) {
	q, ok := f.Shared(newFifo).(*fifo)
	if !ok {
		_ = f.Close() // nothing was written to it
		return nil, syscall.ENXIO
	}
	s := &fifoStream{f: f, q: q, read: flags&vfs.ReadOnly != 0, write: flags&vfs.WriteOnly != 0}
	p := q.p
	p.mu.Lock()
	r, w := q.readers, q.wrote
	if s.read {
		p.readers++
		q.readers++
	}
	if s.write {
		p.writers++
		q.wrote++
	}
	p.wakeAll()
	var err error
	for err == nil && (s.read && !s.write && p.writers == 0 && q.wrote == w || s.write && !s.read && p.readers == 0 && q.readers == r) {
		err = p.await(ctx)
	}
	p.mu.Unlock()
	if err != nil {
		_ = s.Close() // it never was open
		return nil, syscall.EINTR
	}
	return s, nil
}

// fifoStream is an open end of a named pipe, or both.
type fifoStream struct {
	f           *vfs.File
	q           *fifo
	read, write bool
}

func (s *fifoStream) Read(ctx context.Context, b []byte) (int, error) {
	if !s.read {
		return 0, syscall.EBADF
	}
	return s.q.p.ReadContext(ctx, b)
}

func (s *fifoStream) Write(ctx context.Context, b []byte) (int, error) {
	if !s.write {
		return 0, syscall.EBADF
	}
	return s.q.p.WriteContext(ctx, b)
}

// Close closes this end. Unread bytes stay in the pipe for another reader, as long as any end is
// open.
func (s *fifoStream) Close() error {
	p := s.q.p
	p.mu.Lock()
	if s.read {
		p.readers--
	}
	if s.write {
		p.writers--
	}
	if p.readers == 0 && p.writers == 0 {
		p.buf, p.off = nil, 0
	}
	p.wakeAll()
	p.mu.Unlock()
	return s.f.Close()
}

package interp

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// stream is the object behind a file descriptor. Reads and writes that wait end when ctx ends.
type stream interface {
	Read(ctx context.Context, b []byte) (int, error)
	Write(ctx context.Context, b []byte) (int, error)
	Close() error
}

// desc is an open file description. Descriptors of several processes may share it. The stream is
// closed with the last of them.
type desc struct {
	stream
	refs atomic.Int32
}

func newDesc(s stream) *desc {
	d := &desc{stream: s}
	d.refs.Store(1)
	return d
}

func (d *desc) hold() *desc {
	d.refs.Add(1)
	return d
}

func (d *desc) drop() {
	if d.refs.Add(-1) == 0 {
		_ = d.stream.Close() // virtual streams have no errors to report
	}
}

// fdTable has a process's descriptors. It is small, so a slice is faster than a map.
type fdTable []fd

type fd struct {
	n int
	d *desc
}

func (t fdTable) get(n int) *desc {
	for _, f := range t {
		if f.n == n {
			return f.d
		}
	}
	return nil
}

// set puts d at number n and takes over its reference. A nil d closes n.
func (t *fdTable) set(n int, d *desc) {
	for i, f := range *t {
		if f.n == n {
			f.d.drop()
			if d == nil {
				*t = append((*t)[:i], (*t)[i+1:]...)
			} else {
				(*t)[i].d = d
			}
			return
		}
	}
	if d != nil {
		*t = append(*t, fd{n, d})
	}
}

// clone copies the table and takes another reference to each description.
func (t fdTable) clone() fdTable {
	out := make(fdTable, len(t), len(t)+2)
	copy(out, t)
	for _, f := range out {
		f.d.hold()
	}
	return out
}

func (t *fdTable) closeAll() {
	for _, f := range *t {
		f.d.drop()
	}
	*t = nil
}

// free returns the lowest unused descriptor, but at least 10.
func (t fdTable) free() int {
	n := 10
	for t.get(n) != nil {
		n++
	}
	return n
}

// pipeSize is the capacity of a pipe, as on Linux.
const pipeSize = 64 << 10

// Pipe is a pipe: bytes written at one end wait for a reader at the other.
type Pipe struct {
	mu      sync.Mutex
	buf     []byte
	off     int // start of the unread bytes in buf
	readers int
	writers int
	changed chan struct{} // made by a goroutine that waits, closed by one that changes something
	m       *Machine      // the machine whose processes wait for the host at the other end
}

// NewPipe returns a pipe with one reader and one writer.
func NewPipe() *Pipe { return &Pipe{readers: 1, writers: 1} }

// attach tells a pipe the machine of its processes. The pipe's other end is the host's.
func (p *Pipe) attach(m *Machine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.m = m
}

// wakeAll makes all waiting goroutines check again. The caller holds mu.
func (p *Pipe) wakeAll() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
		if p.m != nil {
			p.m.kick()
		}
	}
}

// await releases mu until something changes or ctx ends.
func (p *Pipe) await(ctx context.Context) error {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	c := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	if p := procOf(ctx); p != nil && p.m.sched != nil {
		p.m.pause(ctx, c)
		return ctx.Err()
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ReadContext reads the available bytes, and waits if there is none.
func (p *Pipe) ReadContext(ctx context.Context, b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	for p.off == len(p.buf) {
		if p.readers == 0 {
			return 0, io.ErrClosedPipe
		}
		if p.writers == 0 {
			return 0, io.EOF
		}
		if err := p.await(ctx); err != nil {
			return 0, err
		}
	}
	return p.take(b), nil
}

// take reads the bytes that are in the pipe. The caller holds mu.
func (p *Pipe) take(b []byte) int {
	n := copy(b, p.buf[p.off:])
	p.off += n
	if p.off == len(p.buf) {
		p.buf, p.off = p.buf[:0], 0
	}
	p.wakeAll()
	return n
}

// WriteContext writes all of b, and waits for room. Without a reader it returns EPIPE.
func (p *Pipe) WriteContext(ctx context.Context, b []byte) (done int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(b) > 0 {
		if p.readers == 0 {
			return done, syscall.EPIPE
		}
		if p.writers == 0 {
			return done, io.ErrClosedPipe
		}
		room := pipeSize - (len(p.buf) - p.off)
		if room <= 0 {
			if err := p.await(ctx); err != nil {
				return done, err
			}
			continue
		}
		if p.off > 0 && len(p.buf)+min(room, len(b)) > cap(p.buf) {
			p.buf = append(p.buf[:0], p.buf[p.off:]...)
			p.off = 0
		}
		n := min(room, len(b))
		p.buf = append(p.buf, b[:n]...)
		b, done = b[n:], done+n
		p.wakeAll()
	}
	return done, nil
}

// Pending returns how many bytes can be read now.
func (p *Pipe) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.buf) - p.off
}

// Read reads without a deadline. The host reads a process's output with it.
func (p *Pipe) Read(b []byte) (int, error) { return p.ReadContext(context.Background(), b) }

// Write writes without a deadline. The host writes a process's input with it.
func (p *Pipe) Write(b []byte) (int, error) { return p.WriteContext(context.Background(), b) }

// CloseRead removes the last reader. Writers get EPIPE, and unread bytes are dropped.
func (p *Pipe) CloseRead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers = 0
	p.buf, p.off = nil, 0
	p.wakeAll()
}

// CloseWrite removes the last writer. Readers get the remaining bytes, then EOF.
func (p *Pipe) CloseWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writers = 0
	p.wakeAll()
}

// readEnd and writeEnd are a pipe's ends as streams.
type readEnd struct{ p *Pipe }

func (e readEnd) Read(ctx context.Context, b []byte) (int, error) { return e.p.ReadContext(ctx, b) }
func (e readEnd) Write(context.Context, []byte) (int, error)      { return 0, syscall.EBADF }
func (e readEnd) Close() error                                    { e.p.CloseRead(); return nil }

type writeEnd struct{ p *Pipe }

func (e writeEnd) Read(context.Context, []byte) (int, error)        { return 0, syscall.EBADF }
func (e writeEnd) Write(ctx context.Context, b []byte) (int, error) { return e.p.WriteContext(ctx, b) }
func (e writeEnd) Close() error                                     { e.p.CloseWrite(); return nil }

// counted is the output of a started process. It limits the output of the whole process tree.
type counted struct {
	stream
	t     *tree
	limit int64
}

func (c counted) Write(ctx context.Context, b []byte) (int, error) {
	if c.limit > 0 && c.t.output.Add(int64(len(b))) > c.limit {
		return 0, errOutputLimit
	}
	return c.stream.Write(ctx, b)
}

// fileStream is an open file.
type fileStream struct {
	f    *vfs.File
	m    *Machine
	most int64 // its greatest length; 0 is no limit
}

func (s fileStream) Read(_ context.Context, b []byte) (int, error) {
	if s.m.sched != nil && s.f.Device() == "random" {
		s.m.Random(b)
		return len(b), nil
	}
	return s.f.Read(b)
}

func (s fileStream) Write(_ context.Context, b []byte) (int, error) {
	if s.most > 0 && s.f.Device() == "" {
		i, err := s.f.Stat()
		at, serr := s.f.Seek(0, io.SeekCurrent)
		if err != nil || serr != nil {
			return s.f.Write(b)
		}
		room := s.most - max(at, 0)
		if i.Size > at {
			room = s.most - i.Size // it may append
		}
		if room <= 0 {
			return 0, syscall.EFBIG
		}
		if int64(len(b)) > room {
			n, err := s.f.Write(b[:room])
			if err == nil {
				err = syscall.EFBIG
			}
			return n, err
		}
	}
	return s.f.Write(b)
}

func (s fileStream) Close() error {
	s.m.files.Add(-1)
	return s.f.Close()
}

// nullStream is /dev/null for code that has no filesystem.
type nullStream struct{}

func (nullStream) Read(context.Context, []byte) (int, error)      { return 0, io.EOF }
func (nullStream) Write(_ context.Context, b []byte) (int, error) { return len(b), nil }
func (nullStream) Close() error                                   { return nil }

// textStream is a here-document. All descriptors of one share its position.
type textStream struct {
	mu sync.Mutex
	r  strings.Reader
	p  *proc // pays for it
	n  int64
}

// newText makes a here-document. Its memory is charged to the process.
func (r *runner) newText(s string) *textStream {
	t := &textStream{p: r.p, n: int64(len(s))}
	t.r.Reset(s)
	r.pay(len(s))
	return t
}

func (t *textStream) Read(_ context.Context, b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.r.Read(b)
}

func (t *textStream) Write(context.Context, []byte) (int, error) { return 0, syscall.EBADF }

func (t *textStream) Close() error {
	t.p.giveBack(t.n)
	return nil
}

// capture collects the output of a command substitution. closed is closed when the last writer has
// gone. A background job may be that writer.
type capture struct {
	mu     sync.Mutex
	buf    []byte
	p      *proc // pays for the bytes
	closed chan struct{}
}

func newCapture(p *proc) *capture { return &capture{p: p, closed: make(chan struct{})} }

func (c *capture) Read(context.Context, []byte) (int, error) { return 0, syscall.EBADF }

func (c *capture) Write(_ context.Context, b []byte) (int, error) {
	if c.p.ended() {
		return 0, syscall.EPIPE
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.p.charge(int64(len(b))) {
		return 0, syscall.ENOMEM
	}
	c.buf = append(c.buf, b...)
	return len(b), nil
}

func (c *capture) Close() error { close(c.closed); return nil }

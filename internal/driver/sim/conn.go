package sim

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
)

// connBuffer is the size of the buffer of one direction of a connection, in bytes.
const connBuffer = 64 << 10

// half is one direction of a connection: a bounded buffer with deadlines.
type half struct {
	mu      sync.Mutex
	cond    sync.Cond
	buf     []byte
	off     int
	written bool // no more will be written
	unread  bool // nobody reads any more
	rd, wd  deadline
}

// deadline wakes the waiting callers when its time comes.
type deadline struct {
	timer *time.Timer
	over  bool
	seq   int // number of the newest setting; a late older timer is ignored
}

func newHalf() *half {
	h := &half{}
	h.cond.L = &h.mu
	return h
}

// set moves a deadline of h.
func (h *half) set(d *deadline, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.over = false
	d.seq++
	if !t.IsZero() {
		if left := time.Until(t); left <= 0 {
			d.over = true
		} else {
			seq := d.seq
			d.timer = time.AfterFunc(left, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				if d.seq == seq {
					d.over = true
					h.cond.Broadcast()
				}
			})
		}
	}
	h.cond.Broadcast()
}

func (h *half) read(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.unread:
			return 0, net.ErrClosed
		case h.rd.over:
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case h.off < len(h.buf):
			n := copy(b, h.buf[h.off:])
			if h.off += n; h.off == len(h.buf) {
				h.buf, h.off = h.buf[:0], 0
			}
			h.cond.Broadcast()
			return n, nil
		case h.written:
			return 0, io.EOF
		}
		h.cond.Wait()
	}
}

func (h *half) write(b []byte) (done int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.written:
			return done, net.ErrClosed
		case h.unread:
			return done, syscall.EPIPE
		case h.wd.over:
			return done, os.ErrDeadlineExceeded
		case len(b) == 0:
			return done, nil
		}
		room := connBuffer - (len(h.buf) - h.off)
		if room == 0 {
			h.cond.Wait()
			continue
		}
		n := min(room, len(b))
		if h.off > 0 && len(h.buf)+n > cap(h.buf) {
			h.buf = append(h.buf[:0], h.buf[h.off:]...)
			h.off = 0
		}
		h.buf = append(h.buf, b[:n]...)
		b, done = b[n:], done+n
		h.cond.Broadcast()
	}
}

// closeWrite ends the direction after the bytes already written.
func (h *half) closeWrite() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = true
	h.cond.Broadcast()
}

// closeRead drops the direction's bytes.
func (h *half) closeRead() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unread = true
	h.buf, h.off = nil, 0
	h.cond.Broadcast()
}

// conn is one end of a connection inside this process.
type conn struct {
	in, out       *half
	local, remote addr
	once          sync.Once
	onClose       func()
}

// addr is the name of an end. The agent trusts the host's end.
type addr string

const (
	hostAddr  addr = "host"
	guestAddr addr = "guest"
)

func (addr) Network() string  { return "sim" }
func (a addr) String() string { return string(a) }

// pair returns the two ends of a connection from the host to the guest.
func pair() (host, guest *conn) {
	a, b := newHalf(), newHalf()
	return &conn{in: a, out: b, local: hostAddr, remote: guestAddr}, &conn{in: b, out: a, local: guestAddr, remote: hostAddr}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.wrap("read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, c.wrap("write", err)
}

func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "sim", Source: c.local, Addr: c.remote, Err: err}
}

// CloseWrite tells the other end that no more bytes come. Reading goes on.
func (c *conn) CloseWrite() error { c.out.closeWrite(); return nil }

// Close ends the connection.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.out.closeWrite()
		c.in.closeRead()
		c.in.set(&c.in.rd, time.Time{}) // stops the timers
		c.out.set(&c.out.wd, time.Time{})
		if c.onClose != nil {
			c.onClose()
		}
	})
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.set(&c.in.rd, t)
	c.out.set(&c.out.wd, t)
	return nil
}
func (c *conn) SetReadDeadline(t time.Time) error  { c.in.set(&c.in.rd, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.set(&c.out.wd, t); return nil }

// listener accepts the connections of [Instance.Dial].
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu   sync.Mutex
	open map[net.Conn]struct{} // closed with the listener
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), done: make(chan struct{}), open: map[net.Conn]struct{}{}}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close refuses new connections and closes the existing ones.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	l.mu.Lock()
	all := make([]net.Conn, 0, len(l.open))
	for c := range l.open {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
	return nil
}

func (l *listener) Addr() net.Addr { return guestAddr }

// dial connects to the listener.
func (l *listener) dial(ctx context.Context) (net.Conn, error) {
	host, guest := pair()
	host.onClose = l.hold(host)
	if err := l.give(ctx, guest); err != nil {
		_ = host.Close()
		return nil, err
	}
	return host, nil
}

// hold makes the listener's Close close a connection, until the caller calls letGo.
func (l *listener) hold(c net.Conn) (letGo func()) {
	l.mu.Lock()
	l.open[c] = struct{}{}
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		delete(l.open, c)
		l.mu.Unlock()
	}
}

// give lets the listener accept a connection. After an error the caller closes it.
func (l *listener) give(ctx context.Context, c net.Conn) error {
	select {
	case l.conns <- c:
		select {
		case <-l.done: // closed at the same moment: Close may have missed c
			return refused("dial guest", "", syscall.ECONNREFUSED)
		default:
			return nil
		}
	case <-l.done:
		return refused("dial guest", "", syscall.ECONNREFUSED)
	case <-ctx.Done():
		return &carrel.Error{Op: "dial guest", Kind: carrel.TimedOut, Err: ctx.Err()}
	}
}

func refused(op string, id carrel.ID, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id, Err: err}
}

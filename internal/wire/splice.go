package wire

import (
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// smallBuffer is the buffer of each direction of a connection while nothing comes. Thousands of
	// connections are open at once, and most are silent.
	smallBuffer = 4 << 10
	// bigBuffer is lent to a direction while more than a small buffer arrives at a time.
	bigBuffer = 256 << 10
	// bigBuffers bounds the big buffers of one link, so that a sandbox whose connections all block
	// in the middle of a transfer can't hold more of the daemon's memory. Connections without one
	// go on with the small one.
	bigBuffers = 16
)

// half is a connection whose two directions close separately.
type half interface {
	net.Conn
	CloseWrite() error
}

// splice copies both ways until both have ended or ctx ends. It returns the number of bytes from
// each side. The end of one direction closes only that direction.
func splice(ctx context.Context, lent *buffers, a, b net.Conn) (fromA, fromB int64) {
	stop := context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_ = a.SetDeadline(past)
		_ = b.SetDeadline(past)
	})
	defer stop()
	var wg sync.WaitGroup
	for _, d := range []struct {
		to, from net.Conn
		count    *int64
	}{{a, b, &fromB}, {b, a, &fromA}} {
		wg.Go(func() {
			n, err := pump(lent, d.to, d.from)
			*d.count = n
			h, ok := d.to.(half)
			if err != nil || !ok || h.CloseWrite() != nil {
				// This direction broke, so the other one is useless too.
				past := time.Unix(1, 0)
				_ = a.SetDeadline(past)
				_ = b.SetDeadline(past)
			}
		})
	}
	wg.Wait()
	return fromA, fromB
}

// pump copies one direction until it ends. It waits with a small buffer, and takes a big one while
// more bytes are there.
func pump(lent *buffers, to io.Writer, from net.Conn) (int64, error) {
	var done int64
	small := smalls.Get().(*[smallBuffer]byte)
	defer smalls.Put(small)
	more := moreOf(from)
	for {
		n, err := from.Read(small[:])
		if n < len(small) || err != nil || more == nil || !lent.take() {
			if err = write(to, small[:n], &done, err); err != nil {
				return done, ended(err)
			}
			continue
		}
		big := bigs.Get().(*[bigBuffer]byte)
		copy(big[:], small[:])
		for got, ok := n, true; ok && err == nil; got = 0 {
			var m int
			m, ok, err = more(big[got:])
			if got += m; got > 0 {
				err = write(to, big[:got], &done, err)
			}
		}
		bigs.Put(big)
		lent.give()
		if err != nil {
			return done, ended(err)
		}
	}
}

// write writes the bytes that were read and counts them. It returns the first error of reading and
// writing. Bytes before the end still count.
func write(to io.Writer, b []byte, done *int64, read error) error {
	if len(b) > 0 {
		n, err := to.Write(b)
		*done += int64(n)
		if err != nil {
			return err
		}
	}
	return read
}

// ended turns the normal end of a stream into no error.
func ended(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// moreOf returns a function that reads without waiting. ok is false when there is nothing to read.
// moreOf returns nil for a connection that can't do that.
func moreOf(c net.Conn) func(b []byte) (n int, ok bool, err error) {
	switch c := c.(type) {
	case *guestConn:
		return func(b []byte) (int, bool, error) {
			if c.endpoint.Readiness(waiter.ReadableEvents) == 0 {
				return 0, false, nil
			}
			n, err := c.Read(b)
			return n, true, err
		}
	case *net.TCPConn:
		raw, err := c.SyscallConn()
		if err != nil {
			return nil
		}
		return func(b []byte) (int, bool, error) { return readNow(raw, b) }
	}
	return nil
}

// readNow reads from a non-blocking socket.
func readNow(raw syscall.RawConn, b []byte) (n int, ok bool, err error) {
	cerr := raw.Read(func(fd uintptr) bool {
		for {
			if n, err = unix.Read(int(fd), b); err != unix.EINTR {
				return true
			}
		}
	})
	switch {
	case cerr != nil:
		return 0, false, cerr
	case err == unix.EAGAIN:
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case n == 0:
		return 0, false, io.EOF
	}
	return n, true, nil
}

// smalls and bigs hold the unused buffers.
var (
	smalls = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	bigs   = sync.Pool{New: func() any { return new([bigBuffer]byte) }}
)

// buffers counts the big buffers that one link has borrowed.
type buffers struct {
	mu   sync.Mutex
	lent int
}

func (b *buffers) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lent == bigBuffers {
		return false
	}
	b.lent++
	return true
}

func (b *buffers) give() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lent--
}

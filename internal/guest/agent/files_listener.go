package agent

import (
	"errors"
	"io"
	"net"
	"sync"
)

// readAhead is how much a connection reads at once while data is streaming in.
const readAhead = 256 << 10

// ReadAhead wraps a listener for the server of an [Agent]'s handler, so that
// uploads are read in large pieces. net/http reads a connection through 4 KiB,
// and a chunked body makes it go through them for each chunk: inside a sandbox,
// where a call into the kernel is dear, that halves the speed of an upload.
//
// An idle connection holds no buffer: it is taken when a read was filled to the
// brim, which says that more is waiting, and given back when it is empty.
func ReadAhead(l net.Listener) net.Listener { return &readAheadListener{Listener: l} }

type readAheadListener struct {
	net.Listener
	buffers sync.Pool // of *[]byte
}

func (l *readAheadListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &readAheadConn{Conn: c, buffers: &l.buffers}, nil
}

// readAheadConn is one connection. Like any, it has one reader at a time.
type readAheadConn struct {
	net.Conn
	buffers *sync.Pool
	buf     *[]byte // nil when nothing is ahead
	ahead   []byte  // of buf, not yet read
	more    bool    // the last read was filled
}

// Read reads what is ahead, or from the connection.
func (c *readAheadConn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		return c.take(p), nil
	}
	if !c.more || len(p) >= readAhead {
		n, err := c.Conn.Read(p)
		c.more = n == len(p) && n > 0
		return n, err
	}
	if c.buf, _ = c.buffers.Get().(*[]byte); c.buf == nil {
		b := make([]byte, readAhead)
		c.buf = &b
	}
	n, err := c.Conn.Read(*c.buf)
	c.ahead = (*c.buf)[:n]
	c.more = n > len(p)
	if n > 0 {
		err = nil // it will be met again, after what is ahead
	}
	return c.take(p), err
}

// take moves what is ahead to p, and gives the buffer back when that was all.
func (c *readAheadConn) take(p []byte) int {
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	if len(c.ahead) == 0 && c.buf != nil {
		c.buffers.Put(c.buf)
		c.buf, c.ahead = nil, nil
	}
	return n
}

// ReadFrom lets the kernel move what it can to the connection.
func (c *readAheadConn) ReadFrom(r io.Reader) (int64, error) {
	if rf, ok := c.Conn.(io.ReaderFrom); ok {
		return rf.ReadFrom(r)
	}
	return io.Copy(writerOnly{c.Conn}, r)
}

// SetLinger says what becomes of unsent data at Close, where the connection can.
func (c *readAheadConn) SetLinger(sec int) error {
	if l, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		return l.SetLinger(sec)
	}
	return errors.ErrUnsupported
}

// CloseWrite ends the sending half, where the connection has halves.
func (c *readAheadConn) CloseWrite() error {
	if hc, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return c.Conn.Close()
}

package agent

import (
	"errors"
	"io"
	"net"
	"sync"
)

// readAhead is the size of one read while data streams in.
const readAhead = 256 << 10

// ReadAhead wraps a listener for the server of an [Agent]'s handler, so that uploads are read in
// large pieces. net/http reads a connection through a 4 KiB buffer, and a chunked body goes through
// it chunk by chunk. System calls are expensive inside a sandbox, so that halves the speed of an
// upload.
//
// An idle connection holds no buffer. A connection takes a buffer after a read that was filled
// completely, because more data is then waiting. It gives the buffer back when it is empty.
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

// readAheadConn is one connection. Like any connection it has one reader at a time.
type readAheadConn struct {
	net.Conn
	buffers *sync.Pool
	buf     *[]byte // nil when nothing is ahead
	ahead   []byte  // of buf, not yet read
	more    bool    // the last read was filled
}

// Read reads from the buffer, or else from the connection.
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
		err = nil // the next read returns it, after the buffered data
	}
	return c.take(p), err
}

// take moves buffered data to p, and gives the buffer back when it is empty.
func (c *readAheadConn) take(p []byte) int {
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	if len(c.ahead) == 0 && c.buf != nil {
		c.buffers.Put(c.buf)
		c.buf, c.ahead = nil, nil
	}
	return n
}

// ReadFrom lets the kernel copy to the connection where it can.
func (c *readAheadConn) ReadFrom(r io.Reader) (int64, error) {
	if rf, ok := c.Conn.(io.ReaderFrom); ok {
		return rf.ReadFrom(r)
	}
	return io.Copy(writerOnly{c.Conn}, r)
}

// SetLinger sets the handling of unsent data at Close, if the connection can do that.
func (c *readAheadConn) SetLinger(sec int) error {
	if l, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		return l.SetLinger(sec)
	}
	return errors.ErrUnsupported
}

// CloseWrite ends the sending direction, if the connection can do that.
func (c *readAheadConn) CloseWrite() error {
	if hc, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return hc.CloseWrite()
	}
	return c.Conn.Close()
}

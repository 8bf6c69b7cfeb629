package wire

import (
	"net"
	"testing"
	"time"
)

// lateConn is a connection that delays the removal of a deadline until one was set.
type lateConn struct {
	net.Conn
	set chan struct{}
}

func (c *lateConn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		defer close(c.set)
	} else {
		select {
		case <-c.set:
		case <-time.After(time.Minute):
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// TestFirstWordAtOnce shows that a server is heard that speaks before the wire reads from the
// sandbox.
func TestFirstWordAtOnce(t *testing.T) {
	guest, in := net.Pipe()
	server, out := net.Pipe()
	for _, c := range []net.Conn{guest, in, server, out} {
		defer c.Close()
	}
	go func() { _, _ = server.Write([]byte("220 hello")) }()
	late := time.AfterFunc(time.Minute, func() { _ = guest.Close() })
	defer late.Stop()
	conn := &lateConn{in, make(chan struct{})}
	p := (&egress{link: &Link{wire: &Wire{}}}).newPeeker(conn)
	defer p.close()
	word, err := firstWord(t.Context(), conn, out, p)
	if string(word) != "220 hello" || err != nil {
		t.Errorf("heard %q, %v", word, err)
	}
	if !late.Stop() {
		t.Error("it was heard when the sandbox had ended")
	}
}

package gateway

import (
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
)

// resetCutOff is deferred around the proxy. It handles an answer that breaks off because the
// sandbox ended in the middle of it. HTTP/2 resets the stream. HTTP/1 can only close the
// connection. Some clients (among them the Python SDK 2.45) take that for a protocol error, and
// learn nothing about the sandbox. They do understand a reset of the connection: they ask whether
// the sandbox still exists.
func resetCutOff(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler && r.TLS == nil && r.Context().Err() == nil { //nolint:errorlint // a panic's value, compared as net/http does
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			reset(conn)
		}
	}
	panic(p)
}

// unsentTime is how long sent bytes may take to leave this host before the reset, which would drop
// them.
const unsentTime = time.Second

// reset closes a TCP connection with a reset.
func reset(conn net.Conn) {
	defer conn.Close()
	inner := conn
	for {
		n, ok := inner.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		inner = n.NetConn()
	}
	tcp, ok := inner.(*net.TCPConn)
	if !ok {
		return
	}
	for end := time.Now().Add(unsentTime); unsent(tcp) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return // after an ordinary close the kernel goes on sending
		}
	}
	_ = tcp.SetLinger(0)
}

// unsent counts the bytes that the other side has not acknowledged.
func unsent(tcp *net.TCPConn) (n int) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err != nil {
			n = 0
		}
	})
	return n
}

package gateway

import (
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
)

// resetCutOff is deferred around the proxy. When an answer breaks off, because the
// sandbox ended in the middle of it, HTTP/2 resets the stream, but HTTP/1 can only
// close the connection, which some clients (the Python SDK 2.45 among them) take
// for an error of protocol that says nothing of the sandbox. A reset they
// understand, and ask whether the sandbox is still there.
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

// unsentTime is how long what was already answered may take to leave this host:
// a reset drops what has not.
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
			return // an ordinary close lets the kernel go on sending
		}
	}
	_ = tcp.SetLinger(0)
}

// unsent counts the bytes that the other side has not confirmed.
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

package front

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Times of connections to nodes.
const (
	// dialTime bounds how long a node may take to accept a connection. Another try begins every dialAgain
	// until then: a lost packet would cost a second.
	dialTime  = 2 * time.Second
	dialAgain = 250 * time.Millisecond
	// deafTime is how long a connection lives whose other end's kernel acknowledges nothing. A node
	// that is only busy acknowledges all the same.
	deafTime = 10 * time.Second
)

// dialer makes connections to nodes. A stream to a sandbox must not hang for ever when the network
// between this front and the node is cut: the client comes back through another front then.
var dialer = &net.Dialer{Timeout: dialTime,
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: deafTime / 2, Interval: deafTime / 4, Count: 2},
	Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deafTime.Milliseconds()))
		}); cerr != nil {
			return cerr
		}
		return err
	}}

// dialNode connects to a node. The first try that gets through counts.
func dialNode(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	try := func() {
		conn, err := dialer.DialContext(ctx, network, addr)
		select {
		case results <- result{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close() // another one was faster
			}
		}
	}
	go try()
	again := time.NewTicker(dialAgain)
	defer again.Stop()
	for {
		select {
		case r := <-results:
			if errors.Is(r.err, syscall.EHOSTUNREACH) {
				continue // its hardware address was not found this time
			}
			return r.conn, r.err
		case <-again.C:
			go try()
		case <-ctx.Done():
			err := error(&net.OpError{Op: "dial", Net: network, Err: ctx.Err()})
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = &net.OpError{Op: "dial", Net: network, Err: errors.New(addr + " did not answer in time")}
			}
			return nil, err
		}
	}
}

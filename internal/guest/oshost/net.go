package oshost

import (
	"context"
	"net"
	"strconv"
)

// DialLoopback connects to a port on 127.0.0.1. If nothing listens there, it tries ::1, because
// many development servers bind only one of them.
func (s *System) DialLoopback(ctx context.Context, port uint16) (net.Conn, error) {
	var d net.Dialer
	p := strconv.Itoa(int(port))
	conn, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", p))
	if err == nil {
		return conn, nil
	}
	if conn6, err6 := d.DialContext(ctx, "tcp6", net.JoinHostPort("::1", p)); err6 == nil {
		return conn6, nil
	}
	return nil, err
}

// ListenLoopback listens on 127.0.0.1; port 0 is a free one.
func (s *System) ListenLoopback(port uint16) (net.Listener, error) {
	return net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

package accept

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
)

// listener returns connections (nil) and errors in this order, then net.ErrClosed.
type listener struct {
	net.Listener
	next []error
}

func (l *listener) Accept() (net.Conn, error) {
	if len(l.next) == 0 {
		return nil, net.ErrClosed
	}
	err := l.next[0]
	l.next = l.next[1:]
	if err != nil {
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	return &net.TCPConn{}, nil
}

func TestAll(t *testing.T) {
	broken := errors.New("broken")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		next   []error
		served int
		err    error
	}{
		"closed":        {t.Context(), []error{nil, nil}, 2, net.ErrClosed},
		"passing":       {t.Context(), []error{syscall.EMFILE, nil, syscall.ENOBUFS, syscall.ECONNABORTED, nil}, 2, net.ErrClosed},
		"broken":        {t.Context(), []error{nil, broken, nil}, 1, broken},
		"ended":         {ended, []error{nil, syscall.EMFILE, nil}, 1, syscall.EMFILE},
		"ended, closed": {ended, nil, 0, net.ErrClosed},
	} {
		served := 0
		if err := All(c.ctx, &listener{next: slices.Clone(c.next)}, func(net.Conn) { served++ }); !errors.Is(err, c.err) || served != c.served {
			t.Errorf("%s: %d served, %v", name, served, err)
		}
	}
}

// Package accept takes connections from a listener for as long as that is possible. A lack of
// descriptors or memory is temporary. A server that stops because of it would stay stopped.
package accept

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Pauses after a failure. They double from the first to the last.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// All passes each connection to serve, which must return without waiting for the connection's end.
// All returns the error that ended the listener. After the end of ctx it does not wait out
// failures. The caller closes the listener.
func All(ctx context.Context, l net.Listener, serve func(net.Conn)) error {
	for wait := firstPause; ; {
		c, err := l.Accept()
		if err == nil {
			wait = firstPause
			serve(c)
			continue
		}
		if !passing(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, lastPause)
		case <-ctx.Done():
			return err
		}
	}
}

// passing reports whether accepting may work again: a resource of the kernel was exhausted, or the
// client left early.
func passing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

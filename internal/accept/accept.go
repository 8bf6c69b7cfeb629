// Package accept takes connections from a listener for as long as it can be had: a lack
// of descriptors or memory passes, and a server that stops for it stays stopped.
package accept

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// Pauses after a failure, which double from the first to the last.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// All hands each connection to serve, which must not wait for its end. It returns the
// error that ended the listener. When ctx has ended no failure is waited for; closing the
// listener is the caller's.
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

// passing reports whether accepting may work again: something of the kernel's ran out,
// or that client left early.
func passing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

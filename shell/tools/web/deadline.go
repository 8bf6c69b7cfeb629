package web

import (
	"context"
	"io"
)

// closing ends a deadline when the body that it applies to is closed.
type closing struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (c *closing) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

// deadline returns the context of one request.
func (w *wget) deadline() (context.Context, context.CancelFunc) {
	if w.timeout == 0 {
		return context.WithCancel(w.Ctx)
	}
	return context.WithTimeout(w.Ctx, w.timeout)
}

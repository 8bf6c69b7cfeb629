package agent

import (
	"context"
	"net"
	"sync"
)

// conns are the connections of the server of this agent. A restored guest drops its old
// connections, because their other ends are gone.
type conns struct {
	mu   sync.Mutex
	open map[*trackedConn]struct{}
}

// Listen wraps the listener of the server for this agent's handler. Connections are then read in
// large pieces (see [ReadAhead]), and a restore can drop them. The server also needs [ConnContext].
func (a *Agent) Listen(l net.Listener) net.Listener {
	return &trackedListener{Listener: ReadAhead(l), conns: &a.conns}
}

// connKey is the context key of a request's connection.
type connKey struct{}

// ConnContext is for http.Server.ConnContext. With it, a request's context holds its connection.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*trackedConn); ok {
		return context.WithValue(ctx, connKey{}, t)
	}
	return ctx
}

// dropOthers closes every connection except the one in ctx.
func (c *conns) dropOthers(ctx context.Context) {
	own, _ := ctx.Value(connKey{}).(*trackedConn)
	c.mu.Lock()
	var others []*trackedConn
	for t := range c.open {
		if t != own {
			others = append(others, t)
		}
	}
	c.mu.Unlock()
	for _, t := range others {
		reset(t)
	}
}

// reset closes connections so that their peers, if any, see an error and not an orderly end. It
// prepares all before it closes the first: a goroutine that copies between two of them would close
// the other in the usual way.
func reset(conns ...net.Conn) {
	for _, c := range conns {
		if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
			_ = l.SetLinger(0) // else it is closed as usual
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
}

type trackedListener struct {
	net.Listener
	conns *conns
}

func (l *trackedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	// The server looks for certain methods of a connection. ReadAhead's type has them.
	t := &trackedConn{readAheadConn: c.(*readAheadConn), conns: l.conns}
	l.conns.mu.Lock()
	defer l.conns.mu.Unlock()
	if l.conns.open == nil {
		l.conns.open = map[*trackedConn]struct{}{}
	}
	l.conns.open[t] = struct{}{}
	return t, nil
}

type trackedConn struct {
	*readAheadConn
	conns *conns
}

func (c *trackedConn) Close() error {
	c.conns.mu.Lock()
	delete(c.conns.open, c)
	c.conns.mu.Unlock()
	return c.readAheadConn.Close()
}

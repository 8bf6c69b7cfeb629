package front

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/carrel-dev/carrel"
)

// lives end the connections to a sandbox when it lives on another node, or its node is lost. A node
// that was stopped keeps its connections open and says nothing on them.
type lives struct {
	mu sync.Mutex
	by map[carrel.ID]*life
}

// life is one stay of a sandbox on a node, as long as connections of this front depend on it.
type life struct {
	ctx   context.Context
	cut   context.CancelCauseFunc
	node  string
	users int
}

var errMoved = errors.New("the sandbox lives on another node now, or its node is lost")

// hold returns a context that ends with a sandbox's stay on a node. release gives it up.
func (l *lives) hold(id carrel.ID, node string) (ctx context.Context, release func()) {
	if id == "" { // which sandbox it is, only the node knows
		return context.Background(), func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[carrel.ID]*life{}
	}
	now := l.by[id]
	if now == nil || now.node != node {
		if now != nil {
			now.cut(errMoved)
		}
		now = &life{node: node}
		now.ctx, now.cut = context.WithCancelCause(context.Background())
		l.by[id] = now
	}
	now.users++
	return now.ctx, sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if now.users--; now.users == 0 {
			now.cut(nil)
			if l.by[id] == now {
				delete(l.by, id)
			}
		}
	})
}

// end cuts the connections to a sandbox, except those to one node.
func (l *lives) end(id carrel.ID, but string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.by[id]; now != nil && now.node != but {
		now.cut(errMoved)
		delete(l.by, id)
	}
}

// endAll cuts the connections to all sandboxes of a node.
func (l *lives) endAll(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, now := range l.by {
		if now.node == node {
			now.cut(errMoved)
			delete(l.by, id)
		}
	}
}

// bindBody makes the body of a response end with a life. done is called when it is closed.
func bindBody(resp *http.Response, life context.Context, done func()) {
	body := resp.Body
	stop := context.AfterFunc(life, func() { _ = body.Close() })
	end := func() { stop(); done() }
	if rw, ok := body.(io.ReadWriteCloser); ok { // an upgraded connection
		resp.Body = boundUpgrade{rw, end}
		return
	}
	resp.Body = boundBody{body, end}
}

type boundBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b boundBody) Close() error { defer b.end(); return b.ReadCloser.Close() }

type boundUpgrade struct {
	io.ReadWriteCloser
	end func()
}

// Close implements io.Closer.
func (b boundUpgrade) Close() error { defer b.end(); return b.ReadWriteCloser.Close() }

// boundComputer is the inside of a sandbox whose connections end with its stay on a node.
type boundComputer struct {
	carrel.Computer
	lives *lives
	id    carrel.ID
	node  string
}

// Dial implements carrel.Computer.
func (b boundComputer) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	conn, err := b.Computer.Dial(ctx, port)
	if err != nil {
		return nil, err
	}
	life, release := b.lives.hold(b.id, b.node)
	stop := context.AfterFunc(life, func() { _ = conn.Close() })
	return boundConn{conn, func() { stop(); release() }}, nil
}

type boundConn struct {
	net.Conn
	end func()
}

// Close implements net.Conn.
func (c boundConn) Close() error { defer c.end(); return c.Conn.Close() }

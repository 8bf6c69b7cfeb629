package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/guest"
)

// Bounds of listening for the host.
const (
	maxListeners   = 16               // of one sandbox
	maxReversed    = 256              // connections of one listener, taken by the host or not
	reversedPickUp = 10 * time.Second // in which the host must take a connection
	noticeTime     = 10 * time.Second // in which the host must read that a connection came
)

// LoopbackListener is an optional part of a [System]: it can listen on the sandbox's own 127.0.0.1.
// Port 0 chooses a free one.
type LoopbackListener interface {
	ListenLoopback(port uint16) (net.Listener, error)
}

// reverse holds the listeners of the host, and their connections.
type reverse struct {
	mu        sync.Mutex
	listeners int
	waiting   map[string]*reversed // connections that the host has not taken, by their IDs
}

// reversed is a connection of a program inside that is for the host.
type reversed struct {
	conn net.Conn
	ctx  context.Context // ends with the listener
	done func()          // gives its place back
	// forget stops the timer that would drop the connection. It is nil until arm.
	forget func()
}

// enter takes one of the places for listeners. It reports false if there is none.
func (v *reverse) enter() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listeners >= maxListeners {
		return false
	}
	v.listeners++
	return true
}

func (v *reverse) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.listeners--
}

// put keeps a connection for the host and returns its ID.
func (v *reverse) put(c *reversed) string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails
	id := hex.EncodeToString(raw)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.waiting == nil {
		v.waiting = map[string]*reversed{}
	}
	v.waiting[id] = c
	return id
}

// arm makes sure that a connection is dropped if the host is late or the listener ends.
func (v *reverse) arm(id string, c *reversed) {
	late := time.AfterFunc(reversedPickUp, func() { v.drop(id) })
	stop := context.AfterFunc(c.ctx, func() { v.drop(id) })
	v.mu.Lock()
	defer v.mu.Unlock()
	c.forget = func() { late.Stop(); stop() }
}

// take gives a connection to the host, once.
func (v *reverse) take(id string) *reversed {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.waiting[id]
	delete(v.waiting, id)
	if c != nil && c.forget != nil {
		c.forget()
	}
	return c
}

// drop closes a connection that the host did not take.
func (v *reverse) drop(id string) {
	if c := v.take(id); c != nil {
		reset(c.conn)
		c.done()
	}
}

// serveListen listens on the sandbox's loopback while the host keeps its connection. For each new
// connection it sends the host a line with an ID.
func (a *Agent) serveListen(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("port: %q is not a port", r.PathValue("port")))
		return
	}
	sys, ok := a.sys.(LoopbackListener)
	if !ok {
		writeError(w, http.StatusNotImplemented, "nothing can listen in a simulated sandbox")
		return
	}
	if !a.mayUpgrade(w, r) {
		return
	}
	if !a.reverse.enter() {
		writeError(w, http.StatusTooManyRequests, fmt.Sprintf("%d ports are listened on for the host already", maxListeners))
		return
	}
	defer a.reverse.leave()
	l, err := sys.ListenLoopback(uint16(port))
	if err != nil {
		status := http.StatusBadGateway
		if errors.Is(err, syscall.EADDRINUSE) {
			status = http.StatusConflict
		}
		writeError(w, status, err.Error())
		return
	}
	defer func() { _ = l.Close() }()
	outer, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	defer func() { _ = outer.Close() }()
	chosen := port
	if at, ok := l.Addr().(*net.TCPAddr); ok {
		chosen = uint64(at.Port)
	}
	if _, err := fmt.Fprintf(outer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %d\r\n\r\n",
		guest.TunnelProtocol, guest.PortHeader, chosen); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	defer context.AfterFunc(ctx, func() { _, _ = l.Close(), outer.Close() })()
	gone := make(chan struct{})
	go func() { // the host sends nothing: when its connection ends, the listener ends
		defer close(gone)
		_, _ = io.Copy(io.Discard, buf.Reader)
		cancel()
	}()
	a.acceptFor(ctx, l, outer)
	_ = outer.Close()
	<-gone
}

// acceptFor announces each connection to the host until ctx ends.
func (a *Agent) acceptFor(ctx context.Context, l net.Listener, host net.Conn) {
	slots := make(chan struct{}, maxReversed)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c := &reversed{conn: conn, ctx: ctx, done: func() { <-slots }}
		id := a.reverse.put(c)
		a.reverse.arm(id, c)
		_ = host.SetWriteDeadline(time.Now().Add(noticeTime))
		if _, err := io.WriteString(host, id+"\n"); err != nil {
			return
		}
	}
}

// serveAccepted connects the host with a connection that a program inside made to one of the host's
// listeners.
func (a *Agent) serveAccepted(w http.ResponseWriter, r *http.Request) {
	if !a.mayUpgrade(w, r) {
		return
	}
	c := a.reverse.take(r.PathValue("id"))
	if c == nil {
		writeError(w, http.StatusGone, "there is no such connection, or no more")
		return
	}
	defer c.done()
	defer func() { _ = c.conn.Close() }()
	outer, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	defer func() { _ = outer.Close() }()
	if _, err := fmt.Fprintf(outer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", guest.TunnelProtocol); err != nil {
		return
	}
	// The connection ends with its listener, which ends with the agent or when streams are
	// interrupted.
	defer context.AfterFunc(c.ctx, func() { reset(c.conn, outer) })()
	defer context.AfterFunc(r.Context(), func() { reset(c.conn, outer) })()
	splice(c.conn, outer, buf.Reader)
}

// mayUpgrade reports whether a request may become a stream of the host's. If not, it has answered
// the request.
func (a *Agent) mayUpgrade(w http.ResponseWriter, r *http.Request) bool {
	if !a.trusted(r) {
		writeError(w, http.StatusForbidden, "this is for the host alone")
		return false
	}
	if _, ok := w.(http.Hijacker); !ok || !strings.EqualFold(r.Header.Get("Upgrade"), guest.TunnelProtocol) {
		w.Header().Set("Upgrade", guest.TunnelProtocol)
		writeError(w, http.StatusUpgradeRequired, "Upgrade: want "+guest.TunnelProtocol+" over HTTP/1.1")
		return false
	}
	return true
}

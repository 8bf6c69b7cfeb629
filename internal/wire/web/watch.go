package web

import (
	"net"
	"sync"
	"time"
)

// watchAfter is how long a connection is silent before somebody looks whether it still
// lives: short requests should not pay for it.
const watchAfter = 10 * time.Millisecond

// watcher notices that a connection on which nothing should come ends: the sandbox's
// while it waits for an answer, a server's while there is nothing to ask.
type watcher struct {
	conn  net.Conn
	read  func() error // waits for one byte, which must not be lost
	ended func()       // called when the connection ends

	timer *time.Timer

	mu      sync.Mutex
	armed   bool
	reading chan struct{} // closed when the look is over; nil for none
	dead    bool
}

// arm begins, soon, to watch.
func (w *watcher) arm() {
	w.mu.Lock()
	w.armed = true
	w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(watchAfter, w.look)
	} else {
		w.timer.Reset(watchAfter)
	}
}

// disarm ends the watch, and returns when nobody reads any longer. It reports whether the
// connection is alive.
func (w *watcher) disarm() bool {
	if w.timer == nil {
		return true
	}
	w.timer.Stop()
	w.mu.Lock()
	w.armed = false
	reading := w.reading
	dead := w.dead
	w.mu.Unlock()
	if reading == nil {
		return !dead
	}
	_ = w.conn.SetReadDeadline(time.Unix(1, 0))
	<-reading
	_ = w.conn.SetReadDeadline(time.Time{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = nil
	return !w.dead
}

// gone reports whether the connection was seen to end.
func (w *watcher) gone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

func (w *watcher) look() {
	w.mu.Lock()
	if !w.armed || w.reading != nil {
		w.mu.Unlock()
		return
	}
	done := make(chan struct{})
	w.reading = done
	w.mu.Unlock()
	defer close(done)
	err := w.read()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil || (!w.armed && isTimeout(err)) {
		return
	}
	w.dead = true
	if w.ended != nil {
		w.ended()
	}
}

func isTimeout(err error) bool {
	t, ok := err.(net.Error)
	return ok && t.Timeout()
}

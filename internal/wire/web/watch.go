package web

import (
	"net"
	"sync"
	"time"
)

// watchAfter is how long a connection is silent before the watcher checks it. Short requests should
// not pay for the check.
const watchAfter = 10 * time.Millisecond

// watcher notices the end of a connection on which no bytes should come. This is the sandbox's
// connection while it waits for an answer, or a server's connection between two requests.
type watcher struct {
	conn  net.Conn
	read  func() error // waits for one byte, which must not be lost
	ended func()       // called when the connection ends

	timer *time.Timer

	mu      sync.Mutex
	armed   bool
	reading chan struct{} // closed when the check is over; nil without a check
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

// disarm ends the watch. It returns when the watcher no longer reads, and reports whether the
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

// gone reports whether the watcher has seen the connection end.
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

//go:build linux

package box

import (
	"os"
	"sync"
)

// Ahead is a stage that waits for its order. Reading the settings of a box takes about as long as
// starting the process that builds it, and a machine has more than one processor. So both begin at
// once.
//
// It has the namespaces of a box with a network of its own, Closed or Wired. For another one it is
// of no use, and is ended.
type Ahead struct {
	ready chan struct{} // closed when the stage runs or has failed
	mu    sync.Mutex
	b     *Box // nil after it was taken or closed
}

// aheadArg is the stage's argument by which it knows that its order comes later; the next one is
// the network.
const aheadArg = "ahead"

// StartAhead starts a stage of that program and returns at once. It reports no error: if it failed,
// Start tries again and returns the error.
func StartAhead(program *os.File, network Network) *Ahead {
	a := &Ahead{ready: make(chan struct{})}
	b := blank(Spec{Network: network}, Options{Stage: program})
	b.argv = append(b.argv, aheadArg, string(network))
	go func() {
		defer close(a.ready)
		if err := b.spawn([]bool{true}); err != nil {
			b.abandon()
			return
		}
		a.b = b
	}()
	return a
}

// take hands the stage over; nil if there is none.
func (a *Ahead) take() *Box {
	if a == nil {
		return nil
	}
	<-a.ready
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.b
	a.b = nil
	return b
}

// Close ends the stage and waits for its end. If a box has taken the stage, Close does nothing.
func (a *Ahead) Close() {
	if b := a.take(); b != nil {
		b.abandon()
	}
}

// adopt uses a stage that was started ahead for this box, and reports whether that was possible.
func (b *Box) adopt(a *Ahead) bool {
	s := b.spec
	if a == nil || s.Light || s.Network == Host || len(s.UIDMap) > 0 || len(s.Capabilities) > 0 || s.Privileges || b.options.Detach || b.group != nil {
		return false
	}
	early := a.take()
	if early == nil {
		return false
	}
	if early.spec.Network == Wired && s.Network != Wired { // it has a link, which this one must not have
		early.abandon()
		return false
	}
	b.conn, b.stage, b.stagefd, b.words = early.conn, early.stage, early.stagefd, early.words
	b.order.User = early.order.User
	return true
}

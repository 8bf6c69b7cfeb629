//go:build linux

package box

import (
	"os"
	"sync"
)

// Ahead is a stage that waits for its order. Reading the settings that say what a box is like takes about as long
// as starting the process that builds it, and a machine has more than one processor: so both are begun at once.
//
// It has the namespaces of a box with a network of its own, Closed or Wired. For another one it is of no use, and is ended.
type Ahead struct {
	ready chan struct{} // closed when the stage runs, or could not be started
	mu    sync.Mutex
	b     *Box // nil once it was taken, or closed
}

// aheadArg is the stage's argument by which it knows that its order comes later; the next one is the network.
const aheadArg = "ahead"

// StartAhead starts a stage of that program and returns at once. An error of it is none yet: Start tries again, and says so.
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

// take gives the stage away; nil if there is none.
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

// Close ends the stage, unless a box has taken it, and waits for its end.
func (a *Ahead) Close() {
	if b := a.take(); b != nil {
		b.abandon()
	}
}

// adopt makes a stage that was started ahead this box's, and reports whether it could.
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

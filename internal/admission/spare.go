package admission

import (
	"errors"
	"time"

	"github.com/carrel-dev/carrel"
)

// ErrBusy is the error of [Gate.Spare] when others need the machine.
var ErrBusy error = &carrel.Error{Op: "use spare time", Kind: carrel.Unavailable, Err: errors.New("others wait for their turn")}

// spareShare is the sharer of work that no caller waits for. No other sharer can have this name.
const spareShare = "(spare)"

// Spare takes a place for work that no caller waits for, such as making warm sandboxes. It succeeds
// only while the gate and the machine have room and the queue is empty. It never waits. Errors:
// [ErrBusy], and those of [Gate.Enter] except the queue's. The caller must call Done on the pass.
func (g *Gate) Spare(r Request) (*Pass, error) {
	r.Share = spareShare
	if err := g.machine(r); err != nil {
		return nil, err // nobody was refused
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed != nil:
		return nil, g.closed
	case g.waiting() > 0 || !g.roomLocked():
		return nil, ErrBusy
	}
	t := g.sharer(r.Share)
	t.seen = now
	g.countLocked(t)
	return g.passLocked(r, t, now, now), nil
}

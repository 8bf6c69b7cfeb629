package admission

import (
	"errors"
	"time"

	"github.com/carrel-dev/carrel"
)

// ErrBusy is what [Gate.Spare] returns when others need the machine.
var ErrBusy error = &carrel.Error{Op: "use spare time", Kind: carrel.Unavailable, Err: errors.New("others wait for their turn")}

// spareShare is whose the work is that nobody waits for; no sharer can have that name.
const spareShare = "(spare)"

// Spare takes a place for work that nobody waits for, such as making ahead what may be
// wanted later: only while there is room, for the machine too, and nobody is in the queue. It
// never waits. Errors: [ErrBusy], and those of [Gate.Enter] but for the queue's. The caller
// calls Done on the pass.
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

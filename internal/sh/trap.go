package sh

import "math/bits"

// Traps that are no signals.
const (
	trapEXIT = 0
	trapERR  = 65
	trapDEBG = 66
	trapRET  = 67
)

// setTrap sets, ignores ("") or, with remove, resets a trap.
func (r *runner) setTrap(sig int, body string, remove bool) {
	if remove {
		delete(r.traps, sig)
	} else {
		r.traps[sig] = body
	}
	if sig <= 0 || sig >= 64 || sig == sigKILL {
		return
	}
	bit := uint64(1) << uint(sig)
	r.p.caught.And(^bit)
	r.p.ignored.And(^bit)
	switch {
	case remove:
	case body == "":
		r.p.ignored.Or(bit)
	default:
		r.p.caught.Or(bit)
	}
}

// runTrap runs a trap's commands; the status is as it was.
func (r *runner) runTrap(body string) {
	status, trapping := r.status, r.trapping
	r.trapping = true
	r.script(body)
	r.trapping = trapping
	if r.flow == flowNone {
		r.status = status
	}
}

// runSignalTraps runs the traps of the signals that have arrived.
func (r *runner) runSignalTraps() {
	pending := r.p.pending.Swap(0)
	for pending != 0 {
		sig := bits.TrailingZeros64(pending)
		pending &^= 1 << uint(sig)
		if body := r.traps[sig]; body != "" {
			r.runTrap(body)
		}
	}
}

// runExitTrap runs the EXIT trap once, unless the process was killed.
func (r *runner) runExitTrap() {
	body := r.traps[trapEXIT]
	delete(r.traps, trapEXIT)
	if body == "" || r.ctx.Err() != nil {
		return
	}
	flow := r.flow
	r.flow = flowNone
	status := r.status
	r.trapping = true
	r.script(body)
	if r.flow != flowExit {
		r.status = status
	}
	r.flow = flow
}

package interp

import (
	"math/bits"

	"mvdan.cc/sh/v3/syntax"
)

// Traps that are no signals.
const (
	trapEXIT = 0
	trapERR  = 65
	trapDEBG = 66
	trapRET  = 67
)

// setTrap sets a trap. It ignores the signal if body is "", and resets the trap with remove.
func (r *runner) setTrap(sig int, body string, remove bool) {
	r.oldTraps = nil
	if r.fixedSigs&sigBit(sig) != 0 {
		return // ignored from the start: POSIX forbids a trap
	}
	if remove {
		delete(r.traps, sig)
	} else {
		if r.traps == nil {
			r.traps = map[int]string{}
		}
		r.traps[sig] = body
	}
	bit := sigBit(sig)
	if bit == 0 || sig == sigKILL || sig == sigSTOP {
		return
	}
	r.p.caught.And(^bit)
	r.p.ignored.And(^bit)
	switch {
	case remove:
		if r.interactive && (sig == sigINT || sig == sigQUIT || sig == sigTERM) {
			r.p.ignored.Or(bit)
		}
	case body == "":
		r.p.ignored.Or(bit)
	default:
		r.p.caught.Or(bit)
	}
}

// runTrap runs a trap's commands and restores the status. A trap does not run within itself.
func (r *runner) runTrap(sig int) {
	body, ok := r.traps[sig]
	if !ok || body == "" || sig > 64 && r.inTrap(sig) {
		return
	}
	status, pipe, line, base := r.status, r.savePipeStatus(), r.line, r.lineBase
	r.running = append(r.running, sig)
	r.trapStatus, r.trapCalls = status, len(r.calls)
	r.lineBase = 0
	if sig > 64 && line > 0 {
		r.lineBase = int(line) - 1
	}
	r.script(body)
	r.running = r.running[:len(r.running)-1]
	r.line, r.lineBase = line, base
	if r.flow == flowNone {
		r.status = status
		r.restorePipeStatus(pipe)
	}
}

// inTrap reports whether a trap is running.
func (r *runner) inTrap(sig int) bool {
	for _, s := range r.running {
		if s == sig {
			return true
		}
	}
	return false
}

// attend handles requests to a process between two commands: it stops, or runs the traps of signals
// that have arrived.
func (r *runner) attend() {
	r.p.attention.Store(false)
	if r.p.stopped() != 0 {
		r.p.halt(r.ctx)
	}
	pending := r.p.pending.Load()
	for pending != 0 && r.flow == flowNone {
		n := bits.TrailingZeros64(pending)
		bit := uint64(1) << uint(n)
		pending &^= bit
		r.p.pending.And(^bit)
		r.runTrap(n + 1)
	}
	if r.p.pending.Load() != 0 {
		r.p.attention.Store(true)
	}
}

// runExitTrap runs the EXIT trap once. It also runs when a signal other than SIGKILL ends the
// shell.
func (r *runner) runExitTrap() {
	body := r.traps[trapEXIT]
	if body == "" || r.exitDone {
		return
	}
	if r.p.ctx.Err() != nil {
		if !r.p.revive() {
			return
		}
		r.ctx = r.p.ctx
		r.status = 128 + r.p.killer
	}
	r.ctx = r.p.ctx
	delete(r.traps, trapEXIT)
	status := r.status
	r.exitStatus, r.exitDone = status, true
	r.flow, r.exiting = flowNone, false
	r.running = append(r.running, trapEXIT)
	r.lineBase, r.noErrExit = 0, 0
	r.script(body)
	r.running = r.running[:len(r.running)-1]
	if _, err := parse(body); r.flow != flowExit || err != nil && !r.exiting {
		r.status = status
	}
	r.flow = flowExit
}

// debug runs the DEBUG trap before a command, and reports whether the command must run.
func (r *runner) debug() bool {
	if len(r.traps) == 0 {
		return true
	}
	body := r.traps[trapDEBG]
	if body == "" || r.inTrap(trapDEBG) {
		return true
	}
	status, pipe, line, base := r.status, r.savePipeStatus(), r.line, r.lineBase
	r.running = append(r.running, trapDEBG)
	if line > 0 {
		r.lineBase = int(line) - 1
	}
	r.script(body)
	r.running = r.running[:len(r.running)-1]
	r.line, r.lineBase = line, base
	if r.flow != flowNone {
		return false
	}
	code := r.status
	r.status = status
	r.restorePipeStatus(pipe)
	if r.opts.extdebug && code != 0 {
		if code == 2 && len(r.calls) > 0 {
			r.flow = flowReturn
		}
		r.status = 0 // as if the command had run
		return false
	}
	return true
}

// heldTraps removes the traps that a function does not inherit. The caller restores them with
// returnTraps.
func (r *runner) heldTraps(all bool) (held [3]string) {
	if len(r.traps) == 0 {
		return held
	}
	take := func(i, sig int) {
		if body, ok := r.traps[sig]; ok {
			held[i] = body
			delete(r.traps, sig)
		}
	}
	if !r.opts.functrace && !all {
		take(0, trapDEBG)
		take(1, trapRET)
	}
	if !r.opts.errtrace {
		take(2, trapERR)
	}
	return held
}

// returnTraps restores the traps that heldTraps removed, except those that were set again.
func (r *runner) returnTraps(held [3]string) {
	for i, sig := range [3]int{trapDEBG, trapRET, trapERR} {
		if _, ok := r.traps[sig]; !ok && held[i] != "" {
			r.traps[sig] = held[i]
		}
	}
}

// commandText is BASH_COMMAND.
func (r *runner) commandText() string {
	if r.current == nil {
		return ""
	}
	switch c := r.current.(type) {
	case *syntax.ForClause:
		if l, ok := c.Loop.(*syntax.WordIter); ok {
			return "for " + l.Name.Value + " in " + wordsText(l.Items)
		}
		return "((…))"
	case *syntax.CaseClause:
		return "case " + wordText(c.Word) + " in "
	}
	if c, ok := r.current.(syntax.Command); ok {
		p := &listing{}
		p.command(c)
		p.redirects(r.currentTo)
		return p.b.String()
	}
	return nodeText(r.current)
}

func wordsText(words []*syntax.Word) string {
	p := &listing{}
	p.words(words)
	return p.b.String()
}

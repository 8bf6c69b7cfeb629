package interp

import (
	"fmt"

	"mvdan.cc/sh/v3/syntax"
)

// substFD is a descriptor of a process substitution.
type substFD struct {
	n int
	p *proc
}

// procSubst starts <(list) or >(list) and returns the name of its pipe.
func (r *runner) procSubst(ps *syntax.ProcSubst) string {
	s, err := r.fork(false)
	if err != nil {
		r.forkFailed(err)
		return "/dev/null"
	}
	s.loops = 0
	p := NewPipe()
	mine, theirs, at := newDesc(readEnd{p}), newDesc(writeEnd{p}), 1
	if ps.Op == syntax.CmdOut {
		mine, theirs, at = theirs, mine, 0
	}
	s.fds.set(at, theirs)
	n := 63
	for r.fds.get(n) != nil {
		n--
	}
	r.fds.set(n, mine)
	r.lastBg = s.p.pid
	r.remember(s.p)
	r.m.work(s.p, func() {
		s.contain(func() { s.stmts(ps.Stmts) })
		s.end(s.status)
	})
	r.substFDs = append(r.substFDs, substFD{n, s.p})
	return fmt.Sprintf("/dev/fd/%d", n)
}

// dropSubsts closes the descriptors of the process substitutions made since mark.
func (r *runner) dropSubsts(mark int) {
	for _, s := range r.substFDs[mark:] {
		r.fds.set(s.n, nil)
	}
	r.substFDs = r.substFDs[:mark]
}

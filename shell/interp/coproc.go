package interp

import (
	"strconv"

	"mvdan.cc/sh/v3/syntax"
)

// coproc is a running coprocess.
type coproc struct {
	p       *proc
	name    string
	in, out int // the shell's descriptors for writing to it and reading from it
}

// startCoproc starts a coprocess.
func (r *runner) startCoproc(c *syntax.CoprocClause) {
	name := "COPROC"
	if c.Name != nil {
		name = r.text(c.Name)
		if !isName(name) {
			r.errorf("`%s': not a valid identifier", name)
			r.status = 1
			return
		}
	}
	r.reapCoproc()
	if r.coproc != nil {
		r.errorf("warning: execute_coproc: coproc [%d:%s] still exists", r.coproc.p.pid, r.coproc.name)
	}
	s, err := r.fork(false)
	if err != nil {
		r.forkFailed(err)
		return
	}
	s.loops = 0
	if r.opts.monitor {
		s.p.lead()
	}
	to, from := NewPipe(), NewPipe()
	s.fds.set(0, newDesc(readEnd{to}))
	s.fds.set(1, newDesc(writeEnd{from}))
	high := func(n int) int {
		for r.fds.get(n) != nil && n > 10 {
			n--
		}
		return n
	}
	const top, below = 63, 60 // where bash has them
	cp := &coproc{p: s.p, name: name}
	cp.out = high(top)
	r.fds.set(cp.out, newDesc(readEnd{from}))
	cp.in = high(below)
	r.fds.set(cp.in, newDesc(writeEnd{to}))
	r.coproc = cp
	r.unset(name)
	v := r.target(name)
	v.setArray([]string{strconv.Itoa(cp.out), strconv.Itoa(cp.in)})
	r.set(name+"_PID", strconv.Itoa(s.p.pid))
	body := *c.Stmt
	j := r.addJob(s.p, "coproc "+name+" "+sourceText(&body), r.opts.monitor)
	_ = j
	r.lastBg = s.p.pid
	r.m.work(s.p, func() {
		s.contain(func() { s.stmt(&body) })
		s.end(s.status)
	})
	r.status = 0
}

// reapCoproc forgets a coprocess that has ended.
func (r *runner) reapCoproc() {
	c := r.coproc
	if c == nil || !c.p.ended() {
		return
	}
	r.coproc = nil
	r.fds.set(c.in, nil)
	r.fds.set(c.out, nil)
	r.unset(c.name)
	r.unset(c.name + "_PID")
}

// withoutCoproc closes the coprocess's descriptors in a subshell, which does not inherit them.
func (r *runner) withoutCoproc() {
	if c := r.coproc; c != nil {
		r.fds.set(c.in, nil)
		r.fds.set(c.out, nil)
		r.coproc = nil
	}
}

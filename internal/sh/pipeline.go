package sh

import (
	"fmt"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// pipeline runs the members of a pipeline at the same time, each in a process of
// its own, and waits for all of them.
func (r *runner) pipeline(b *syntax.BinaryCmd) {
	members, withErr := flatten(b)
	subs := make([]*runner, 0, len(members))
	var in *desc
	for i := range members {
		s, err := r.fork(true)
		if err != nil {
			r.forkFailed(err)
			break
		}
		s.loops = 0
		if in != nil {
			s.fds.set(0, in)
			in = nil
		}
		if i < len(members)-1 {
			p := NewPipe()
			out := newDesc(writeEnd{p})
			if withErr[i] {
				s.fds.set(2, out.hold())
			}
			s.fds.set(1, out)
			in = newDesc(readEnd{p})
		}
		subs = append(subs, s)
	}
	if in != nil {
		in.drop()
	}
	if len(subs) < len(members) { // no room for all: none runs
		for _, s := range subs {
			s.end(254)
		}
		return
	}
	for i, s := range subs[:len(subs)-1] {
		r.m.wg.Add(1)
		go func() {
			defer r.m.wg.Done()
			s.contain(func() { s.stmt(members[i]) })
			s.end(s.status)
		}()
	}
	last := subs[len(subs)-1]
	last.contain(func() { last.stmt(members[len(members)-1]) })
	last.end(last.status)
	r.collect(subs)
}

// flatten lists the members of a pipeline and which of them send their standard
// error along.
func flatten(b *syntax.BinaryCmd) (members []*syntax.Stmt, withErr []bool) {
	add := func(s *syntax.Stmt, err bool) {
		members, withErr = append(members, s), append(withErr, err)
	}
	// The grammar may nest to either side; walk it with a stack, not by recursion.
	type item struct {
		s   *syntax.Stmt
		err bool
	}
	for todo := []item{{b.Y, false}, {b.X, b.Op == syntax.PipeAll}}; len(todo) > 0; {
		it := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if x, ok := bare(it.s, true); ok {
			todo = append(todo, item{x.Y, it.err}, item{x.X, x.Op == syntax.PipeAll})
			continue
		}
		add(it.s, it.err)
	}
	return members, withErr
}

// collect waits for a pipeline's members and works out its status.
func (r *runner) collect(subs []*runner) {
	codes := make([]string, len(subs))
	failed := 0
	for i, s := range subs {
		<-s.p.done
		codes[i] = strconv.Itoa(s.p.code)
		if s.p.code != 0 {
			failed = s.p.code
		}
		r.status = s.p.code
	}
	if r.opts.pipefail {
		r.status = failed
	}
	r.scopes[0]["PIPESTATUS"] = &variable{set: true, arr: newArray(codes)}
	r.step()
}

// substitute runs statements and returns what they wrote, without the newlines at
// the end.
func (r *runner) substitute(list []*syntax.Stmt) string {
	if len(list) == 0 {
		return ""
	}
	out := newCapture(r.p)
	d := newDesc(out)
	errexit := r.opts.errexit
	r.subshell(func(s *runner) {
		s.opts.errexit = false // as bash has it, outside of POSIX mode
		s.fds.set(1, d)
		d = nil
		s.stmts(list)
	})
	if d != nil {
		d.drop() // no process could be made
	}
	r.opts.errexit = errexit
	select {
	case <-out.closed:
	case <-r.ctx.Done():
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	text := strings.TrimRight(string(out.buf), "\n")
	r.p.charge(-int64(len(out.buf)))
	return strings.ReplaceAll(text, "\x00", "")
}

// time runs a statement and reports how long it took.
func (r *runner) time(c *syntax.TimeClause) {
	start := r.m.now()
	if c.Stmt != nil {
		r.stmt(c.Stmt)
	}
	d := r.m.now().Sub(start)
	if c.PosixFormat {
		r.writeErr(fmt.Sprintf("real %.2f\nuser %.2f\nsys 0.00\n", d.Seconds(), d.Seconds()))
		return
	}
	min := int(d.Minutes())
	sec := d.Seconds() - float64(min*60)
	r.writeErr(fmt.Sprintf("\nreal\t%dm%.3fs\nuser\t%dm%.3fs\nsys\t0m0.000s\n", min, sec, min, sec))
}

// sourceText prints a statement, for jobs.
func sourceText(s *syntax.Stmt) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, s); err != nil {
		return "?"
	}
	return b.String()
}

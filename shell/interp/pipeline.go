package interp

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// pipeline runs the members of a pipeline at the same time, each in its own process, and waits for
// all of them.
func (r *runner) pipeline(b *syntax.BinaryCmd) {
	if r.term != nil && r.opts.monitor {
		r.foreground(nodeText(b), func(s *runner) { s.pipe(b) })
		return
	}
	r.pipe(b)
}

func (r *runner) pipe(b *syntax.BinaryCmd) {
	members, withErr := flatten(b)
	debugged := len(r.traps) > 0 && r.traps[trapDEBG] != "" && !r.inTrap(trapDEBG)
	if debugged && !r.debugMembers(members) {
		return
	}
	here := r.opts.lastpipe && !r.opts.monitor // the last member runs in this shell
	forks := len(members)
	if here {
		forks--
	}
	subs := make([]*runner, 0, len(members))
	var in *desc
	for i := range forks {
		s, err := r.fork(true)
		if err != nil {
			r.forkFailed(err)
			break
		}
		s.loops = 0
		_, simple := members[i].Cmd.(*syntax.CallExpr)
		s.debugged = debugged && simple
		if in != nil {
			s.fds.set(0, in)
			s.stdinRedir, in = true, nil
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
	if len(subs) < forks { // no room for all: none runs
		if in != nil {
			in.drop()
		}
		for _, s := range subs {
			s.end(254)
		}
		return
	}
	start := func(s *runner, member *syntax.Stmt) {
		r.m.work(s.p, func() {
			s.contain(func() { s.forked(member) })
			s.end(s.status)
		})
	}
	if here {
		for i, s := range subs {
			start(s, members[i])
		}
		r.lastPipe(in, members[len(members)-1])
		r.collect(subs, true)
		return
	}
	for i, s := range subs[:len(subs)-1] {
		start(s, members[i])
	}
	last := subs[len(subs)-1]
	last.contain(func() { last.forked(members[len(members)-1]) })
	last.end(last.status)
	r.collect(subs, false)
}

// debugMembers runs the DEBUG trap for the simple commands of a pipeline. It runs before their
// processes exist.
func (r *runner) debugMembers(members []*syntax.Stmt) bool {
	for _, m := range members {
		if c, ok := m.Cmd.(*syntax.CallExpr); ok {
			r.line = uint(int(m.Pos().Line()) + r.lineBase)
			if r.now(c); len(r.running) == 0 {
				r.currentTo = m.Redirs
			}
			if r.debug(); r.flow != flowNone {
				return false
			}
		}
	}
	return true
}

// lastPipe runs the last member of a pipeline in this shell.
func (r *runner) lastPipe(in *desc, member *syntax.Stmt) {
	old := r.fds.get(0)
	if old != nil {
		old.hold()
	}
	r.fds.set(0, in)
	r.noErrExit++
	r.stmt(member)
	r.noErrExit--
	r.fds.set(0, old)
}

// flatten lists the members of a pipeline, and says for each whether it sends its standard error
// too.
func flatten(b *syntax.BinaryCmd) (members []*syntax.Stmt, withErr []bool) {
	add := func(s *syntax.Stmt, err bool) {
		members, withErr = append(members, s), append(withErr, err)
	}
	// The grammar may nest on both sides. A stack replaces recursion here.
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

// collect waits for a pipeline's members and computes its status. With here, the last member ran in
// this shell, and its status is the shell's status.
func (r *runner) collect(subs []*runner, here bool) {
	codes := make([]int, 0, len(subs)+1)
	failed, status := 0, r.status
	for _, s := range subs {
		r.m.await(r.p, s.p)
		codes = append(codes, s.p.code&0xff)
		if s.p.code != 0 {
			failed = s.p.code
		}
		r.status = s.p.code
	}
	if here {
		codes = append(codes, status&0xff)
		if r.status = status; status != 0 {
			failed = status
		}
	}
	if r.opts.pipefail {
		r.status = failed
	}
	r.setPipeStatuses(codes)
	if r.flow == flowNone {
		r.step()
	}
}

// substitute runs statements and returns their output without the newlines at its end.
func (r *runner) substitute(list []*syntax.Stmt) string {
	if len(list) == 0 {
		return ""
	}
	out := newCapture(r.p)
	d := newDesc(out)
	r.subshell(func(s *runner) {
		if !s.opts.inheritErrexit && !s.opts.posix {
			s.opts.errexit = false // as in bash, outside of POSIX mode
		}
		s.traceDepth++
		s.fds.set(1, d)
		d = nil
		s.stmts(list)
	})
	if d != nil {
		d.drop() // no process could be made
	}
	r.m.pause(r.ctx, out.closed)
	out.mu.Lock()
	defer out.mu.Unlock()
	text := strings.TrimRight(string(out.buf), "\n")
	r.p.charge(-int64(len(out.buf)))
	out.buf = nil
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	return text
}

// time runs a statement and reports how long it took.
func (r *runner) time(c *syntax.TimeClause) {
	start := r.m.now()
	if c.Stmt != nil {
		r.stmt(c.Stmt)
	}
	seconds := r.m.now().Sub(start).Seconds()
	format, ok := r.get("TIMEFORMAT")
	switch {
	case c.PosixFormat:
		format = "real %2R\nuser %2U\nsys %2S"
	case !ok:
		format = "\nreal\t%3lR\nuser\t%3lU\nsys\t%3lS"
	case format == "":
		return
	}
	r.writeErr(timeText(format, seconds) + "\n")
}

// timeText expands TIMEFORMAT. The simulated processor time equals the elapsed time.
func timeText(format string, seconds float64) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		precision, long := 3, false
		if format[i] >= '0' && format[i] <= '9' {
			precision = min(int(format[i]-'0'), 3)
			i++
		}
		if i < len(format) && format[i] == 'l' {
			long = true
			i++
		}
		if i >= len(format) {
			break
		}
		v := seconds
		switch format[i] {
		case 'R', 'U':
		case 'S':
			v = 0
		case 'P':
			b.WriteString("100.00")
			continue
		case '%':
			b.WriteByte('%')
			continue
		default:
			b.WriteString("%" + format[i:i+1])
			continue
		}
		if long {
			minutes := int(v / 60)
			fmt.Fprintf(&b, "%dm%.*fs", minutes, precision, v-float64(minutes*60))
		} else {
			fmt.Fprintf(&b, "%.*f", precision, v)
		}
	}
	return b.String()
}

package sh

import (
	"strconv"

	"mvdan.cc/sh/v3/syntax"
)

// stmts runs a list.
func (r *runner) stmts(list []*syntax.Stmt) {
	for _, s := range list {
		r.stmt(s)
		if r.flow != flowNone {
			return
		}
	}
}

// stmt runs one statement with its redirections.
func (r *runner) stmt(s *syntax.Stmt) {
	if !r.step() || r.opts.noexec {
		return
	}
	if l := s.Pos().Line(); l > 0 {
		r.line = l
	}
	if s.Background || s.Disown {
		r.background(s)
		return
	}
	if s.Coprocess {
		r.errorf("coprocesses are not supported in the simulated tier")
		r.status = 2
		return
	}
	if s.Negated {
		r.noErrExit++
	}
	mark := len(r.substFDs)
	r.redirected(s.Redirs, isExec(s.Cmd), func() { r.command(s.Cmd) }, s.Cmd == nil)
	if len(r.substFDs) > mark {
		r.dropSubsts(mark)
	}
	if s.Negated {
		r.noErrExit--
		if r.flow == flowNone {
			r.status = boolStatus(r.status != 0)
		}
		return
	}
	r.checkErrExit(s)
}

// isExec reports whether a command is the builtin exec, whose redirections stay.
func isExec(c syntax.Command) bool {
	call, ok := c.(*syntax.CallExpr)
	return ok && len(call.Args) > 0 && call.Args[0].Lit() == "exec"
}

// redirected runs fn under redirections and puts the descriptors back.
func (r *runner) redirected(redirs []*syntax.Redirect, keep bool, fn func(), only bool) {
	if len(redirs) == 0 {
		fn()
		return
	}
	saved := r.fds.clone()
	if err := r.redirect(redirs); err != nil {
		r.fds.closeAll()
		r.fds = saved
		if r.flow == flowNone {
			r.status = 1
		}
		return
	}
	switch {
	case only:
		r.status = 0
	default:
		fn()
	}
	if keep && r.flow == flowNone {
		saved.closeAll()
		return
	}
	r.fds.closeAll()
	r.fds = saved
}

// checkErrExit ends the shell under set -e when a statement of a kind that counts
// has failed, and runs the ERR trap.
func (r *runner) checkErrExit(s *syntax.Stmt) {
	if r.status == 0 || r.noErrExit > 0 || r.flow != flowNone {
		return
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr, *syntax.Subshell, *syntax.ArithmCmd, *syntax.TestClause, *syntax.DeclClause, *syntax.LetClause, nil:
	case *syntax.BinaryCmd:
		if c.Op != syntax.Pipe && c.Op != syntax.PipeAll {
			return
		}
	default:
		return
	}
	if body, ok := r.traps[trapERR]; ok && !r.trapping && body != "" {
		r.runTrap(body)
	}
	if r.opts.errexit && r.flow == flowNone {
		r.flow = flowExit
	}
}

// command runs a command of any kind.
func (r *runner) command(c syntax.Command) {
	switch c := c.(type) {
	case nil:
		r.status = 0
	case *syntax.CallExpr:
		r.call(c)
	case *syntax.Block:
		r.stmts(c.Stmts)
	case *syntax.Subshell:
		r.subshell(func(s *runner) { s.stmts(c.Stmts) })
	case *syntax.BinaryCmd:
		r.binary(c)
	case *syntax.IfClause:
		r.ifClause(c)
	case *syntax.WhileClause:
		r.while(c)
	case *syntax.ForClause:
		r.forClause(c)
	case *syntax.CaseClause:
		r.caseClause(c)
	case *syntax.FuncDecl:
		r.funcs[c.Name.Value] = &function{body: c.Body, file: r.sourceName(), line: c.Pos().Line()}
		r.pay(int(c.End().Offset()-c.Pos().Offset()) * 8)
		r.status = 0
	case *syntax.ArithmCmd:
		n, ok := r.arith(c.X)
		r.status = boolStatus(ok && n != 0)
	case *syntax.LetClause:
		for _, x := range c.Exprs {
			n, ok := r.arith(x)
			r.status = boolStatus(ok && n != 0)
		}
	case *syntax.TestClause:
		r.testClause(c)
	case *syntax.DeclClause:
		r.decl(c)
	case *syntax.TimeClause:
		r.time(c)
	default:
		r.errorf("this kind of command is not supported in the simulated tier")
		r.status = 2
	}
}

func boolStatus(ok bool) int {
	if ok {
		return 0
	}
	return 1
}

// subshell runs fn in a forked shell and takes over its status.
func (r *runner) subshell(fn func(*runner)) {
	s, err := r.fork(true)
	if err != nil {
		r.forkFailed(err)
		return
	}
	if s.depth > r.m.limits.Depth {
		s.errorf("maximum nesting level of %d exceeded", r.m.limits.Depth)
		s.end(1)
		r.status, r.flow = 1, flowExit
		return
	}
	s.loops = 0
	ended := false
	defer func() {
		if !ended { // a panic passes by; see contain
			s.end(1)
		}
	}()
	fn(s)
	s.end(s.status)
	ended = true
	r.status = s.p.code
}

func (r *runner) forkFailed(err error) {
	r.errorf("fork: %s", errText(err))
	r.status = 254
}

// background starts a statement as a job.
func (r *runner) background(s *syntax.Stmt) {
	sub, err := r.fork(false)
	if err != nil {
		r.forkFailed(err)
		return
	}
	if !r.interactive {
		sub.fds.set(0, newDesc(nullStream{}))
	}
	fg := *s
	fg.Background, fg.Disown = false, false
	r.jobs = append(r.jobs, &job{p: sub.p, text: sourceText(&fg)})
	r.lastBg = sub.p.pid
	if r.interactive {
		r.writeErr("[" + strconv.Itoa(len(r.jobs)) + "] " + strconv.Itoa(r.lastBg) + "\n")
	}
	r.m.wg.Add(1)
	go func() {
		defer r.m.wg.Done()
		sub.contain(func() { sub.stmt(&fg) })
		sub.end(sub.status)
	}()
	r.status = 0
}

// binary runs && || and | chains without recursing into their length.
func (r *runner) binary(b *syntax.BinaryCmd) {
	if b.Op == syntax.Pipe || b.Op == syntax.PipeAll {
		r.pipeline(b)
		return
	}
	type link struct {
		op syntax.BinCmdOperator
		y  *syntax.Stmt
	}
	chain := []link{{b.Op, b.Y}}
	first := b.X
	for {
		x, ok := bare(first, false)
		if !ok {
			break
		}
		chain = append(chain, link{x.Op, x.Y})
		first = x.X
	}
	r.noErrExit++
	r.stmt(first)
	r.noErrExit--
	for i := len(chain) - 1; i >= 0 && r.flow == flowNone; i-- {
		if (chain[i].op == syntax.AndStmt) != (r.status == 0) {
			continue
		}
		if i > 0 {
			r.noErrExit++
		}
		r.stmt(chain[i].y)
		if i > 0 {
			r.noErrExit--
		}
	}
}

// bare returns a statement's binary command when nothing else is on it and it is
// (or is not) a pipe.
func bare(s *syntax.Stmt, pipe bool) (*syntax.BinaryCmd, bool) {
	b, ok := s.Cmd.(*syntax.BinaryCmd)
	if !ok || s.Negated || s.Background || s.Disown || len(s.Redirs) > 0 {
		return nil, false
	}
	return b, (b.Op == syntax.Pipe || b.Op == syntax.PipeAll) == pipe
}

// ifClause runs if, elif and else.
func (r *runner) ifClause(c *syntax.IfClause) {
	for ; c != nil; c = c.Else {
		if len(c.Cond) > 0 {
			if !r.condition(c.Cond) {
				if r.flow != flowNone {
					return
				}
				continue
			}
		}
		if r.flow == flowNone {
			r.stmts(c.Then)
		}
		return
	}
	r.status = 0
}

// condition runs a list for its truth.
func (r *runner) condition(list []*syntax.Stmt) bool {
	r.noErrExit++
	r.stmts(list)
	r.noErrExit--
	return r.flow == flowNone && r.status == 0
}

// looped runs a loop's body and reports whether the loop goes on.
func (r *runner) looped(body []*syntax.Stmt) bool {
	r.stmts(body)
	switch r.flow {
	case flowBreak, flowContinue:
		if r.flowCount > 1 {
			r.flowCount--
			return false
		}
		goOn := r.flow == flowContinue
		r.flow = flowNone
		return goOn
	}
	return r.flow == flowNone
}

func (r *runner) while(c *syntax.WhileClause) {
	r.loops++
	defer func() { r.loops-- }()
	status := 0
	for r.step() {
		ok := r.condition(c.Cond)
		if r.flow != flowNone {
			if (r.flow == flowBreak || r.flow == flowContinue) && r.looped(nil) {
				continue
			}
			return
		}
		if ok == c.Until {
			break
		}
		goOn := r.looped(c.Do)
		status = r.status
		if !goOn {
			break
		}
	}
	if r.flow == flowNone {
		r.status = status
	}
}

func (r *runner) forClause(c *syntax.ForClause) {
	if c.Select {
		r.errorf("select is not supported in the simulated tier")
		r.status = 2
		return
	}
	r.loops++
	defer func() { r.loops-- }()
	switch l := c.Loop.(type) {
	case *syntax.WordIter:
		items := r.params
		if l.InPos.IsValid() {
			items = r.fields(l.Items)
		}
		r.status = 0
		if r.flow != flowNone {
			return
		}
		for _, item := range items {
			if !r.step() || !r.set(l.Name.Value, item) || !r.looped(c.Do) {
				return
			}
		}
	case *syntax.CStyleLoop:
		r.cLoop(l, c.Do)
	}
}

func (r *runner) cLoop(l *syntax.CStyleLoop, body []*syntax.Stmt) {
	if l.Init != nil {
		if _, ok := r.arith(l.Init); !ok {
			r.status = 1
			return
		}
	}
	r.status = 0
	for r.step() {
		if l.Cond != nil {
			n, ok := r.arith(l.Cond)
			if !ok {
				r.status = 1
				return
			}
			if n == 0 {
				return
			}
		}
		if !r.looped(body) {
			return
		}
		if l.Post != nil {
			if _, ok := r.arith(l.Post); !ok {
				r.status = 1
				return
			}
		}
	}
}

func (r *runner) caseClause(c *syntax.CaseClause) {
	subject := r.text(c.Word)
	r.status = 0
	through := false
	for _, item := range c.Items {
		if r.flow != flowNone {
			return
		}
		if !through {
			hit := false
			for _, p := range item.Patterns {
				if hit = r.match(r.pattern(p), subject); hit {
					break
				}
			}
			if !hit {
				continue
			}
		}
		r.stmts(item.Stmts)
		switch item.Op {
		case syntax.Fallthrough:
			through = true
		case syntax.Resume, syntax.ResumeKorn:
			through = false
		default:
			return
		}
	}
}

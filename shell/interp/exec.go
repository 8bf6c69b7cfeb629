package interp

import (
	"strings"

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
	if !r.step() || r.opts.noexec && !r.interactive {
		return
	}
	if l := s.Pos().Line(); l > 0 {
		r.line = uint(int(l) + r.lineBase)
	}
	if s.Background || s.Disown {
		r.background(s)
		return
	}
	if s.Negated {
		r.noErrExit++
	}
	mark := len(r.substFDs)
	hadErr := len(r.traps) > 0 && r.traps[trapERR] != ""
	switch c := s.Cmd.(type) {
	case nil:
		r.simple(s.Redirs, nil)
	case *syntax.CallExpr:
		r.simple(s.Redirs, c)
	default:
		r.redirected(s.Redirs, func() { r.command(s.Cmd) })
	}
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
	if r.status != 0 && r.flow == flowNone {
		r.checkErrExit(s, hadErr)
	}
}

// redirected runs fn with redirections, then restores the descriptors.
func (r *runner) redirected(redirs []*syntax.Redirect, fn func()) {
	if len(redirs) == 0 {
		fn()
		return
	}
	undo, ok := r.redirect(redirs)
	if ok {
		fn()
	} else if r.flow == flowNone {
		if r.status = 1; r.noErrExit == 0 {
			r.runTrap(trapERR)
			if r.opts.errexit && r.flow == flowNone {
				r.flow = flowExit
			}
		}
	}
	r.undoRedirects(undo)
}

// checkErrExit runs the ERR trap, and ends the shell under set -e, if a failed statement counts for
// them.
func (r *runner) checkErrExit(s *syntax.Stmt, hadErr bool) {
	if r.noErrExit > 0 {
		return
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr, *syntax.Subshell, *syntax.ArithmCmd, *syntax.TestClause, *syntax.DeclClause, *syntax.LetClause, nil:
	case *syntax.BinaryCmd:
		if c.Op != syntax.Pipe && c.Op != syntax.PipeAll {
			return
		}
	case *syntax.TimeClause, *syntax.CoprocClause:
	default:
		return
	}
	if hadErr { // a trap set by the command itself does not apply to it
		r.runTrap(trapERR)
	}
	if r.opts.errexit && r.flow == flowNone {
		r.flow = flowExit
	}
}

// command runs a command of any kind except simple commands.
func (r *runner) command(c syntax.Command) {
	switch c := c.(type) {
	case *syntax.Block:
		r.stmts(c.Stmts)
	case *syntax.Subshell:
		r.now(c)
		r.subshell(func(s *runner) { s.stmts(c.Stmts) })
		r.setPipeStatus(r.status)
	case *syntax.BinaryCmd:
		r.binary(c)
	case *syntax.IfClause:
		r.ifClause(c)
	case *syntax.WhileClause:
		r.while(c)
	case *syntax.ForClause:
		r.forClause(c)
	case *syntax.CaseClause:
		if r.now(c); r.debug() {
			r.caseClause(c)
		}
	case *syntax.FuncDecl:
		r.define(c)
	case *syntax.ArithmCmd:
		if r.now(c); !r.debug() {
			return
		}
		n, ok := r.arithNamed("((", c.X)
		if r.flow != flowNone {
			return
		}
		if r.opts.xtrace {
			r.writeTrace("(( " + arithSource(c.X) + " ))")
		}
		r.status = boolStatus(ok && n != 0)
		r.setPipeStatus(r.status)
	case *syntax.LetClause:
		for _, x := range c.Exprs {
			n, ok := r.arithNamed("let", x)
			r.status = boolStatus(ok && n != 0)
		}
	case *syntax.TestClause:
		if r.now(c); !r.debug() {
			return
		}
		if r.opts.xtrace {
			r.writeTrace("[[ " + testSource(c.X) + " ]]")
		}
		r.testClause(c)
		r.setPipeStatus(r.status)
	case *syntax.DeclClause:
		if r.now(c); !r.debug() {
			return
		}
		r.decl(c)
		r.setPipeStatus(r.status)
	case *syntax.TimeClause:
		r.time(c)
	case *syntax.CoprocClause:
		r.startCoproc(c)
	default:
		r.errorf("this kind of command is not supported in the simulated tier")
		r.status = 2
	}
}

// now records the running command for BASH_COMMAND. Commands of traps are not recorded.
func (r *runner) now(c syntax.Node) {
	if len(r.running) == 0 {
		r.current, r.currentTo = c, nil
	}
}

// forked runs a statement in a process that was made for it. A subshell needs no second process.
func (r *runner) forked(s *syntax.Stmt) {
	if c, ok := s.Cmd.(*syntax.Subshell); ok && !s.Negated && !s.Background && !s.Disown {
		r.redirected(s.Redirs, func() { r.stmts(c.Stmts) })
		return
	}
	if _, ok := s.Cmd.(*syntax.CallExpr); ok && !s.Negated && !r.opts.monitor {
		r.alone = true
	}
	r.stmt(s)
}

// define makes a function.
func (r *runner) define(c *syntax.FuncDecl) {
	name := c.Name.Value
	switch {
	case strings.HasPrefix(name, badName):
		r.errorf("`%s': not a valid identifier", unhex(name[len(badName):]))
		r.status = 1
		return
	case !compound(c.Body):
		r.errorf("syntax error near unexpected token `%s'", firstWord(c.Body))
		r.status, r.flow = 2, flowExit
		return
	case r.opts.posix && specialBuiltins[name]:
		r.errorf("`%s': is a special builtin", name)
		if r.status = 2; !r.interactive {
			r.flow = flowExit
		}
		return
	}
	if f := r.funcs[name]; f != nil && f.readonly {
		r.errorf("%s: readonly function", name)
		r.status = 1
		return
	}
	r.ownFuncs()
	r.funcs[name] = &function{body: c.Body, file: r.sourceName(), line: uint(int(c.Pos().Line()) + r.lineBase), lineBase: r.lineBase, exported: r.opts.allexport}
	r.pay(int(c.End().Offset()-c.Pos().Offset()) * 8)
	r.status = 0
}

func boolStatus(ok bool) int {
	if ok {
		return 0
	}
	return 1
}

// subshell runs fn in a forked shell and adopts its status.
func (r *runner) subshell(fn func(*runner)) {
	if r.term != nil && r.opts.monitor {
		r.foreground("( … )", fn)
		return
	}
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
		if !ended { // a panic is passing; see contain
			s.end(1)
		}
	}()
	fn(s)
	s.end(s.status)
	ended = true
	r.status = s.p.code
	r.childSignaled(s.p)
}

func (r *runner) forkFailed(err error) {
	r.errorf("fork: %s", errText(err))
	r.status = 254
}

// binary runs chains of &&, || and |. Its recursion does not grow with the length of the chain.
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

// bare returns the binary command of a statement that has nothing else. With pipe it must be a
// pipe, without pipe it must not be one.
func bare(s *syntax.Stmt, pipe bool) (*syntax.BinaryCmd, bool) {
	b, ok := s.Cmd.(*syntax.BinaryCmd)
	if !ok || s.Negated || s.Background || s.Disown || len(s.Redirs) > 0 {
		return nil, false
	}
	return b, (b.Op == syntax.Pipe || b.Op == syntax.PipeAll) == pipe
}

// compound reports whether a statement can be the body of a function.
func compound(s *syntax.Stmt) bool {
	if s == nil || s.Negated || s.Background {
		return false
	}
	switch s.Cmd.(type) {
	case *syntax.CallExpr, *syntax.FuncDecl, *syntax.DeclClause, *syntax.BinaryCmd, *syntax.TimeClause, *syntax.CoprocClause, *syntax.LetClause, nil:
		return false
	}
	return true
}

// firstWord returns the first word of a statement.
func firstWord(s *syntax.Stmt) string {
	if s == nil {
		return "newline"
	}
	word, _, _ := strings.Cut(nodeText(s), " ")
	return word
}

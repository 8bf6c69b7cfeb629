package interp

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
	"mvdan.cc/sh/v3/syntax"
)

// command is a builtin or a tool: it does its work and returns its exit status.
type command func(c *call) int

// call is one run of a command.
type call struct {
	r    *runner
	name string
	args []string // without the name
	env  []string // the environment of a tool
	in   io.Reader
	out  io.Writer
	err  io.Writer

	unwritten bool // writing its output failed
}

// fdReader and fdWriter give a command access to a descriptor.
type fdReader struct {
	ctx context.Context
	d   *desc
}

func (f fdReader) Read(b []byte) (int, error) {
	if f.d == nil {
		return 0, syscall.EBADF
	}
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.d.Read(f.ctx, b)
}

// Seek moves the position in a file. Other streams return an error.
func (f fdReader) Seek(offset int64, whence int) (int64, error) {
	if f.d != nil {
		return openFile(f).Seek(offset, whence)
	}
	return 0, syscall.EBADF
}

// Stat describes what is read.
func (f fdReader) Stat() (vfs.Info, error) {
	if f.d != nil {
		return openFile(f).Stat()
	}
	return vfs.Info{}, syscall.EBADF
}

type fdWriter struct {
	r *runner
	n int
}

func (f fdWriter) Write(b []byte) (int, error) {
	if err := f.r.ctx.Err(); err != nil {
		return 0, err
	}
	if err := f.r.writeFD(f.n, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// newCall makes a call of a command with the runner's descriptors.
func (r *runner) newCall(name string, args []string) *call {
	if r.std == nil || r.std[0].r != r { // a fork has its parent's
		r.std = &[2]fdWriter{{r, 1}, {r, 2}}
	}
	return &call{r: r, name: name, args: args, in: fdReader{r.ctx, r.fds.get(0)}, out: &r.std[0], err: &r.std[1]}
}

// simple runs a simple command. The order is bash's: words, assignments, the trace,
// redirections, the command.
func (r *runner) simple(redirs []*syntax.Redirect, c *syntax.CallExpr) {
	alone := r.alone
	r.alone = false
	if c != nil {
		if r.now(c); len(r.running) == 0 {
			r.currentTo = redirs
		}
	}
	if r.debugged {
		r.debugged = false
	} else if len(r.traps) > 0 && c != nil && !r.debug() {
		return
	}
	r.substStatus = 0
	var args []string
	if c != nil {
		if args = r.fields(c.Args); r.flow != flowNone {
			return
		}
	}
	if len(args) == 0 {
		r.assignments(redirs, c)
		return
	}
	if r.opts.keyword {
		args, c = r.keywordArgs(args, c)
	}
	if len(c.Assigns) > 0 {
		if r.opts.posix && specialBuiltins[args[0]] && r.funcs[args[0]] == nil {
			if !r.assignLasting(c.Assigns) {
				return
			}
		} else {
			r.pushScope(false)
			defer r.popScope()
			if r.assignTemp(c.Assigns); r.flow != flowNone {
				return
			}
		}
		r.traceAssigns(c.Assigns)
	}
	r.trace(args)
	if len(redirs) > 0 && r.changesIn(redirs) && r.isProgram(args[0]) {
		r.subshell(func(s *runner) {
			done, ok := s.redirect(redirs)
			if s.status = 1; ok {
				s.run(args)
			}
			s.undoRedirects(done)
		})
		r.lastArg = args[len(args)-1]
		r.setPipeStatus(r.status)
		return
	}
	var done []undo
	if len(redirs) > 0 {
		var ok bool
		if done, ok = r.redirect(redirs); !ok {
			r.notRedirected(done, args[0])
			return
		}
	}
	if alone && r.isProgram(args[0]) && r.funcs["command_not_found_handle"] == nil {
		r.execing = true
	}
	r.run(args)
	if r.keepFDs {
		r.keepFDs = false
		keepRedirects(done)
	} else {
		r.undoRedirects(done)
	}
	r.lastArg = args[len(args)-1]
	r.setPipeStatus(r.status)
	if r.p.attention.Load() && r.flow == flowNone {
		r.attend()
	}
}

// assignLasting makes the assignments before a special builtin of POSIX. They remain after it.
func (r *runner) assignLasting(assigns []*syntax.Assign) bool {
	for _, a := range assigns {
		if !r.assign(a) || r.flow != flowNone {
			r.abort(1)
			return false
		}
	}
	return true
}

// notRedirected ends a command after a redirection failed.
func (r *runner) notRedirected(done []undo, command string) {
	r.undoRedirects(done)
	if r.flow != flowNone {
		return
	}
	if r.status = 1; r.opts.posix && specialBuiltins[command] && !r.interactive {
		r.flow = flowExit
	}
	r.setPipeStatus(1)
}

// assignments runs a command without a name: its assignments, then its redirections.
func (r *runner) assignments(redirs []*syntax.Redirect, c *syntax.CallExpr) {
	status := 0
	if c != nil {
		for _, a := range c.Assigns {
			if !r.assign(a) {
				status = 1
				if r.flow == flowNone {
					if r.discard(); r.opts.posix && !r.interactive {
						r.abortExpansion()
						status = r.status
					}
				}
				break
			}
			if r.opts.xtrace {
				r.traceAssigns([]*syntax.Assign{a})
			}
		}
		if len(c.Args) == 0 {
			r.lastArg = ""
		}
	}
	if r.flow != flowNone {
		r.status = max(r.status, status)
		return
	}
	if len(redirs) > 0 {
		done, ok := r.redirect(redirs)
		r.undoRedirects(done)
		if !ok {
			status = 1
		}
	}
	if r.flow == flowNone {
		if r.status = r.substStatus; status != 0 {
			r.status = status
		}
		r.setPipeStatus(r.status)
	}
}

// keywordArgs removes the assignments from the arguments, for set -k.
func (r *runner) keywordArgs(args []string, c *syntax.CallExpr) ([]string, *syntax.CallExpr) {
	rest, with := args[:1:1], *c
	for _, a := range args[1:] {
		if name, value, ok := strings.Cut(a, "="); ok && isName(name) {
			with.Assigns = append(slices.Clip(with.Assigns), &syntax.Assign{Name: &syntax.Lit{Value: name},
				Value: &syntax.Word{Parts: []syntax.WordPart{&syntax.SglQuoted{Value: value}}}})
			continue
		}
		rest = append(rest, a)
	}
	return rest, &with
}

// specialBuiltins are the special builtins of POSIX. In POSIX mode they are found before functions,
// and assignments before them remain.
var specialBuiltins = map[string]bool{".": true, ":": true, "break": true, "continue": true, "eval": true, "exec": true, "exit": true,
	"export": true, "readonly": true, "return": true, "set": true, "shift": true, "source": true, "times": true, "trap": true, "unset": true}

// trace prints a command under set -x.
func (r *runner) trace(args []string) {
	if !r.opts.xtrace {
		return
	}
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = quoteTrace(a)
	}
	r.writeTrace(strings.Join(quoted, " "))
}

// writeTrace writes a line of the trace to BASH_XTRACEFD, or to standard error if that is not set.
func (r *runner) writeTrace(s string) {
	line := r.ps4() + s + "\n"
	if fd := r.str("BASH_XTRACEFD"); fd != "" {
		if n, err := strconv.Atoi(fd); err == nil && r.fds.get(n) != nil {
			r.writeFD(n, []byte(line))
			return
		}
	}
	r.writeErr(line)
}

// ps4 returns the prefix of a trace line. Its first character is repeated once for each level of
// substitution and eval.
func (r *runner) ps4() string {
	ps, ok := r.get("PS4")
	if !ok || ps == "" {
		return ""
	}
	if strings.ContainsAny(ps, "$`\\") {
		trace := r.opts.xtrace
		r.opts.xtrace = false
		status := r.status
		ps = r.expandPrompt(ps)
		r.opts.xtrace, r.status = trace, status
	}
	_, n := utf8.DecodeRuneInString(ps)
	return strings.Repeat(ps[:n], r.traceDepth) + ps
}

func (r *runner) traceAssigns(as []*syntax.Assign) {
	if !r.opts.xtrace {
		return
	}
	for _, a := range as {
		switch {
		case a.Name == nil:
		case a.Array != nil:
			r.writeTrace(nodeText(a))
		case a.Index != nil:
			r.writeTrace(a.Name.Value + "[" + arithSource(a.Index) + "]=" + quoteTrace(r.elementText(a)))
		default:
			v := r.str(a.Name.Value)
			op := "="
			if a.Append {
				op = "+="
				if a.Value != nil {
					if w := a.Value.Lit(); w != "" {
						v = w
					}
				}
			}
			r.writeTrace(a.Name.Value + op + quoteTrace(v))
		}
	}
}

// elementText returns the new value of an element.
func (r *runner) elementText(a *syntax.Assign) string {
	v := r.lookup(a.Name.Value)
	sub, _ := r.index(v, a.Index)
	s, _ := r.elementOf(a.Name.Value, v, sub)
	return s
}

// builtin returns a builtin, unless it was disabled.
func (r *runner) builtin(name string) (command, bool) {
	if r.disabled[name] {
		return nil, false
	}
	b, ok := r.m.builtins[name]
	return b, ok
}

// isProgram reports whether a command is neither a function nor a builtin.
func (r *runner) isProgram(name string) bool {
	if r.funcs[name] != nil {
		return false
	}
	_, ok := r.builtin(name)
	return !ok
}

// run runs an expanded command, and sets the status.
func (r *runner) run(args []string) {
	name := args[0]
	if f, ok := r.funcs[name]; ok && !(r.opts.posix && specialBuiltins[name]) {
		r.function(name, f, args[1:])
		return
	}
	if b, ok := r.builtin(name); ok {
		r.runBuiltin(b, name, args[1:])
		return
	}
	r.external(args)
}

func (r *runner) runBuiltin(b command, name string, args []string) {
	c := r.newCall(name, args)
	status := b(c)
	if c.unwritten && status == 0 {
		status = 1
	}
	if r.flow == flowNone || r.flow == flowBreak || r.flow == flowContinue {
		r.status = status
	}
	r.killed()
}

// external runs a program. With job control the program is a job.
func (r *runner) external(args []string) {
	if r.term != nil && r.opts.monitor {
		r.foreground(strings.Join(args, " "), func(s *runner) {
			s.status = s.runTool(args, s.programEnv)
		})
		return
	}
	r.status = r.runTool(args, r.programEnv)
	if len(r.traps) > 0 && r.p.caught.Load()&sigBit(sigCHLD) != 0 {
		r.p.childChanged()
	}
	r.killed()
}

// killed ends the shell if a signal arrived while a command ran.
func (r *runner) killed() {
	if r.ctx.Err() != nil {
		r.flow, r.status = flowExit, 128+signalOf(r.ctx)
	}
}

// function is a defined shell function.
type function struct {
	body     *syntax.Stmt
	file     string // where it was defined
	line     uint
	lineBase int // of its statements
	exported bool
	readonly bool
	traced   bool // declare -t: inherits DEBUG and RETURN traps
}

// frame is a running function or sourced script.
type frame struct {
	name     string // of the function, or "source"
	file     string // the file of its text, for BASH_SOURCE
	line     uint   // the line of the call, for BASH_LINENO
	sourced  bool
	params   []string // its arguments
	debugged bool     // it was called under extdebug
	own      bool     // a sourced script with its own arguments
}

// inFunc reports whether a function is running. local is allowed only then.
func (r *runner) inFunc() bool {
	for _, c := range r.calls {
		if !c.sourced {
			return true
		}
	}
	return false
}

// sourceName returns the file of the running text, as in BASH_SOURCE.
func (r *runner) sourceName() string {
	if n := len(r.calls); n > 0 {
		return r.calls[n-1].file
	}
	if r.file != "" {
		return r.file
	}
	if r.fromArg {
		return "environment"
	}
	return "main"
}

// function calls a shell function.
func (r *runner) function(name string, f *function, args []string) {
	if !r.enter() {
		return
	}
	if most, err := strconv.Atoi(r.str("FUNCNEST")); err == nil && most > 0 && len(r.calls) >= most {
		r.errorf("%s: maximum function nesting level exceeded (%d)", name, most)
		r.depth--
		r.abort(1)
		return
	}
	params, loops, line, base := r.params, r.loops, r.line, r.lineBase
	r.params, r.loops, r.lineBase = args, 0, f.lineBase
	r.pushScope(true)
	r.calls = append(r.calls, frame{name: name, file: f.file, line: r.line, params: args, debugged: r.opts.extdebug})
	held := r.heldTraps(f.traced)
	goOn := true
	if len(r.traps) > 0 && r.traps[trapDEBG] != "" {
		r.line = f.line
		goOn = r.debug()
	}
	if goOn {
		r.stmt(f.body)
	}
	status, returned := r.status, r.flow == flowReturn
	if returned {
		r.flow = flowNone
	}
	if len(r.traps) > 0 && r.flow == flowNone {
		r.line = line
		if returned { // the trap does not see the status of return
			r.status = r.beforeReturn
		}
		r.runTrap(trapRET)
		if r.flow == flowNone {
			r.status = status
		}
		if r.flow == flowReturn {
			r.flow = flowNone
		}
	}
	r.returnTraps(held)
	r.calls = r.calls[:len(r.calls)-1]
	r.popScope()
	r.params, r.loops, r.line, r.lineBase = params, loops, line, base
	r.depth--
}

// runTool finds and runs a program. It calls environ only if the program needs its environment.
func (r *runner) runTool(args []string, environ func() []string) int {
	if f, ok := r.funcs["command_not_found_handle"]; ok && !strings.Contains(args[0], "/") && r.lookPath(args[0]) == "" {
		r.subshell(func(s *runner) { s.function("command_not_found_handle", f, args) })
		return r.status
	}
	file, status := r.which(args[0])
	if status != 0 {
		return status
	}
	r.ranFile = file
	return r.execFile(file, args, environ, 0)
}

// programEnv returns the environment of a program that the shell itself starts. The variable _
// holds the program's name.
func (r *runner) programEnv() []string { return append(r.environ(), "_="+r.ranFile) }

// which finds a program as the shell does. When the status is not 0, it has written a message.
func (r *runner) which(name string) (string, int) {
	if strings.Contains(name, "/") {
		full := r.abs(name)
		i, err := r.view.Stat(full)
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist):
			r.errorf("%s: No such file or directory", name)
			return "", 127
		case err != nil:
			r.errorf("%s: %s", name, errText(err))
			return "", 126
		case i.Mode.IsDir():
			r.errorf("%s: Is a directory", name)
			return "", 126
		case r.view.Access(full, vfs.MayExec) != nil:
			r.errorf("%s: Permission denied", name)
			return "", 126
		}
		return full, 0
	}
	if file := r.remembered(name); file != "" {
		return file, 0
	}
	r.errorf("%s: command not found", name)
	return "", 127
}

// execFile runs a program file, which is one of the machine's tools or a script.
func (r *runner) execFile(file string, args []string, environ func() []string, nesting int) int {
	f, err := r.view.Open(file)
	if err != nil {
		r.errorf("%s: %s", args[0], errText(err))
		return 126
	}
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head) // shorter files are fine
	_ = f.Close()
	text := string(head[:n])
	switch {
	case strings.HasPrefix(text, tool.ProgramMark):
		name, _, _ := strings.Cut(text[len(tool.ProgramMark):], "\n")
		run, added := r.m.commands[name]
		own, ok := r.m.tools[name]
		if !added && !ok && r.m.lookup != nil {
			run = r.m.lookup(name)
			added = run != nil
		}
		if !ok && !added {
			r.errorf("%s: no such tool in this machine", name)
			return 127
		}
		if !r.enter() {
			return 126
		}
		defer func() { r.depth-- }()
		if added {
			return r.runCommand(run, args, environ())
		}
		c := r.newCall(args[0], args[1:])
		c.env = environ()
		return own(c)
	case strings.HasPrefix(text, "#!"):
		return r.execScript(file, text, args, environ, nesting)
	case strings.IndexByte(text, 0) >= 0:
		r.errorf("%s: cannot execute binary file: Exec format error", args[0])
		return 126
	}
	return r.spawnShell(shellRun{name: args[0], file: file, params: args[1:], env: environ()})
}

// changesIn reports whether a here-document or here-string changes variables or may fail. For a
// program, such an expansion runs in the program's process.
func (r *runner) changesIn(redirs []*syntax.Redirect) bool {
	for _, rd := range redirs {
		for _, w := range []*syntax.Word{rd.Hdoc, rd.Word} {
			if w == nil {
				continue
			}
			for _, p := range w.Parts {
				switch p := p.(type) {
				case *syntax.ArithmExp:
					return true
				case *syntax.ParamExp:
					if r.opts.nounset && rd.Hdoc != nil || p.Exp != nil && (p.Exp.Op == syntax.AssignUnset || p.Exp.Op == syntax.AssignUnsetOrNull) {
						return true
					}
				}
			}
		}
	}
	return false
}

package interp

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/syntax"
)

// execScript runs a script through the interpreter that its first line names.
func (r *runner) execScript(file, text string, args []string, environ func() []string, nesting int) int {
	line, _, _ := strings.Cut(text[2:], "\n")
	interp, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
	if i, err := r.view.Stat(r.abs(interp)); err != nil || i.Mode.IsDir() || nesting > 3 {
		switch {
		case err != nil:
			r.errorf("%s: %s: bad interpreter: %s", args[0], strings.TrimSpace(interp), errText(err))
			if errors.Is(err, fs.ErrNotExist) {
				return 127
			}
		case nesting > 3:
			r.errorf("%s: %s: bad interpreter: Too many levels of symbolic links", args[0], interp)
		default:
			r.errorf("%s: %s: bad interpreter: Permission denied", args[0], interp)
		}
		return 126
	}
	next := []string{interp}
	if arg = strings.TrimSpace(arg); arg != "" {
		next = append(next, arg)
	}
	if strings.Contains(args[0], "/") {
		file = args[0]
	}
	return r.execFile(interp, append(append(next, file), args[1:]...), environ, nesting+1)
}

// shellRun is a new shell inside this process: bash FILE, bash -c, a script.
type shellRun struct {
	name        string // $0
	file        string // script to read, or
	src         string // what to run
	params      []string
	env         []string
	opts        options
	login       bool
	stdin       bool // read the script from standard input
	interactive bool
	noProfile   bool
	noRC        bool
	rc          string
	fromArg     bool // -c
}

// spawnShell runs a new shell with a fresh state in a new process.
func (r *runner) spawnShell(run shellRun) int {
	if run.file != "" {
		src, status := r.scriptText(run.file)
		if status != 0 {
			return status
		}
		run.src = src
	}
	if r.execing {
		return r.takePlace(run)
	}
	s, err := r.fork(true)
	if err != nil {
		r.forkFailed(err)
		return 254
	}
	s.renew(run.env)
	s.self, s.ppid = s.p.pid, r.p.pid
	if s.depth > s.m.limits.Depth {
		s.errorf("maximum nesting level of %d exceeded", s.m.limits.Depth)
		s.end(1)
		return 1
	}
	s.line = 0
	s.begin(run)
	s.end(s.status)
	return s.p.code
}

// renew resets a shell's state to that of a new shell.
func (s *runner) renew(env []string) {
	s.freshScopes(len(env))
	s.hidden, s.funcsShared, s.completions, s.binds = nil, false, nil, nil
	s.pipeStatus = s.pipeStatus[:0]
	for sig, body := range s.traps {
		if body != "" || sig > 64 {
			delete(s.traps, sig)
		}
	}
	s.funcs, s.oldTraps = map[string]*function{}, nil
	s.fixedSigs = s.p.ignored.Load()
	s.aliases, s.hashed, s.disabled, s.dirs = nil, nil, nil, nil
	s.calls, s.loops, s.noErrExit, s.flow, s.running = nil, 0, 0, flowNone, nil
	s.lineBase, s.traceDepth, s.subshells, s.lastBg, s.lastArg = 0, 0, 0, 0, ""
	s.hist, s.topDepth, s.ownArgs = history{}, 0, nil
	s.execing, s.exiting, s.alone = false, false, false
	s.clock = s.m.now()
	s.importEnv(env)
}

// takePlace runs a new shell in the process of this one. The process ends with the new shell.
// Afterwards it restores the state that calls in progress still need.
func (r *runner) takePlace(run shellRun) int {
	if !r.enter() {
		return 1
	}
	saved := *r
	r.p.caught.Store(0)
	r.p.pending.Store(0)
	r.renew(run.env)
	r.self, r.ppid = r.p.pid, r.p.ppid
	r.jobs, r.jobMarks, r.ended, r.exitDone = nil, [2]*job{}, nil, false
	r.line = 0
	r.begin(run)
	r.runExitTrap()
	r.calls, r.scopes, r.params, r.running = saved.calls, saved.scopes, saved.params, saved.running
	r.loops, r.line, r.lineBase, r.depth, r.noErrExit = saved.loops, saved.line, saved.lineBase, saved.depth-1, saved.noErrExit
	r.traps, r.funcs, r.exitDone = nil, saved.funcs, true
	r.flow, r.exiting = flowExit, true
	return r.status
}

// scriptText reads the script file that is an argument of a shell.
func (r *runner) scriptText(file string) (string, int) {
	full := r.abs(file)
	i, err := r.view.Stat(full)
	if err == nil && i.Mode.IsDir() {
		r.writeErr(file + ": " + file + ": Is a directory\n")
		return "", 126
	}
	text := ""
	if err == nil {
		text, err = r.readFile(full)
	}
	switch {
	case err != nil && errors.Is(err, fs.ErrNotExist):
		r.writeErr(r.name + ": " + file + ": No such file or directory\n")
		return "", 127
	case err != nil:
		r.writeErr(r.name + ": " + file + ": " + errText(err) + "\n")
		return "", 126
	}
	first, _, _ := strings.Cut(text[:min(len(text), 80)], "\n")
	if strings.IndexByte(first, 0) >= 0 {
		r.writeErr(file + ": " + file + ": cannot execute binary file\n")
		return "", 126
	}
	return text, 0
}

// script parses and runs source text.
func (r *runner) script(src string) {
	if !r.enter() {
		return
	}
	defer func() { r.depth-- }()
	cost := len(src) * 16 // the parsed form, roughly
	r.pay(cost)
	defer r.p.charge(-int64(cost))
	if r.flow != flowNone {
		return
	}
	if r.byLine() {
		r.lines(src)
		return
	}
	if !r.opts.extglob && strings.Contains(src, "!(") {
		src = r.negations(src)
	}
	stmts, err := parse(src)
	if err != nil && strings.Contains(src, "alias") {
		r.lines(src) // an alias may make it right
		return
	}
	if err != nil {
		stmts, err = r.parseRest(src, stmts, err)
	}
	discarded := uint(0) // the last line of a command that was discarded
	groups := hasGroups(src)
	for i, s := range stmts {
		if groups && !r.opts.extglob && hasExtGlob(s) {
			r.line = uint(int(s.Pos().Line()) + r.lineBase)
			r.parseFailed(errExtGlob(r.line))
			return
		}
		if discarded > 0 && s.Pos().Line() <= discarded {
			discarded = max(discarded, s.End().Line())
			continue
		}
		r.stmt(s)
		if r.flow == flowDiscard && r.p.pid == r.shellPID() {
			if r.flow, discarded = flowNone, s.End().Line(); r.opts.errexit {
				r.flow = flowExit
			}
		}
		if r.flow != flowNone {
			return
		}
		if r.byLine() && i+1 < len(stmts) && stmts[i+1].Pos().Line() > s.End().Line() {
			at := lineStart(src, stmts[i+1].Pos().Line())
			base := r.lineBase
			r.lineBase += strings.Count(src[:at], "\n")
			r.lines(src[at:])
			r.lineBase = base
			return
		}
	}
	if err != nil && r.flow == flowNone {
		r.parseFailed(err)
	}
}

// lineStart returns the start of a line in a text. Lines count from 1.
func lineStart(src string, line uint) int {
	at := 0
	for ; line > 1; line-- {
		n := strings.IndexByte(src[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
	}
	return at
}

// scriptOrNothing is script, but a text without commands succeeds.
func (r *runner) scriptOrNothing(src string) {
	steps := r.steps
	if r.script(src); r.steps == steps && r.status != 2 {
		r.status = 0
	}
}

// shellPID returns the pid of a shell that continues after a failed command. It returns 0 in a
// subshell, which does not continue.
func (r *runner) shellPID() int {
	if r.subshells > 0 {
		return 0
	}
	return r.p.pid
}

// byLine reports whether source must be read line by line, because it is echoed or because aliases
// change it.
func (r *runner) byLine() bool {
	return r.opts.verbose || r.opts.expandAliases && len(r.aliases) > 0 || r.remembers()
}

// lines reads source line by line, and runs each command when it is complete.
func (r *runner) lines(src string) {
	base := r.lineBase
	defer func() { r.lineBase = base }()
	for src != "" && r.flow == flowNone {
		n, tries := 0, 0
		var stmts []*syntax.Stmt
		var err error
		for {
			if i := strings.IndexByte(src[n:], '\n'); i >= 0 {
				n += i + 1
			} else {
				n = len(src)
			}
			stmts, err = parse(r.expandAliases(src[:n]))
			tries++
			if n == len(src) && err != nil {
				stmts, err = r.parseRest(src, stmts, err)
			}
			if err == nil && n < len(src) && continued(src[:n]) {
				continue
			}
			if err == nil || !incomplete(err) || n == len(src) || errors.Is(err, errTooDeep) {
				break
			}
			if !r.stepN(n >> 4) { // parsing the same text again costs steps
				return
			}
			for range tries / 64 { // a long construct: add several lines at a time
				if i := strings.IndexByte(src[n:], '\n'); i >= 0 {
					n += i + 1
				}
			}
		}
		if r.opts.verbose {
			text := src[:n]
			if !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
			r.writeErr(text)
		}
		if r.remembers() {
			r.record(src[:n])
		}
		r.stmts(stmts)
		if r.flow == flowDiscard && r.p.pid == r.shellPID() {
			r.flow = flowNone
		}
		if err != nil && r.flow == flowNone {
			r.parseFailed(err)
			return
		}
		r.lineBase += strings.Count(src[:n], "\n")
		src = src[n:]
	}
}

func (r *runner) parseFailed(err error) {
	if errors.Is(err, errTooDeep) || errors.Is(err, errTooLong) {
		r.errorf("%v", err)
	} else {
		name := r.name
		if n := len(r.calls); n > 0 && r.calls[n-1].sourced {
			name = r.calls[n-1].file
		}
		r.writeErr(name + ": " + parseMessage(err) + "\n")
	}
	if !errors.As(err, new(condError)) { // an error in [[ ]] leaves the status unchanged
		r.status = 2
	}
	if r.fromArg && len(r.calls) == 0 && r.p.pid == r.self && r.depth <= 1 {
		r.flow = flowExit
	}
}

// readAll reads a descriptor to its end, and charges its memory to the process until the process
// ends.
func (r *runner) readAll(n int) string {
	c := r.newCall("", nil)
	if n != 0 {
		c.in = fdReader{r.ctx, r.fds.get(n)}
	}
	data, err := c.slurp(c.in)
	if err != nil {
		return ""
	}
	return string(data)
}

// slurp reads everything, and charges the memory as it reads.
func (c *call) slurp(in io.Reader) ([]byte, error) {
	var out []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			c.r.pay(n)
			if c.r.flow != flowNone {
				return nil, syscall.ENOMEM
			}
			out = append(out, buf[:n]...)
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

package sh

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"strings"
	"syscall"
)

// execScript runs a script through the interpreter that its first line names.
func (r *runner) execScript(file, text string, args []string, environ func() []string, nesting int) int {
	line, _, _ := strings.Cut(text[2:], "\n")
	interp, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
	if i, err := r.view.Stat(interp); err != nil || i.Mode.IsDir() || nesting > 3 {
		r.errorf("%s: %s: bad interpreter: No such file or directory", args[0], interp)
		return 126
	}
	next := []string{interp}
	if arg = strings.TrimSpace(arg); arg != "" {
		next = append(next, arg)
	}
	return r.execFile(interp, append(append(next, args[0]), args[1:]...), environ, nesting+1)
}

// shellRun is a new shell inside this process: bash FILE, bash -c, a script.
type shellRun struct {
	name   string // $0
	file   string // script to read, or
	src    string // what to run
	params []string
	env    []string
	opts   options
	login  bool
	stdin  bool // read the script from standard input
}

// spawnShell runs a new shell with a fresh state in a process of its own.
func (r *runner) spawnShell(run shellRun) int {
	if run.file != "" {
		data, err := r.view.ReadFile(r.abs(run.file))
		if err != nil {
			r.errorf("%s: %s", run.file, errText(err))
			if errors.Is(err, fs.ErrNotExist) {
				return 127
			}
			return 126
		}
		run.src = string(data)
	}
	s, err := r.fork(true)
	if err != nil {
		r.forkFailed(err)
		return 254
	}
	s.scopes = []scope{make(scope, len(run.env)+8)}
	s.funcs, s.traps = map[string]*function{}, maps.Clone(s.traps)
	s.calls, s.loops, s.noErrExit, s.flow = nil, 0, 0, flowNone
	s.self, s.ppid = s.p.pid, r.p.pid
	s.opts, s.params, s.inScript = run.opts, run.params, true
	s.name, s.fromArg = run.name, !run.stdin && run.file == ""
	s.importEnv(run.env)
	if s.depth > s.m.limits.Depth {
		s.errorf("maximum nesting level of %d exceeded", s.m.limits.Depth)
		s.end(1)
		return 1
	}
	s.line = 0
	switch {
	case run.stdin && s.ttyOf(0) != nil:
		s.repl(s.ttyOf(0))
	case run.stdin:
		s.script(s.readAll(0))
	default:
		if run.login {
			s.profile()
		}
		s.script(run.src)
	}
	s.end(s.status)
	return s.p.code
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
	stmts, err := parse(src)
	r.stmts(stmts)
	if err != nil && r.flow == flowNone {
		r.parseFailed(err)
	}
}

func (r *runner) parseFailed(err error) {
	if errors.Is(err, errTooDeep) || errors.Is(err, errTooLong) {
		r.errorf("%v", err)
	} else {
		r.writeErr(r.name + ": " + parseMessage(err) + "\n")
	}
	r.status = 2
}

// readAll reads a descriptor to its end, paying for what it holds. What is read is
// given back when the process ends.
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

// slurp reads everything, paying for it as it comes.
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

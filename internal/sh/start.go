package sh

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
	"mvdan.cc/sh/v3/syntax"
)

// Start starts a process. A program that does not exist is an error that is
// fs.ErrNotExist; over the process limit it is EAGAIN.
func (m *Machine) Start(s Spec) (*Process, error) {
	p, err := m.newProc(m.ctx, nil, append([]string{s.Path}, s.Args...))
	if err != nil {
		return nil, fmt.Errorf("fork %s: %w", s.Path, err)
	}
	p.uid = s.UID
	p.tree.tty = s.TTY
	r := newRunner(m, p, vfs.Cred{UID: s.UID, GID: s.GID}, s.Dir, s.Env)
	file, err := r.program(s)
	if err != nil {
		p.finish(127)
		return nil, err
	}
	m.connect(r, s)
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		args := append([]string{s.Path}, s.Args...)
		r.contain(func() {
			if run, ok := r.shellArgs(file, args); ok {
				r.become(run)
				return
			}
			r.status = r.execFile(file, args, func() []string { return s.Env }, 0)
			r.traps = map[int]string{}
		})
		r.contain(r.runExitTrap) // not in end: a panic there would be nobody's
		r.end(r.status)
		if s.TTY != nil {
			s.TTY.hangUp()
		}
	}()
	return &Process{p}, nil
}

// program finds the file that a spec starts.
func (r *runner) program(s Spec) (string, error) {
	if i, err := r.view.Stat(s.Dir); err != nil || !i.Mode.IsDir() {
		return "", &fs.PathError{Op: "chdir", Path: s.Dir, Err: fs.ErrNotExist}
	}
	file := s.Path
	if !strings.Contains(file, "/") {
		if file = r.lookPath(s.Path); file == "" {
			return "", &fs.PathError{Op: "exec", Path: s.Path, Err: errors.New("executable file not found in $PATH")}
		}
	}
	i, err := r.view.Stat(r.abs(file))
	switch {
	case err != nil:
		return "", &fs.PathError{Op: "fork/exec", Path: file, Err: errors.Unwrap(err)}
	case i.Mode.IsDir() || r.view.Access(r.abs(file), vfs.MayExec) != nil:
		return "", &fs.PathError{Op: "fork/exec", Path: file, Err: syscall.EACCES}
	}
	return r.abs(file), nil
}

// connect gives a started process its standard streams.
func (m *Machine) connect(r *runner, s Spec) {
	if s.TTY != nil {
		s.TTY.mu.Lock()
		s.TTY.pgid = r.p.pgid
		if s.TTY.intr == nil {
			s.TTY.intr = func() { _ = m.signal(-r.p.pgid, sigINT, 0) } // gone already is fine
		}
		s.TTY.mu.Unlock()
		d := newDesc(counted{ttyStream{s.TTY}, r.p.tree, m.limits.Output})
		r.fds.set(0, d)
		r.fds.set(1, d.hold())
		r.fds.set(2, d.hold())
		return
	}
	in, out, errs := stream(nullStream{}), stream(nullStream{}), stream(nullStream{})
	if s.Stdin != nil {
		in = readEnd{s.Stdin}
	}
	if s.Out != nil {
		out = counted{writeEnd{s.Out}, r.p.tree, m.limits.Output}
	}
	if s.Err != nil {
		errs = counted{writeEnd{s.Err}, r.p.tree, m.limits.Output}
	}
	r.fds.set(0, newDesc(in))
	r.fds.set(1, newDesc(out))
	r.fds.set(2, newDesc(errs))
}

// shellArgs reports whether a program is the shell, and what it is asked to run.
func (r *runner) shellArgs(file string, args []string) (shellRun, bool) {
	if real, err := r.view.EvalSymlinks(file); err != nil || path.Base(real) != "bash" {
		return shellRun{}, false
	}
	run, err := parseShellArgs(args)
	if err != nil {
		r.writeErr("bash: " + err.Error() + "\n")
		run = shellRun{name: args[0], src: "exit 2"}
	}
	return run, true
}

// parseShellArgs reads bash's own command line.
func parseShellArgs(args []string) (shellRun, error) {
	run := shellRun{name: args[0]}
	command, interactive := false, false
	rest := args[1:]
	for len(rest) > 0 {
		a := rest[0]
		if a == "-" || a == "--" {
			rest = rest[1:]
			break
		}
		if len(a) < 2 || a[0] != '-' && a[0] != '+' {
			break
		}
		rest = rest[1:]
		if strings.HasPrefix(a, "--") {
			switch a {
			case "--login":
				run.login = true
			case "--norc", "--noprofile", "--posix", "--noediting":
			default:
				return run, fmt.Errorf("%s: invalid option", a)
			}
			continue
		}
		for i, l := range a[1:] {
			switch l {
			case 'c':
				command = true
			case 'l':
				run.login = true
			case 'i':
				interactive = true
			case 's':
			case 'o':
				if len(rest) > 0 && i == len(a)-2 {
					if p := run.opts.named(rest[0]); p != nil {
						*p = a[0] == '-'
					}
					rest = rest[1:]
				}
			default:
				p := run.opts.letter(byte(l))
				if p == nil {
					return run, fmt.Errorf("-%c: invalid option", l)
				}
				*p = a[0] == '-'
			}
		}
	}
	switch {
	case command && len(rest) == 0:
		return run, errors.New("-c: option requires an argument")
	case command:
		run.src, run.params = rest[0], rest[1:]
		if len(rest) > 1 {
			run.name, run.params = rest[1], rest[2:]
		}
	case len(rest) > 0:
		run.file, run.params, run.name = rest[0], rest[1:], rest[0]
	default:
		run.stdin = true
	}
	_ = interactive // a shell on a terminal without a command is interactive anyway
	return run, nil
}

// become runs a shell's work in this very process.
func (r *runner) become(run shellRun) {
	r.name, r.params, r.opts = run.name, run.params, run.opts
	r.inScript, r.fromArg = true, !run.stdin && run.file == ""
	if run.login {
		r.profile()
	}
	switch {
	case r.flow != flowNone:
	case run.stdin && r.ttyOf(0) != nil:
		r.repl(r.ttyOf(0))
	case run.stdin:
		r.script(r.readAll(0))
	case run.file != "":
		data, err := r.view.ReadFile(r.abs(run.file))
		if err != nil {
			r.writeErr(r.name + ": " + run.file + ": " + errText(err) + "\n")
			r.status = 127
			return
		}
		r.script(string(data))
	default:
		r.script(run.src)
	}
}

// profile reads what a login shell reads.
func (r *runner) profile() {
	source := func(name string) bool {
		data, err := r.view.ReadFile(name)
		if err == nil {
			r.script(string(data))
		}
		return err == nil
	}
	source("/etc/profile")
	if home := r.str("HOME"); home != "" {
		_ = source(home+"/.bash_profile") || source(home+"/.bash_login") || source(home+"/.profile")
	}
	if r.flow == flowNone {
		r.status, r.line = 0, 0
	}
}

// repl is the interactive shell: prompt, read, run, until end of file or exit.
func (r *runner) repl(t *TTY) {
	r.interactive = true
	for _, sig := range []int{sigINT, sigQUIT, sigTERM} {
		r.p.ignored.Or(1 << uint(sig))
	}
	var cancel context.CancelCauseFunc = func(error) {}
	var broken bool // by ^C since the prompt
	t.mu.Lock()
	t.intr = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		broken = true
		cancel(killedBy{sigINT})
	}
	t.mu.Unlock()
	if r.lookup("PS1") == nil {
		r.set("PS1", `\u@\h:\w\$ `)
	}
	for r.p.ctx.Err() == nil {
		t.mu.Lock()
		cancel(nil)
		r.ctx, cancel = context.WithCancelCause(r.p.ctx)
		broken = false
		t.mu.Unlock()
		r.flow, r.loops, r.noErrExit = flowNone, 0, 0
		stmts, eof := r.readCommand()
		if eof {
			r.writeErr("exit\n")
			break
		}
		r.stmts(stmts)
		t.mu.Lock()
		interrupted := broken
		t.mu.Unlock()
		if r.flow == flowExit && !interrupted && r.exiting {
			break
		}
		if interrupted {
			r.status = 128 + sigINT
		}
	}
	r.ctx = r.p.ctx
	t.mu.Lock()
	cancel(nil)
	t.mu.Unlock()
}

// readCommand prompts and reads until there is a whole command.
func (r *runner) readCommand() (stmts []*syntax.Stmt, eof bool) {
	src := ""
	prompt := r.prompt(r.str("PS1"))
	for {
		r.writeErr(prompt)
		line, err := r.readLine()
		if err != nil && line == "" {
			if r.p.ctx.Err() != nil || r.ctx.Err() == nil {
				return nil, src == "" || r.p.ctx.Err() != nil
			}
			return nil, false // ^C: a new prompt
		}
		src += line
		parsed, perr := parse(src)
		if perr == nil {
			return parsed, false
		}
		if !syntax.IsIncomplete(perr) {
			r.parseFailed(perr)
			return nil, false
		}
		prompt = "> "
	}
}

// readLine reads one line from standard input, byte by byte.
func (r *runner) readLine() (string, error) {
	var b strings.Builder
	in := fdReader{r.ctx, r.fds.get(0)}
	buf := make([]byte, 1)
	for b.Len() < maxSource {
		n, err := in.Read(buf)
		if n > 0 {
			b.WriteByte(buf[0])
			if buf[0] == '\n' {
				return b.String(), nil
			}
		}
		if err != nil {
			return b.String(), err
		}
	}
	return b.String(), nil
}

// prompt expands a prompt's escapes.
func (r *runner) prompt(ps string) string {
	dir := r.str("PWD")
	if home := r.str("HOME"); home != "" && (dir == home || strings.HasPrefix(dir, home+"/")) {
		dir = "~" + dir[len(home):]
	}
	sign := "$"
	if r.cred().UID == 0 {
		sign = "#"
	}
	host, _, _ := strings.Cut(r.m.Hostname(), ".")
	return strings.NewReplacer(`\u`, r.m.UserName(r.cred().UID), `\h`, host, `\H`, r.m.Hostname(), `\w`, dir,
		`\W`, path.Base(dir), `\$`, sign, `\n`, "\n", `\[`, "", `\]`, "", `\e`, "\x1b", `\033`, "\x1b", `\\`, `\`,
		`\s`, "bash", `\t`, r.m.now().Format("15:04:05")).Replace(ps)
}

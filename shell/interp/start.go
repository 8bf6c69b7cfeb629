package interp

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
	"mvdan.cc/sh/v3/syntax"
)

// Start starts a process. The error is fs.ErrNotExist for a program that does not exist, and EAGAIN
// over the limit of processes.
func (m *Machine) Start(s Spec) (*Process, error) {
	if !m.hold() {
		return nil, fmt.Errorf("fork %s: %w", s.Path, syscall.ECANCELED)
	}
	defer m.wg.Done()
	p, err := m.newProc(m.ctx, nil, append([]string{s.Path}, s.Args...))
	if err != nil {
		return nil, fmt.Errorf("fork %s: %w", s.Path, err)
	}
	p.is(p.args, s.UID)
	p.tree.tty = s.TTY
	r := newRunner(m, p, vfs.Cred{UID: s.UID, GID: s.GID}, s.Dir, s.Env)
	file, err := r.program(s)
	if err != nil {
		p.finish(127)
		return nil, err
	}
	m.connect(r, s)
	if m.limits.Wall > 0 {
		p.tree.mu.Lock()
		p.tree.wall = time.AfterFunc(m.limits.Wall, func() {
			p.limit(LimitTime, fmt.Sprintf("over the time limit of %v", m.limits.Wall))
		})
		p.tree.mu.Unlock()
	}
	m.work(p, func() {
		args := append([]string{s.Path}, s.Args...)
		r.contain(func() {
			if run, ok := r.shellArgs(file, args); ok {
				r.become(run)
				return
			}
			r.status = r.execFile(file, args, func() []string { return s.Env }, 0)
			r.traps = nil
		})
		r.contain(r.runExitTrap) // not in end, which doesn't contain a panic
		r.end(r.status)
		if s.TTY != nil {
			s.TTY.hangUp()
		}
	})
	return &Process{p}, nil
}

// program finds the file of the program that a spec names.
func (r *runner) program(s Spec) (string, error) {
	if i, err := r.view.Stat(s.Dir); err != nil || !i.Mode.IsDir() {
		return "", &fs.PathError{Op: "chdir", Path: s.Dir, Err: fs.ErrNotExist}
	}
	file := s.Path
	if !strings.Contains(file, "/") {
		if file = r.lookPath(s.Path); file == "" {
			return "", &fs.PathError{Op: "exec", Path: s.Path, Err: errNotInPath{}}
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
		s.TTY.pgid, s.TTY.shell = r.p.pgid, r.p.pgid
		if s.TTY.intr == nil {
			s.TTY.intr = func(sig int) { _ = m.signal(-s.TTY.group(), sig, 0) } // gone already is fine
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
		s.Stdin.attach(m)
		in = readEnd{s.Stdin}
	}
	if s.Out != nil {
		s.Out.attach(m)
		out = counted{writeEnd{s.Out}, r.p.tree, m.limits.Output}
	}
	if s.Err != nil {
		s.Err.attach(m)
		errs = counted{writeEnd{s.Err}, r.p.tree, m.limits.Output}
	}
	r.fds.set(0, newDesc(in))
	r.fds.set(1, newDesc(out))
	r.fds.set(2, newDesc(errs))
}

// shellArgs reports whether a program is the shell, and reads its arguments.
func (r *runner) shellArgs(file string, args []string) (shellRun, bool) {
	if real, err := r.view.EvalSymlinks(file); err != nil || path.Base(real) != "bash" {
		return shellRun{}, false
	}
	return r.shellRunOf(args), true
}

// shellRunOf reads bash's command line. A wrong one makes a shell that fails.
func (r *runner) shellRunOf(args []string) shellRun {
	run, err := parseShellArgs(args)
	if err != nil {
		r.writeErr(args[0] + ": " + err.Error() + "\n")
		status := "exit 2"
		if errors.Is(err, errShellUsage) {
			status = "exit 0"
		}
		run = shellRun{name: args[0], src: status, fromArg: true, opts: defaultOptions()}
	}
	return run
}

var errShellUsage = errors.New("usage")

// parseShellArgs reads bash's own command line.
func parseShellArgs(args []string) (shellRun, error) {
	p := shellArgs{run: shellRun{name: args[0], opts: defaultOptions()}, rest: args[1:]}
	base := path.Base(args[0])
	if strings.HasPrefix(args[0], "-") {
		p.run.login = true
		base = strings.TrimPrefix(base, "-")
	}
	p.posix = base == "sh" || base == "dash"
	for len(p.rest) > 0 {
		a := p.rest[0]
		if a == "-" || a == "--" {
			p.rest = p.rest[1:]
			break
		}
		if len(a) < 2 || a[0] != '-' && a[0] != '+' {
			break
		}
		p.rest = p.rest[1:]
		read := p.letters
		if strings.HasPrefix(a, "--") {
			read = p.word
		}
		if done, err := read(a); done || err != nil {
			return p.run, err
		}
	}
	return p.finish()
}

// shellArgs is the state of reading bash's own command line.
type shellArgs struct {
	run                   shellRun
	rest                  []string // what has not been read
	posix, command, stdin bool
}

// word reads a long option. done means that no argument must be read after it.
func (p *shellArgs) word(a string) (done bool, err error) {
	run := &p.run
	switch a {
	case "--login":
		run.login = true
	case "--norc":
		run.noRC = true
	case "--noprofile":
		run.noProfile = true
	case "--posix":
		p.posix = true
	case "--verbose":
		run.opts.verbose = true
	case "--noediting", "--debugger", "--restricted", "--pretty-print":
	case "--rcfile", "--init-file":
		if len(p.rest) == 0 {
			return false, fmt.Errorf("%s: option requires an argument", a)
		}
		run.rc, p.rest = p.rest[0], p.rest[1:]
	case "--version":
		run.src, run.fromArg = `printf '%s\n' "GNU bash, version $BASH_VERSION ($MACHTYPE)" "This is a simulated shell that is compatible with it."`, true
		return true, nil
	case "--help":
		run.src, run.fromArg = `printf '%s\n' "GNU bash, version $BASH_VERSION-($MACHTYPE)" "Usage:	$0 [GNU long option] [option] ..." "	$0 [GNU long option] [option] script-file ..."`, true
		return true, nil
	default:
		return false, fmt.Errorf("%s: invalid option", a)
	}
	return false, nil
}

// letters reads a bundle of short options, which begins with - or +. done means that no argument
// must be read after it.
func (p *shellArgs) letters(a string) (done bool, err error) {
	run, on := &p.run, a[0] == '-'
	for i := 1; i < len(a); i++ {
		switch l := a[i]; l {
		case 'c':
			p.command = true
		case 'l':
			run.login = true
		case 'i':
			run.interactive = true
		case 's':
			p.stdin = true
		case 'r', 'D':
		case 'o', 'O':
			if len(p.rest) == 0 {
				run.src, run.fromArg = map[bool]string{true: "set -o", false: "set +o"}[on], true
				if l == 'O' {
					run.src = "shopt"
				}
				return true, nil
			}
			if err := p.named(l, on); err != nil {
				return false, err
			}
		default:
			option := run.opts.letter(l)
			if option == nil {
				return false, fmt.Errorf("-%c: invalid option", l)
			}
			*option = on
		}
	}
	return false, nil
}

// named sets the option that the next argument names. For 'o' it is an option of set, for 'O' one
// of shopt.
func (p *shellArgs) named(letter byte, on bool) error {
	name := p.rest[0]
	option, kind := p.run.opts.named(name), ""
	if letter == 'O' {
		option, kind = p.run.opts.shopt(name), "shell "
	}
	if option == nil {
		return fmt.Errorf("%s: invalid %soption name", name, kind)
	}
	if *option = on; name == "posix" && letter == 'o' {
		p.posix = on
	}
	p.rest = p.rest[1:]
	return nil
}

// finish returns the shell to run, after all options were read.
func (p *shellArgs) finish() (shellRun, error) {
	run, rest := p.run, p.rest
	run.opts.loginShell = run.login
	if p.posix {
		run.opts.posix, run.opts.inheritErrexit, run.opts.expandAliases, run.opts.shiftVerbose = true, true, true, true
	}
	switch {
	case p.command && len(rest) == 0:
		return run, errors.New("-c: option requires an argument")
	case p.command:
		run.src, run.params, run.fromArg = rest[0], rest[1:], true
		if len(rest) > 1 {
			run.name, run.params = rest[1], rest[2:]
		}
	case p.stdin:
		run.stdin, run.params = true, rest
	case len(rest) > 0:
		run.file, run.params, run.name = rest[0], rest[1:], rest[0]
	default:
		run.stdin = true
	}
	return run, nil
}

// become runs a shell's work in this process.
func (r *runner) become(run shellRun) {
	if run.file != "" {
		src, status := r.scriptText(run.file)
		if status != 0 {
			r.status = status
			return
		}
		run.src = src
	}
	r.begin(run)
}

// begin runs the work of a new shell.
func (r *runner) begin(run shellRun) {
	r.name, r.params, r.opts, r.file = run.name, run.params, run.opts, run.file
	r.lastArg = run.name
	r.inScript, r.fromArg, r.fromStdin = true, run.fromArg, run.stdin
	r.inheritOptions()
	if run.fromArg {
		r.set("BASH_EXECUTION_STRING", run.src)
	}
	r.fixedSigs = r.p.ignored.Load()
	for sig := 1; sig <= 64; sig++ {
		if r.fixedSigs&sigBit(sig) != 0 {
			if r.traps == nil {
				r.traps = map[int]string{}
			}
			r.traps[sig] = ""
		}
	}
	tty := r.ttyOf(0)
	interactive := run.interactive || run.stdin && tty != nil && r.ttyOf(2) != nil
	if interactive {
		r.beInteractive(run.noRC)
	}
	if run.login && !run.noProfile {
		r.profile()
	}
	if interactive && !run.login && !run.noRC && r.flow == flowNone {
		rc := run.rc
		if rc == "" {
			rc = r.str("HOME") + "/.bashrc"
			if r.opts.posix {
				rc = r.str("ENV")
			}
		}
		r.startup(rc)
	}
	if env := r.str("BASH_ENV"); env != "" && !interactive && !r.opts.posix && r.flow == flowNone {
		r.startup(r.abs(env))
	}
	if interactive && r.flow == flowNone {
		r.loadHistory()
	}
	switch r.topDepth = r.depth; {
	case r.flow != flowNone:
	case run.stdin && interactive && tty != nil:
		r.repl(tty)
	case run.stdin:
		r.scriptFromInput()
	default:
		r.topDepth++
		r.script(run.src)
	}
	r.saveHistory()
	if run.login && r.exiting && r.flow == flowExit {
		if home := r.str("HOME"); home != "" {
			flow, status := r.flow, r.status
			r.flow = flowNone
			r.startup(home + "/.bash_logout")
			r.flow, r.status = flow, status
		}
	}
}

// inheritOptions sets the options that an outer shell has exported in the environment.
func (r *runner) inheritOptions() {
	if shellopts, ok := r.get("SHELLOPTS"); ok && r.scopes[0].get("SHELLOPTS") != nil {
		for name := range strings.SplitSeq(shellopts, ":") {
			r.setOption(name, true)
		}
	}
	r.drop(0, "SHELLOPTS")
	if bashopts := r.scopes[0].get("BASHOPTS"); bashopts != nil {
		for name := range strings.SplitSeq(bashopts.str, ":") {
			if p := r.opts.shopt(name); p != nil {
				*p = true
			}
		}
	}
	r.drop(0, "BASHOPTS")
}

// beInteractive prepares a shell for a person: aliases, a history and a prompt.
func (r *runner) beInteractive(noRC bool) {
	r.interactive = true
	r.opts.expandAliases, r.opts.histexpand, r.opts.history = true, true, true
	r.opts.emacs = true
	if r.lookup("PS1") == nil {
		r.set("PS1", map[bool]string{true: `\s-\v\$ `, false: "${debian_chroot:+($debian_chroot)}\\u@\\h:\\w\\$ "}[noRC])
	}
	if home := r.str("HOME"); r.lookup("HISTFILE") == nil && home != "" {
		r.set("HISTFILE", home+"/.bash_history")
	}
}

// startup sources a file. A missing file is not an error.
func (r *runner) startup(name string) bool {
	if name == "" {
		return false
	}
	text, err := r.readFile(name)
	if err != nil {
		return false
	}
	r.calls = append(r.calls, frame{name: "source", file: name, sourced: true})
	r.script(text)
	r.calls = r.calls[:len(r.calls)-1]
	if r.flow == flowReturn {
		r.flow = flowNone
	}
	if r.flow == flowNone {
		r.status, r.line = 0, 0
	}
	return true
}

// profile reads the startup files of a login shell.
func (r *runner) profile() {
	r.startup("/etc/profile")
	if home := r.str("HOME"); home != "" && r.flow == flowNone {
		_ = r.startup(home+"/.bash_profile") || r.startup(home+"/.bash_login") || r.startup(home+"/.profile")
	}
}

// scriptFromInput runs standard input. It reads no further than the next command.
func (r *runner) scriptFromInput() {
	for r.flow == flowNone && r.step() {
		if r.interactive {
			r.promptCommand()
		}
		src := ""
		var stmts []*syntax.Stmt
		var err error
		tries := 0
		for {
			line, rerr := r.readLine()
			var gone error
			if line, gone = r.typed(line); gone != nil {
				src = ""
				continue
			}
			src += line
			tries++
			if rerr != nil && line == "" && src == "" {
				return
			}
			if rerr != nil || (tries < 16 || tries%32 == 0) && !continued(src) {
				text := r.expandAliases(src)
				if stmts, err = parse(text); rerr != nil && err != nil {
					stmts, err = r.parseRest(text, stmts, err)
				}
				if err == nil || !incomplete(err) || rerr != nil || len(src) >= maxSource {
					break
				}
			}
			r.stepN(len(src) >> 5)
			if r.flow != flowNone {
				return
			}
		}
		if r.opts.verbose {
			r.writeErr(src)
		}
		if err == nil && !r.opts.extglob && hasGroups(src) && slices.ContainsFunc(stmts, hasExtGlob) {
			stmts, err = nil, errExtGlob(uint(r.lineBase+1))
		}
		r.pay(len(src) * 4)
		if r.remembers() {
			r.record(src)
		}
		r.stmts(stmts)
		r.commands++
		if r.flow == flowDiscard && r.p.pid == r.shellPID() {
			r.flow = flowNone
		}
		if err != nil && r.flow == flowNone {
			if r.parseFailed(err); !r.interactive {
				return
			}
		}
		r.lineBase += strings.Count(src, "\n")
	}
}

// continued reports whether the last line of source continues on the next line.
func continued(src string) bool {
	body, ok := strings.CutSuffix(src, "\n")
	if !ok || (len(body)-len(strings.TrimRight(body, `\`)))%2 == 0 {
		return false
	}
	for line := body[strings.LastIndexByte(body, '\n')+1:]; line != ""; { // unless in a comment
		line = strings.TrimLeft(line, " \t;&|()<>")
		if strings.HasPrefix(line, "#") {
			return false
		}
		end, _ := wordEnd(line, 0)
		line = line[end:]
	}
	return true
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

// errNotInPath is the error for a name that is not in PATH. It is an fs.ErrNotExist.
type errNotInPath struct{}

// Error returns the words of os/exec, because callers know them.
func (errNotInPath) Error() string { return "executable file not found in $PATH" }

// Is makes errors.Is match fs.ErrNotExist.
func (errNotInPath) Is(target error) bool { return target == fs.ErrNotExist }

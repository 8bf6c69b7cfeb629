package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"syscall"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/process"
)

// defaultPath is the search path for programs unless the environment of the sandbox or the request
// sets another.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// errClosing is the error for requests that arrive while the agent closes.
var errClosing = errors.New("the sandbox is shutting down")

// invalid returns the error for an invalid request; it names the field.
func invalid(format string, args ...any) *connect.Error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}

// command turns a request into a command for the System.
func (a *Agent) command(u User, req *process.StartRequest) (Cmd, *connect.Error) {
	cfg := req.GetProcess()
	if cfg == nil {
		return Cmd{}, invalid("process: missing")
	}
	if err := checkConfig(cfg); err != nil {
		return Cmd{}, err
	}
	dir, err := a.workdir(u, cfg.GetCwd())
	if err != nil {
		return Cmd{}, err
	}
	cmd := Cmd{
		Path:  cfg.GetCmd(),
		Args:  cfg.GetArgs(),
		Dir:   dir,
		User:  u,
		Stdin: req.Stdin == nil || req.GetStdin(), // clients older than the field expect an open one
	}
	if req.Pty != nil {
		if cmd.TTY, err = ttySize(req.Pty); err != nil {
			return Cmd{}, err
		}
	}
	cmd.Env = a.environment(u, cfg.GetEnvs(), cmd.TTY != nil)
	return cmd, nil
}

// checkConfig refuses values with which no program can start.
func checkConfig(cfg *process.ProcessConfig) *connect.Error {
	if strings.ContainsRune(cfg.GetCmd(), 0) {
		return invalid("process.cmd: contains a NUL byte")
	}
	for i, arg := range cfg.GetArgs() {
		if strings.ContainsRune(arg, 0) {
			return invalid("process.args[%d]: contains a NUL byte", i)
		}
	}
	for k, v := range cfg.GetEnvs() {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return invalid("process.envs: bad variable name %q", k)
		}
		if strings.ContainsRune(v, 0) {
			return invalid("process.envs.%s: contains a NUL byte", k)
		}
	}
	if strings.ContainsRune(cfg.GetCwd(), 0) {
		return invalid("process.cwd: contains a NUL byte")
	}
	return nil
}

// ttySize converts a terminal's size.
func ttySize(p *process.PTY) (*Size, *connect.Error) {
	cols, rows := p.GetSize().GetCols(), p.GetSize().GetRows()
	if cols > math.MaxUint16 || rows > math.MaxUint16 {
		return nil, invalid("pty.size: %d columns by %d rows is more than a terminal can have (65535)", cols, rows)
	}
	return &Size{Cols: uint16(cols), Rows: uint16(rows)}, nil
}

// workdir returns the directory where a process starts: cwd, the sandbox's default or the user's
// home. In cwd, "~" is the home, and relative paths begin there.
func (a *Agent) workdir(u User, cwd string) (string, *connect.Error) {
	dir := cwd
	if dir == "" {
		dir = a.defaultWorkdir()
	}
	if rest, ok := strings.CutPrefix(dir, "~"); ok {
		if rest != "" && rest[0] != '/' {
			return "", invalid("failed to expand path '%s' for user '%s': cannot expand user-specific home dir", dir, u.Name)
		}
		dir = path.Join(u.Home, rest)
	}
	if !path.IsAbs(dir) {
		dir = path.Join(u.Home, dir)
	}
	dir = path.Clean(dir)
	if _, err := a.sys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", invalid("cwd '%s' does not exist", dir)
	}
	return dir, nil
}

// environment returns a process's whole environment. Later ones win: the account's, the variables
// for the wire's authority, the sandbox's, the request's.
func (a *Agent) environment(u User, request map[string]string, tty bool) []string {
	env := map[string]string{
		"PATH":    defaultPath,
		"HOME":    u.Home,
		"USER":    u.Name,
		"LOGNAME": u.Name,
		"SHELL":   u.Shell,
	}
	if tty {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, a.trust.variables())
	maps.Copy(env, a.env())
	maps.Copy(env, request)
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// startError turns a System's refusal to start a process into envd's error. A lack of resources has
// its own code, because a client may try again.
func startError(cmd Cmd, err error) *connect.Error {
	code := connect.CodeInvalidArgument
	for _, out := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC} {
		if errors.Is(err, out) {
			code = connect.CodeResourceExhausted
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		code = connect.CodeDeadlineExceeded
	}
	line := strings.Join(append([]string{cmd.Path}, cmd.Args...), " ")
	e := connect.NewError(code, fmt.Errorf("error starting process '%s': %w", line, err))
	if cmd.TTY != nil {
		e = connect.NewError(code, fmt.Errorf("error starting pty with command '%s' in dir '%s' with '%d' cols and '%d' rows: %w",
			line, cmd.Dir, cmd.TTY.Cols, cmd.TTY.Rows, err))
	}
	var at *fs.PathError
	switch {
	case errors.As(err, &at) && at.Op == "chdir": // the program was not reached
	case errors.Is(err, fs.ErrNotExist):
		e.Meta().Set(guest.UnstartedHeader, guest.ProgramMissing)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR):
		e.Meta().Set(guest.UnstartedHeader, guest.ProgramNotExecutable)
	}
	return e
}

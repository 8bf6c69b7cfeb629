package oshost

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost/spawn"
)

// proc is a process started by Start.
type proc struct {
	sys    *System
	pid    int
	status <-chan syscall.WaitStatus

	stdin          *os.File // ours, like the next two; with a TTY all are the terminal
	stdout, stderr *os.File
	tty            bool
	input          bool // stdin is a pipe

	waited  sync.Once
	exit    agent.ExitStatus
	release sync.Once
}

// Start starts a process in its own session and process group.
func (s *System) Start(cmd agent.Cmd) (agent.Proc, error) {
	path, err := lookPath(cmd)
	if err != nil {
		return nil, err
	}
	p := &proc{sys: s, tty: cmd.TTY != nil}
	var theirs child
	if p.tty {
		err = p.openTerminal(cmd, &theirs)
	} else {
		err = p.openPipes(cmd, &theirs)
	}
	if err == nil {
		err = p.fork(path, cmd, theirs.fds)
	}
	theirs.close()
	if err != nil {
		closeAll(p.stdin, p.stdout, p.stderr)
		return nil, err
	}
	return p, nil
}

// child holds descriptors 0 to 2 of a new process. They are plain numbers. An os.File would be put
// into the poller, at the price of several system calls, and these must block anyway.
type child struct {
	fds  [3]uintptr
	open []int // to close once the process has them
}

// close closes our copies.
func (c *child) close() {
	for _, fd := range c.open {
		_ = unix.Close(fd) // nothing was written to it
	}
}

// take adds a descriptor.
func (c *child) take(i, fd int) {
	c.fds[i] = uintptr(fd)
	c.open = append(c.open, fd)
}

// openPipes makes the pipes of a process without a terminal, or takes ready ones.
func (p *proc) openPipes(cmd agent.Cmd, theirs *child) error {
	p.input = cmd.Stdin
	for i, ours := range [...]**os.File{&p.stdin, &p.stdout, &p.stderr} {
		pipe, err := p.sys.pipes.take(i, cmd.Stdin)
		if err != nil {
			return err
		}
		theirs.take(i, pipe.theirs)
		*ours = pipe.ours
	}
	return nil
}

// openTerminal makes the pseudo-terminal of a process with a terminal.
func (p *proc) openTerminal(cmd agent.Cmd, theirs *child) error {
	ours, their, err := openPTY(*cmd.TTY, cmd.User.UID, cmd.User.GID)
	if err != nil {
		return err
	}
	p.stdin, p.stdout = ours, ours
	theirs.take(0, their)
	theirs.fds[1], theirs.fds[2] = theirs.fds[0], theirs.fds[0]
	return nil
}

// fork starts the program with these descriptors and no others.
func (p *proc) fork(path string, cmd agent.Cmd, fds [3]uintptr) error {
	attr := &spawn.Attr{Dir: cmd.Dir, Env: cmd.Env, Files: fds, TTY: p.tty, Credential: p.sys.credential(cmd.User)}
	argv := append([]string{cmd.Path}, cmd.Args...)
	pid, status, err := p.sys.children.start(func() (int, error) {
		return spawn.Start(path, argv, attr)
	})
	var dir *fs.PathError
	if errors.As(err, &dir) {
		return err
	}
	if err != nil {
		return &fs.PathError{Op: "fork/exec", Path: path, Err: err}
	}
	p.pid, p.status = pid, status
	return nil
}

// credential returns the identity that the child must get, or nil if it is ours. Only root can set
// groups, even to the same ones.
func (s *System) credential(u agent.User) *syscall.Credential {
	if s.euid != 0 && uint32(s.euid) == u.UID {
		return nil
	}
	groups := u.Groups
	if len(groups) == 0 {
		groups = []uint32{u.GID}
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: groups, NoSetGroups: s.keepGroups}
}

// groupsFixed reports whether even root may not set groups here. That is so in a user namespace
// that an unprivileged user made, see user_namespaces(7).
func groupsFixed() bool {
	text, _ := readPlain("/proc/self/setgroups") // a kernel without the file has no such rule
	return strings.TrimSpace(string(text)) == "deny"
}

// lookPath finds the program in the PATH of its own environment, as its user would. The user may
// still not be allowed to run a file that we find executable.
func lookPath(cmd agent.Cmd) (string, error) {
	if strings.Contains(cmd.Path, "/") {
		return cmd.Path, nil
	}
	if cmd.Path == "" {
		return "", errors.New("exec: no command")
	}
	search := ""
	for _, kv := range cmd.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	var found error = notInPath{}
	for _, dir := range filepath.SplitList(search) {
		if dir == "" || !filepath.IsAbs(dir) {
			dir = filepath.Join(cmd.Dir, dir)
		}
		name := filepath.Join(dir, cmd.Path)
		info, err := os.Stat(name)
		if err != nil || info.IsDir() {
			continue
		}
		if info.Mode()&0o111 == 0 {
			found = fs.ErrPermission
			continue
		}
		return name, nil
	}
	return "", &exec.Error{Name: cmd.Path, Err: found}
}

// notInPath is both exec.ErrNotFound and fs.ErrNotExist.
type notInPath struct{}

// Error returns the text of exec.ErrNotFound.
func (notInPath) Error() string { return exec.ErrNotFound.Error() }

// Is makes errors.Is true for both errors.
func (notInPath) Is(target error) bool { return target == exec.ErrNotFound || target == fs.ErrNotExist }

// CloseOnExec makes child processes not inherit the descriptors that this program was started with,
// except the standard three. Descriptors that the program opens itself are never inherited.
func CloseOnExec() error {
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	names, err := os.ReadDir("/proc/self/fd") // a kernel without close_range
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return err
}

// closeAll closes the open files. A terminal occurs several times.
func closeAll(files ...*os.File) {
	for i, f := range files {
		if f != nil && (i == 0 || f != files[i-1]) {
			_ = f.Close() // nothing was buffered
		}
	}
}

// PID returns the process's id.
func (p *proc) PID() int { return p.pid }

// Stdin returns the writing end of the process's standard input, nil without one.
func (p *proc) Stdin() io.WriteCloser {
	if p.stdin == nil {
		return nil
	}
	return p.stdin
}

// Stdout returns the process's output; for a terminal it is all output.
func (p *proc) Stdout() io.Reader { return outlet{p.stdout} }

// Stderr returns the process's error output, nil with a terminal.
func (p *proc) Stderr() io.Reader {
	if p.stderr == nil {
		return nil
	}
	return outlet{p.stderr}
}

// outlet reads a process's output from a pipe or terminal.
type outlet struct{ *os.File }

// Read reads output. When the last process has closed the other side of a terminal, Linux returns
// EIO; Read turns that into the end of the output.
func (o outlet) Read(b []byte) (int, error) {
	n, err := o.File.Read(b)
	if errors.Is(err, unix.EIO) {
		err = io.EOF
	}
	return n, err
}

// Pending returns how many bytes can be read now.
func (o outlet) Pending() (n int, err error) {
	conn, err := o.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n, errors.Join(err, cerr)
}

// Resize sets the terminal's size and tells the foreground process.
func (p *proc) Resize(size agent.Size) error {
	if !p.tty {
		return unix.ENOTTY
	}
	return setSize(p.stdout, size)
}

// Signal sends a signal to the process group.
func (p *proc) Signal(sig int) error {
	return p.sys.children.signalGroup(p.pid, syscall.Signal(sig))
}

// Wait returns when the process itself has ended. Several callers may wait.
func (p *proc) Wait() agent.ExitStatus {
	p.waited.Do(func() { p.exit = exitStatus(<-p.status) })
	return p.exit
}

// Look checks whether the process has ended, without waiting for SIGCHLD; if so, Wait returns. It
// is called at the end of the output, because a process mostly ends then.
func (p *proc) Look() { p.sys.children.reap(p.pid) }

// Release closes our ends of the pipes, and makes pipes for the next process.
func (p *proc) Release() {
	p.release.Do(func() {
		closeAll(p.stdin, p.stdout, p.stderr)
		if !p.tty {
			p.sys.pipes.fill(p.input)
		}
	})
}

// exitStatus describes a wait status with the texts of package os.
func exitStatus(w syscall.WaitStatus) agent.ExitStatus {
	e := agent.ExitStatus{Code: w.ExitStatus()}
	if w.Signaled() {
		e.Code, e.Signal = -1, int(w.Signal())
		e.Status = "signal: " + w.Signal().String()
	} else {
		e.Status = fmt.Sprintf("exit status %d", e.Code)
	}
	if w.CoreDump() {
		e.Status += " (core dumped)"
	}
	if e.Code != 0 {
		e.ErrorMsg = e.Status
	}
	return e
}

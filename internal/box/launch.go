//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/landlock"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// execError is the reason why the command could not be executed.
type execError struct {
	path  string
	errno syscall.Errno
}

func (e *execError) Error() string { return "exec " + e.path + ": " + e.errno.Error() }

// launch restricts this thread, starts the command, which inherits every restriction, and reports
// the start.
func (b *builder) launch() error {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/", Err: err}
	}
	b.hand("root", root)
	if err := b.restrict(); err != nil {
		return err
	}
	path, err := b.find()
	if err != nil {
		return err
	}
	if dir := b.Spec.Dir; dir != "" {
		if err := unix.Chdir(dir); err != nil {
			return fmt.Errorf("working directory: %w", &os.PathError{Op: "chdir", Path: dir, Err: err})
		}
		_ = unix.Chdir("/")
	}
	if b.Spec.Init {
		return b.become(path)
	}
	files := []uintptr{0, 1, 2}
	for i, own := range b.Spec.Terminal {
		if own && b.tty >= 0 {
			files[i] = uintptr(b.tty)
		}
	}
	pidfd := -1
	attr := &syscall.ProcAttr{Dir: b.Spec.Dir, Env: b.Spec.Env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd}}
	if b.tty >= 0 {
		attr.Sys.Foreground, attr.Sys.Ctty = true, b.tty
	}
	pid, err := syscall.ForkExec(path, b.Spec.Args, attr)
	if err != nil {
		return failedExec(path, err)
	}
	b.command = pid
	if pidfd >= 0 {
		b.hand("pidfd", pidfd)
	}
	if err := b.tell(); err != nil {
		return err
	}
	b.letGo()
	return nil
}

func failedExec(path string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}
	return &execError{path, errno}
}

// become makes this process the command.
func (b *builder) become(path string) error {
	if dir := b.Spec.Dir; dir != "" {
		if err := unix.Chdir(dir); err != nil {
			return &os.PathError{Op: "chdir", Path: dir, Err: err}
		}
	}
	for i, own := range b.Spec.Terminal {
		if own && b.tty >= 0 {
			if err := unix.Dup3(b.tty, i, 0); err != nil {
				return os.NewSyscallError("dup", err)
			}
		}
	}
	if err := b.tell(); err != nil {
		return err
	}
	return failedExec(path, syscall.Exec(path, b.Spec.Args, b.Spec.Env))
}

// hand adds a descriptor to those for the host's process.
func (b *builder) hand(name string, fd int) {
	b.handed, b.fds = append(b.handed, name), append(b.fds, fd)
}

// tell sends all these descriptors to the host's process, in one message.
func (b *builder) tell() error {
	err := b.conn.send(message{Word: started, Handed: b.handed, Missing: b.missing, PID: b.command}, b.fds...)
	for _, fd := range b.fds {
		_ = unix.Close(fd)
	}
	b.fds = nil
	return err
}

// letGo closes the standard streams here. Only the command should hold them, so that a reader of
// its output sees the end.
func (b *builder) letGo() {
	if b.null < 0 {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(b.null, fd, unix.O_CLOEXEC)
	}
	_ = unix.Close(b.null)
}

// parkMounts lets the kernel take the mounts down after this process's end. So a caller that waits
// for the end does not wait for the mounts.
func (b *builder) parkMounts() {
	if b.Spec.Light {
		return
	}
	fd, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it takes longer then
	}
	_ = proc.Park(fd)
	_ = unix.Close(fd)
}

// restrict takes all rights from this thread.
func (b *builder) restrict() error {
	b.parkMounts()
	// letGo needs it. Open it now: after the filter is installed, this thread's own calls are
	// watched, too.
	b.null, _ = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if !b.Spec.Privileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("no_new_privs", err)
		}
	}
	missing, err := landlock.Restrict(b.Spec.Landlock)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	b.missing = append(b.missing, missing...)
	if b.Spec.Privileges { // without no_new_privs, installing the filter needs a capability
		if err := b.filter(); err != nil {
			return err
		}
		return drop(b.Spec.Capabilities)
	}
	if err := drop(b.Spec.Capabilities); err != nil {
		return err
	}
	return b.filter()
}

// filter installs the system call filter. The filter must allow this thread's later calls without
// asking the listener.
func (b *builder) filter() error {
	f := b.Spec.Seccomp
	if !b.Watch {
		f = f.Quiet()
	}
	listener, err := seccomp.Install(f)
	if errors.Is(err, unix.EBUSY) { // a box in a box: they have one listener
		b.missing = append(b.missing, "what the box refuses is not reported: it lies in another box that is watched")
		_, err = seccomp.Install(f.Quiet())
	}
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	if listener != nil {
		b.hand("listener", int(listener.Fd()))
	}
	return nil
}

// find looks for the command like execvp.
func (b *builder) find() (string, error) {
	name := b.Spec.Args[0]
	if strings.Contains(name, "/") {
		if b.Spec.Dir != "" && !filepath.IsAbs(name) {
			name = filepath.Join(b.Spec.Dir, name)
		}
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range b.Spec.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	found := &execError{name, syscall.ENOENT}
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(b.Spec.Dir, dir)
		}
		try := dir + "/" + name
		var st unix.Stat_t
		if err := unix.Stat(try, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if err := unix.Faccessat(unix.AT_FDCWD, try, unix.X_OK, unix.AT_EACCESS); err != nil {
			found = &execError{try, syscall.EACCES}
			continue
		}
		return try, nil
	}
	return "", found
}

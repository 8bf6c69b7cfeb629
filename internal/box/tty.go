//go:build linux

package box

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal makes the command's terminal, which becomes the session's terminal. This process leads
// the session, as a shell does. A command that leads the session itself can't be stopped from the
// terminal.
func (b *builder) terminal() error {
	if b.Spec.Terminal == [3]bool{} {
		return nil
	}
	ptmx := "/dev/pts/ptmx"
	if b.Spec.Light {
		ptmx = "/dev/ptmx"
	}
	master, err := unix.Open(ptmx, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: ptmx, Err: err}
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return os.NewSyscallError("unlock terminal", err)
	}
	n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return os.NewSyscallError("number of terminal", err)
	}
	name := "/dev/pts/" + strconv.Itoa(int(n))
	if !b.Spec.Init {
		b.heedNot()
	}
	if b.tty, err = unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	b.hand("terminal", master)
	return nil
}

// heedNot keeps a terminal's signals from ending this process. It catches them and does not ignore
// them, because the command would inherit that. If this process inherited an ignored signal (from a
// script's "&"), that does not apply to this terminal. The exception is SIGHUP: if nohup ignored
// it, it stays ignored.
func (b *builder) heedNot() {
	c := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
		if s != syscall.SIGHUP || !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// foreground reports whether the command's group is in the foreground of the terminal.
func (b *builder) foreground() bool {
	pgrp, err := unix.IoctlGetInt(b.tty, unix.TIOCGPGRP)
	return err == nil && pgrp == b.command
}

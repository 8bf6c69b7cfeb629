package oshost

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// openPTY makes a pseudo-terminal of a given size, see pty(7). Our side is in the poller, so that
// reads have deadlines and end when it is closed. theirs is a plain descriptor for the child alone.
// It belongs to uid, so that programs can open it again by name.
func openPTY(size agent.Size, uid, gid uint32) (ours *os.File, theirs int, err error) {
	const mode = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Open("/dev/ptmx", mode|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	ours = os.NewFile(uintptr(fd), "/dev/ptmx")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = setSize(ours, size)
	}
	if err != nil {
		_ = ours.Close() // unused
		return nil, 0, os.NewSyscallError("ioctl", err)
	}
	name := "/dev/pts/" + strconv.Itoa(n)
	theirs, err = unix.Open(name, mode, 0)
	if err != nil {
		_ = ours.Close() // unused
		return nil, 0, &os.PathError{Op: "open", Path: name, Err: err}
	}
	_ = unix.Fchown(theirs, int(uid), int(gid)) // needs root; without root it already belongs to the user
	return ours, theirs, nil
}

// setSize sets a terminal's size and tells its foreground process.
func setSize(tty *os.File, size agent.Size) error {
	conn, err := tty.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	if err == nil {
		err = cerr
	}
	return err
}

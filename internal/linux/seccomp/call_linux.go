package seccomp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a system call that waits for an answer.
type Call struct {
	ID   uint64
	PID  int // thread, in the reader's pid namespace; 0 if it is not in there
	Name string
	Args [6]uint64 // copies; the memory that they point to can still change
	// Denied is the filter's error for the call, if it has one. The answer is this error, and the
	// handler only learns of the call.
	Denied syscall.Errno

	listener *Listener
}

// ErrGone means that the caller no longer waits: it was killed or interrupted.
var ErrGone = errors.New("the caller is gone")

// Valid reports whether the call still waits. If it does, everything read from its process before
// came from that process, and not from another one that got the same pid.
func (l *Listener) Valid(c Call) bool {
	return l.pointer(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&c.ID)) == nil
}

// check returns an error if the caller no longer waits. It is called after reading from the caller.
func (c Call) check() error {
	if c.listener != nil && !c.listener.Valid(c) {
		return ErrGone
	}
	return nil
}

// page is the most bytes of a single read. A string may end just before memory that can't be read.
const page = 4096

// Text reads a NUL-terminated string of at most max bytes from the caller's memory. A longer one is
// ENAMETOOLONG. Like the methods below, Text checks afterwards that the caller still waits.
func (c Call) Text(addr uint64, max int) (string, error) {
	var buf []byte
	for len(buf) <= max {
		n := min(page-int((addr+uint64(len(buf)))%page), max+1-len(buf))
		if len(buf) == 0 {
			n = min(n, 256)
		}
		part, err := c.memory(addr+uint64(len(buf)), n)
		if err != nil {
			return "", err
		}
		end := bytes.IndexByte(part, 0)
		if end >= 0 {
			return string(append(buf, part[:end]...)), c.check()
		}
		buf = append(buf, part...)
	}
	return "", unix.ENAMETOOLONG
}

// Glance is Text of a name that fits into a few hundred bytes, and does not make sure that the
// caller still waits. It is for answers that only let the kernel go on: where the caller is gone
// they reach nobody. [Call.Waits] makes what was read certain.
func (c Call) Glance(addr uint64) (string, error) {
	var buf [256]byte
	n, err := c.read(addr, buf[:min(page-int(addr%page), len(buf))])
	if err != nil {
		return "", err
	}
	if end := bytes.IndexByte(buf[:n], 0); end >= 0 {
		return string(buf[:end]), nil
	}
	return c.Text(addr, unix.PathMax-1)
}

// Waits reports whether the caller still waits, so that what was read before is its own.
func (c Call) Waits() bool { return c.check() == nil }

// Bytes reads n bytes from the caller's memory.
func (c Call) Bytes(addr uint64, n int) ([]byte, error) {
	b, err := c.memory(addr, n)
	if err == nil && len(b) < n {
		err = unix.EFAULT
	}
	if err != nil {
		return nil, err
	}
	return b, c.check()
}

// memory reads up to n bytes.
func (c Call) memory(addr uint64, n int) ([]byte, error) {
	if n <= 0 {
		return nil, nil
	}
	buf := make([]byte, n)
	got, err := c.read(addr, buf)
	return buf[:got], err
}

// read fills buf from the caller's memory, as far as it can be read.
func (c Call) read(addr uint64, buf []byte) (int, error) {
	local := [1]unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(len(buf))
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(buf)}}
	got, err := unix.ProcessVMReadv(c.PID, local[:], remote[:], 0)
	switch {
	case err == unix.ESRCH:
		return 0, ErrGone
	case err != nil:
		return 0, fmt.Errorf("read memory of process %d: %w", c.PID, err)
	}
	return got, nil
}

// Descriptor duplicates the caller's descriptor fd.
func (c Call) Descriptor(fd int) (*os.File, error) {
	got, err := c.Borrow(fd)
	if err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		_ = unix.Close(got)
		return nil, err
	}
	return os.NewFile(uintptr(got), "descriptor "+strconv.Itoa(fd)), nil
}

// Borrow is Descriptor as a number, for the caller of Borrow to close. It does not make sure that
// who made the call still waits: [Call.Bytes] and [Call.Waits] do.
func (c Call) Borrow(fd int) (int, error) {
	const thread = unix.O_EXCL // PIDFD_THREAD (Linux 6.9): a thread may have its own descriptors
	p, err := unix.PidfdOpen(c.PID, thread)
	if err == unix.EINVAL {
		p, err = c.leader()
	}
	if err == unix.ESRCH {
		return -1, ErrGone
	}
	if err != nil {
		return -1, fmt.Errorf("process %d: %w", c.PID, err)
	}
	defer unix.Close(p)
	got, err := unix.PidfdGetfd(p, fd, 0)
	if err != nil {
		return -1, fmt.Errorf("descriptor %d of process %d: %w", fd, c.PID, err)
	}
	return got, nil
}

// leader opens the process of the thread.
func (c Call) leader() (int, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(c.PID) + "/status")
	if err != nil {
		return -1, unix.ESRCH
	}
	for line := range strings.Lines(string(status)) {
		if id, ok := strings.CutPrefix(line, "Tgid:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(id))
			if err != nil {
				return -1, unix.ESRCH
			}
			return unix.PidfdOpen(n, 0)
		}
	}
	return -1, unix.ESRCH
}

// Path returns the path in argument arg, made absolute. It starts at the descriptor in argument
// dirfd, or at the caller's working directory if dirfd is −1. It is the path as the caller names
// it: links and ".." are not resolved. An empty path means the directory or descriptor itself. For
// a descriptor that is no file, Path returns the text from /proc ("pipe:[7]").
func (c Call) Path(dirfd, arg int) (string, error) {
	if arg < 0 || arg >= len(c.Args) || dirfd >= len(c.Args) {
		return "", unix.EINVAL
	}
	name, err := c.Text(c.Args[arg], unix.PathMax-1)
	if err != nil || strings.HasPrefix(name, "/") {
		return name, err
	}
	link := "/proc/" + strconv.Itoa(c.PID) + "/cwd"
	if dirfd >= 0 {
		if fd := int32(c.Args[dirfd]); fd != unix.AT_FDCWD {
			link = "/proc/" + strconv.Itoa(c.PID) + "/fd/" + strconv.Itoa(int(fd))
		}
	}
	dir, err := os.Readlink(link)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) && c.check() == nil {
			return "", unix.EBADF
		}
		return "", err
	}
	if err := c.check(); err != nil {
		return "", err
	}
	if name == "" {
		return dir, nil
	}
	return strings.TrimSuffix(dir, "/") + "/" + name, nil
}

package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// gVisor's own helpers make sockets and event descriptors without close-on-exec. A process that is
// started at the same moment would inherit them. One sandbox's control connection in another
// sandbox's sentry would be a way out, so this file makes everything close at an exec.

// maxSockPath is the longest path of a unix socket.
const maxSockPath = 107

// listenControl makes the socket on which a sentry will listen for our commands.
func listenControl(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	err = withShortPath(path, func(short string) error {
		return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrUnix{Name: short}))
	})
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return f, nil
}

// dialControl connects to a sentry's control socket.
func dialControl(path string) (*urpc.Client, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = withShortPath(path, func(short string) error {
		return os.NewSyscallError("connect", unix.Connect(fd, &unix.SockaddrUnix{Name: short}))
	})
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	// No process may start while NewSocket's event descriptor can be inherited.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	s, err := unet.NewSocket(fd)
	proc.CloseOnExec(3)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return urpc.NewClient(s), nil
}

// withShortPath calls use with a name of path that is short enough for a socket's address.
func withShortPath(path string, use func(string) error) error {
	if len(path) <= maxSockPath {
		return use(path)
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(dir)
	return use("/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path))
}

package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// Part is the name under which a binary runs as the keeper.
const Part = "carrel-keeper"

// Parts returns the keeper's entry for [reexec.Run].
func Parts() reexec.Parts {
	return reexec.Parts{Part + " start": Main, Part + " serve": Main}
}

const listenFD = 3

// Start makes sure that a keeper serves socketPath, and returns when it can be dialled. exe is a
// binary whose main runs [Parts]; "" is the running one. The directory of socketPath must exist and
// belong to this user alone.
func Start(ctx context.Context, exe, socketPath string) error {
	if exe == "" {
		exe = "/proc/self/exe"
	}
	unlock, err := lock(socketPath)
	if err != nil {
		return startError(err)
	}
	defer unlock()
	if c, err := Dial(ctx, socketPath); err == nil {
		_, err = c.List(ctx)
		_ = c.Close()
		if err == nil {
			return nil
		}
	}
	l, err := listen(socketPath)
	if err != nil {
		return startError(err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return startError(err)
	}
	defer f.Close()
	// The command does not end with ctx: killing it halfway would leave a socket that nobody
	// serves.
	cmd := &exec.Cmd{Path: exe, Args: []string{Part, "start", socketPath}, Dir: "/",
		Env: []string{}, ExtraFiles: []*os.File{f}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Run(); err != nil {
		_ = os.Remove(socketPath)
		return startError(fmt.Errorf("start %s: %w", Part, err))
	}
	return nil
}

func startError(err error) error {
	return &carrel.Error{Op: "start keeper", Kind: carrel.Internal, Err: err}
}

// startDetached is the process in between. It starts the keeper and ends, so that the keeper is not
// the daemon's child.
func startDetached(socketPath string) int {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{Part, "serve", socketPath}, Dir: "/",
		Env: []string{}, ExtraFiles: []*os.File{os.NewFile(listenFD, "listener")},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		return 1
	}
	return 0
}

// listen makes the socket. It has mode 0600 from its first moment.
func listen(path string) (l *net.UnixListener, err error) {
	err = withShortPath(path, func(short string) error {
		l, err = listenAt(short)
		return err
	})
	return l, err
}

// listenAt is listen with a path that is short enough.
func listenAt(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// Bind it under another name and move it, so that nobody connects before the mode is set.
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".k%d", os.Getpid()))
	_ = os.Remove(tmp)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: tmp, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(tmp, 0o600); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = l.Close()
		_ = os.Remove(tmp)
		return nil, err
	}
	return l, nil
}

// maxSocketPath is the longest path of a unix socket. The temporary name may be a little longer
// than the socket's own.
const maxSocketPath = 100

// withShortPath calls use with a name of path that is short enough for a socket's address. The name
// is valid only during the call.
func withShortPath(path string, use func(short string) error) error {
	if len(path) <= maxSocketPath {
		return use(path)
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(dir)
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)))
}

// lock allows only one start or retirement of a keeper at a path at a time.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

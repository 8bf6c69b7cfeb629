//go:build linux

package spawn

import (
	"encoding/json"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/reexec"
)

const (
	partName   = "carrel-spawner"
	socketFD   = 3
	maxMessage = 64 << 10 // of a request or an answer
	maxFiles   = 200      // of a process; the kernel passes up to 253
	tableSize  = 256      // of a process's descriptors
)

// Parts returns the part of this package for [reexec.Run].
func Parts() reexec.Parts { return reexec.Parts{partName: serve} }

// answer is the result of a request. The pidfd of a started process comes with it.
type answer struct {
	PID   int
	Text  string // the error's text
	Errno int    // and the kernel's number for it
}

// err returns the error of an answer that has a text. It contains the text and the kernel's error
// number.
func (a answer) err() error {
	if a.Errno == 0 {
		return errors.New(a.Text)
	}
	return &startError{a.Text, syscall.Errno(a.Errno)}
}

// startError is an error from the other process.
type startError struct {
	text  string
	errno syscall.Errno
}

func (e *startError) Error() string { return e.text }
func (e *startError) Unwrap() error { return e.errno }

// serve is the spawner. It ends when its parent closes the socket or has ended.
func serve() {
	// Packages of the program may have opened files of their own before. Without this call every
	// started process would inherit them.
	proc.CloseOnExec(socketFD)
	// A child's table of descriptors is made as long as this one's. A sentry uses numbers above
	// 250. If a process with threads needs a longer table, the kernel waits for a grace period, 5
	// ms or more. So make the table long here.
	_, _ = unix.FcntlInt(socketFD, unix.F_DUPFD_CLOEXEC, tableSize-1)
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxFiles))
	for {
		n, m, _, _, err := unix.Recvmsg(socketFD, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			os.Exit(0)
		}
		a, pidfd := start(buf[:n], oob[:m])
		told, err := json.Marshal(a)
		if err != nil {
			os.Exit(1)
		}
		var with []byte
		if pidfd >= 0 {
			with = unix.UnixRights(pidfd)
		}
		if err := unix.Sendmsg(socketFD, told, with, nil, 0); err != nil {
			os.Exit(1)
		}
		if pidfd >= 0 {
			_ = unix.Close(pidfd)
		}
	}
}

// start carries out the request of one message.
func start(told, oob []byte) (a answer, pidfd int) {
	fail := func(err error) (answer, int) {
		a := answer{Text: err.Error()}
		var errno syscall.Errno
		if errors.As(err, &errno) {
			a.Errno = int(errno)
		}
		return a, -1
	}
	pidfd = -1
	fds, err := proc.Rights(oob)
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "passed"))
	}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil {
		return fail(err)
	}
	var r Request
	if err := json.Unmarshal(told, &r); err != nil {
		return fail(err)
	}
	// The child becomes a child of this process's parent, which wants to know of its end.
	r.Attr.Cloneflags |= unix.CLONE_PARENT
	r.Attr.PidFD = &pidfd
	// This process starts nothing else at the same time. So no other child inherits the files that
	// the runtime opens without close-on-exec (see proc.Alone).
	err = cgroup.Load(r.Group).Start(&r.Attr, func() error {
		p, err := os.StartProcess("/proc/self/exe", r.Args, &os.ProcAttr{Dir: r.Dir, Env: r.Env, Files: files, Sys: &r.Attr})
		if err == nil {
			a.PID = p.Pid
			err = p.Release()
		}
		return err
	})
	if err == nil && pidfd < 0 {
		err = errors.New("this kernel has no pidfd (Linux 5.3 or newer is needed)")
	}
	if err != nil {
		return fail(err)
	}
	return a, pidfd
}

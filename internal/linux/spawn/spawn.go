//go:build linux

// Package spawn starts processes from a small process instead of from a big one.
//
// # Why
//
// Usually a new process shares its parent's memory until it executes its program. A process that is
// born in a user namespace can't: the Go runtime must write its id maps before that. So the kernel
// copies all page tables of the parent, and afterwards every page that the parent writes to. For a
// daemon that holds 100 MB this takes 10 ms, and it grows with the daemon. The [Spawner] holds next
// to nothing and needs one or two milliseconds.
//
// # What it is
//
// The spawner is a copy of a program that plays the part of [Parts]. It waits on a socket that only
// its parent has. It carries out one request at a time, with the rights of its parent. It ends when
// the socket closes, however its parent ended. The processes that it starts are its parent's
// children, not its own: the parent waits for them.
package spawn

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// ErrGone means that the spawner did not carry out the request and no longer works.
var ErrGone = errors.New("the process that starts others is gone")

// answerTime bounds the start of one process.
const answerTime = 30 * time.Second

// Request is a process to start. Its program is the spawner's own.
type Request struct {
	Args  []string
	Env   []string
	Dir   string
	Attr  syscall.SysProcAttr // plain values only: no descriptors
	Group cgroup.Paths        // the group that it is born in
}

// Spawner is a running spawner. It is safe for concurrent use; it handles one request after
// another.
type Spawner struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	conn *net.UnixConn // nil when it is over
}

// Start starts a spawner from cmd. cmd's path names the program and its environment is set. The
// program's main must run [Parts] first of all. mark is an argument that identifies the owner.
func Start(cmd *exec.Cmd, mark string) (*Spawner, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "spawner"), os.NewFile(uintptr(fds[1]), "spawner")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	cmd.Args = []string{partName, mark}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // interrupts are for the parent
	if err := cmd.Start(); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("start a spawner: %w", err)
	}
	return &Spawner{cmd: cmd, conn: c.(*net.UnixConn)}, nil
}

// Process starts a process with files as its descriptors from 0 on. The caller owns the pidfd, and
// the child is the caller's. After the error [ErrGone] the caller can start the process itself. Any
// other error means that there was no room for a process.
func (s *Spawner) Process(r Request, files []*os.File) (pid int, pidfd *os.File, err error) {
	told, err := json.Marshal(r)
	if err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return 0, nil, ErrGone
	}
	a, fds, err := s.ask(told, files)
	if err != nil {
		s.endLocked()
		return 0, nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	switch {
	case a.Errno == int(unix.EAGAIN) || a.Errno == int(unix.ENOMEM): // there was no room for a process
		return 0, nil, a.err()
	case a.Text != "" || len(fds) != 1:
		// If a process failed to execute its program, it is now a child of this process, and its
		// pid is unknown. One such child does no harm, but the failure would repeat. The caller can
		// wait for its own children, so it should try itself and report why it fails.
		s.endLocked()
		return 0, nil, fmt.Errorf("%w: %w", ErrGone, a.err())
	}
	_ = unix.SetNonblock(fds[0], true) // so that the runtime's poller can wait for it
	return a.PID, os.NewFile(uintptr(fds[0]), "pidfd"), nil
}

// answers holds buffers for one answer each. Allocating one for every start would be a third of a
// daemon's allocations for that start.
var answers = sync.Pool{New: func() any { return new([maxMessage]byte) }}

// ask sends one request and reads its answer.
func (s *Spawner) ask(told []byte, files []*os.File) (a answer, fds []int, err error) {
	var numbers []int
	for _, f := range files {
		numbers = append(numbers, int(f.Fd()))
	}
	if err := s.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return a, nil, err
	}
	if _, _, err := s.conn.WriteMsgUnix(told, unix.UnixRights(numbers...), nil); err != nil {
		return a, nil, err
	}
	buf, oob := answers.Get().(*[maxMessage]byte), make([]byte, unix.CmsgSpace(4))
	defer answers.Put(buf)
	n, m, _, _, err := s.conn.ReadMsgUnix(buf[:], oob)
	if err != nil {
		return a, nil, err
	}
	if fds, err = proc.Rights(oob[:m]); err != nil {
		return a, nil, err
	}
	return a, fds, json.Unmarshal(buf[:n], &a)
}

// Close ends the spawner. The processes that it started go on.
func (s *Spawner) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
	return nil
}

// endLocked closes the socket and waits for the spawner's end.
func (s *Spawner) endLocked() {
	if s.conn == nil {
		return
	}
	_ = s.conn.Close()
	s.conn = nil
	_ = s.cmd.Process.Kill() // in the middle of something
	_ = s.cmd.Wait()
}

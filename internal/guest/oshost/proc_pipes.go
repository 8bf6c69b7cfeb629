package oshost

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// pipes keeps the pipes of the next process ready. The pipes of one process cost fifteen system
// calls, with those of the poller, and inside a sandbox each goes to another process. So they are
// made after a process has ended, when nobody waits. The zero value has none yet.
type pipes struct {
	mu     sync.Mutex
	kept   [3]*pipe // by their future descriptor; the first is /dev/null if the last process had no input
	input  bool     // the first one is a pipe
	closed bool
}

// pipe is a pipe, or a plain file, for one descriptor of a process.
type pipe struct {
	ours   *os.File // in the poller; nil for a file
	theirs int      // a plain number: it must block, so it must not be in the poller
}

// take returns the pipe for descriptor i of a new process, or /dev/null for a process without
// input.
func (p *pipes) take(i int, input bool) (*pipe, error) {
	p.mu.Lock()
	kept := p.kept[i]
	if i == 0 && p.input != input {
		kept = nil
	} else {
		p.kept[i] = nil
	}
	p.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	return newPipe(i, input)
}

// fill makes the missing pipes for a process like the last one.
func (p *pipes) fill(input bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if p.input != input {
		p.kept[0].close()
		p.kept[0], p.input = nil, input
	}
	for i := range p.kept {
		if p.kept[i] == nil {
			p.kept[i], _ = newPipe(i, input) // take makes it again and returns the error
		}
	}
}

// close closes the unused pipes.
func (p *pipes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for i := range p.kept {
		p.kept[i].close()
		p.kept[i] = nil
	}
}

// close closes both ends.
func (p *pipe) close() {
	if p == nil {
		return
	}
	_ = unix.Close(p.theirs) // nothing was written
	if p.ours != nil {
		_ = p.ours.Close()
	}
}

// newPipe makes the pipe for descriptor i of a new process.
func newPipe(i int, input bool) (*pipe, error) {
	if i == 0 && !input {
		fd, err := openPlain(os.DevNull, unix.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		return &pipe{theirs: fd}, nil
	}
	var fds [2]int // for reading, for writing
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	ours, theirs, mode := fds[0], fds[1], unix.O_RDONLY
	if i == 0 {
		ours, theirs, mode = theirs, ours, unix.O_WRONLY
	}
	if _, err := unix.FcntlInt(uintptr(ours), unix.F_SETFL, mode|unix.O_NONBLOCK); err != nil {
		_, _ = unix.Close(ours), unix.Close(theirs) // unused
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &pipe{ours: os.NewFile(uintptr(ours), [...]string{"stdin", "stdout", "stderr"}[i]), theirs: theirs}, nil
}

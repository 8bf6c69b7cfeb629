//go:build linux

package box

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// order is what the stage is told, in a sealed memory file.
type order struct {
	Spec  Spec
	User  bool   // it is in a user namespace of its own
	Watch bool   // somebody answers the calls that the filter watches
	Touch bool   // somebody wants to know who touches what is hidden
	Stay  bool   // the box outlives the host's process
	NProc uint64 // RLIMIT_NPROC, 0 for none
	CPUs  int    // processors that it may use, 0 for all
}

// The descriptors of the stage beside the standard streams.
const (
	controlFD = 3
	wordsFD   = 4 // see lastwords.go
)

// word says what a message is.
type word string

// What the stage says, and what it is asked.
const (
	failed  word = "failed"  // Failure; the box is not built
	started word = "started" // with descriptors, in the order of Handed
	exited  word = "exited"  // Code, Signal
	stopped word = "stopped"
	named   word = "named" // Text is the name that was looked up
	masks   word = "masks" // with the descriptor of /dev/fuse; Masks says which
	kill    word = "kill"
	end     word = "end"
	dial    word = "dial"  // ID, Port; the answer has a descriptor or Failure
	ordered word = "order" // the first, with the descriptor of the order and those of Streams
)

// message is one datagram between the stage and the host's process.
type message struct {
	Word    word
	Failure *failure
	Handed  []string
	Missing []string
	Code    int
	Signal  int
	Group   bool
	Text    string
	PID     int
	Port    uint16
	ID      int
	Streams []int // which of the standard streams are not /dev/null
	Masks   []int // indices of Spec.Hidden, which are directories if negative (-1-index)
}

// failure is an error that crosses the socket.
type failure struct {
	Op, Path string
	Errno    int
	Text     string
	Kind     string
	Hint     string
	Exec     bool // the command could not be executed
}

// maxMessage bounds a datagram.
const maxMessage = 64 << 10

// conn is one end of the socket between the stage and the host's process.
type conn struct {
	fd int
	mu sync.Mutex // Of close against send
}

func (c *conn) send(m message, fds ...int) error {
	b := encode(nil, m)
	if len(b) > maxMessage {
		return errors.New("the message is too long")
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return os.ErrClosed
	}
	for {
		err := unix.Sendmsg(c.fd, b, oob, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return os.NewSyscallError("sendmsg", err)
		}
	}
}

// receive waits for a message. One with Word "" means that the other end is closed.
func (c *conn) receive(b []byte) (m message, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*8))
	var n, oobn int
	for {
		n, oobn, _, _, err = unix.Recvmsg(c.fd, b, oob, unix.MSG_CMSG_CLOEXEC)
		// The other end closed before it had read all that it was sent: the kernel says so first, once, and then hands out what was sent
		// from there, the word of the command's end among it.
		if err != unix.EINTR && err != unix.ECONNRESET {
			break
		}
	}
	if err != nil || n == 0 {
		return m, nil, os.NewSyscallError("recvmsg", err)
	}
	if fds, err = proc.Rights(oob[:oobn]); err != nil {
		return m, nil, err
	}
	return m, fds, decode(b[:n], &m)
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
		c.fd = -1
	}
}

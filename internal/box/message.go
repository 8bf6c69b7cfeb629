//go:build linux

package box

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// order holds the stage's instructions, in a sealed memory file.
type order struct {
	Spec  Spec
	User  bool   // the stage is in a user namespace of its own
	Watch bool   // the host answers the calls that the filter watches
	Touch bool   // the host wants reports of touches of hidden files
	Stay  bool   // the box outlives the host's process
	NProc uint64 // RLIMIT_NPROC, 0 for none
	CPUs  int    // number of processors that it may use; 0 for all
}

// The descriptors of the stage beside the standard streams.
const (
	controlFD = 3
	wordsFD   = 4 // see lastwords.go
)

// word is the kind of a message.
type word string

// Messages from the stage, and requests to it.
const (
	failed  word = "failed"  // Failure; the box is not built
	started word = "started" // with descriptors, in the order of Handed
	exited  word = "exited"  // Code, Signal
	stopped word = "stopped"
	named   word = "named" // Text is a name that a program looked up
	masks   word = "masks" // with the descriptor of /dev/fuse; Masks lists the masks
	kill    word = "kill"
	end     word = "end"
	dial    word = "dial"  // ID, Port; the answer has a descriptor or Failure
	ordered word = "order" // the first; with the descriptors of the order and of Streams
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
	Streams []int // the standard streams that are not /dev/null
	Masks   []int // indices of Spec.Hidden; negative for directories (-1-index)
}

// failure is an error in the form for the socket.
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

// receive waits for a message. A message with Word "" means that the other end is closed.
func (c *conn) receive(b []byte) (m message, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*8))
	var n, oobn int
	for {
		n, oobn, _, _, err = unix.Recvmsg(c.fd, b, oob, unix.MSG_CMSG_CLOEXEC)
		// ECONNRESET means that the other end closed before it had read everything. The kernel
		// returns this error first, and only once. Then it hands out the messages sent before the
		// close, for example that the command has ended.
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

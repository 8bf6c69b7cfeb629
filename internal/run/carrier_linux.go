package run

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/policy"
)

// The network stack of a box is in the whole program, and that takes longer to start than a box. So
// the small program builds the box, and starts the whole program beside it as the carrier: the
// process that carries the box's network. The command does not wait for the carrier. Its packets
// stay in the link until the carrier reads them.
//
// The two processes talk over a socket of datagrams. The runner sends its order in a memory file,
// and then the link. The carrier sends carrierWords. When the runner's end of the socket closes,
// for any reason, the carrier ends.

// CarrierName is argv[0] of the carrier.
const CarrierName = "carrel-carrier"

// carrierFD is the carrier's end of the socket.
const carrierFD = 3

// carrierOrder is the runner's order to the carrier.
type carrierOrder struct {
	Policy carrel.Policy `json:"policy"`
	Table  string        `json:"table,omitempty"`
}

// carrierWord is one message from the carrier.
type carrierWord struct {
	Attached bool             `json:"attached,omitempty"`
	Refused  *carrel.Decision `json:"refused,omitempty"`
	Failure  string           `json:"failure,omitempty"`
}

// carrierEnds is how long the carrier may take to report its last decisions.
const carrierEnds = 5 * time.Second

// maxCarrierWord bounds a message.
const maxCarrierWord = 64 << 10

// carrier is the runner's side.
type carrier struct {
	started  chan struct{} // closed when the process runs, or could not be started
	err      error         // of the start
	pid      int
	socket   int
	decided  func(carrel.Decision)
	attached atomic.Bool
	over     atomic.Bool   // its end is expected
	broken   chan error    // gets one error if the carrier can't carry the network
	read     chan struct{} // closed when the carrier has sent its last word
	once     sync.Once
}

var _ Wire = (*carrier)(nil)

// startCarrier starts the whole program and returns at once.
func startCarrier(whole func() (*os.File, error)) *carrier {
	c := &carrier{started: make(chan struct{}), socket: -1, broken: make(chan error, 1), read: make(chan struct{})}
	go func() {
		defer close(c.started)
		c.err = c.start(whole)
	}()
	return c
}

func (c *carrier) start(whole func() (*os.File, error)) error {
	program, err := whole()
	if err != nil {
		return err
	}
	defer program.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[1])
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(pair[0])
		return &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	defer unix.Close(null)
	at, err := unix.FcntlInt(program.Fd(), unix.F_DUPFD_CLOEXEC, proc.AboveChild(null, pair[1]))
	if err != nil {
		_ = unix.Close(pair[0])
		return os.NewSyscallError("dup", err)
	}
	defer unix.Close(at)
	// The carrier has a session of its own. A signal from the terminal is for the command, which
	// may run on after it.
	attr := &syscall.ProcAttr{Env: os.Environ(), Dir: "/", Sys: &syscall.SysProcAttr{Setsid: true},
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(pair[1])}}
	err = proc.Alone(func() (err error) {
		proc.CloseOnExec(3)
		c.pid, err = syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(at), []string{CarrierName}, attr)
		return err
	})
	if err != nil {
		_ = unix.Close(pair[0])
		return os.NewSyscallError("start the carrier", err)
	}
	c.socket = pair[0]
	return nil
}

// carried reports whether another process can carry a policy. A policy that puts values into
// requests can't be carried, because the values would have to go there. Nor can one that opens TLS,
// because the box must know the authority before it starts.
func carried(p carrel.Policy) bool {
	return policy.Passes(p)
}

// order sends the carrier its order.
func (c *carrier) order(o WireOptions) error {
	<-c.started
	if c.err != nil {
		return c.err
	}
	c.decided = o.Decided
	text, err := json.Marshal(carrierOrder{o.Policy, o.Table})
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	if n, err := unix.Pwrite(fd, text, 0); err != nil || n < len(text) {
		return errors.Join(errors.New("the carrier's order could not be written"), err)
	}
	go c.listen()
	return sendOne(c.socket, []byte{'o'}, fd)
}

// listen reads the carrier's words until its end.
func (c *carrier) listen() {
	defer close(c.read)
	buf := make([]byte, maxCarrierWord)
	for {
		n, _, err := receiveOne(c.socket, buf)
		if err != nil || n == 0 {
			if !c.over.Load() {
				c.broken <- errors.New("the process that carries the box's network has ended")
			}
			return
		}
		var w carrierWord
		switch err := json.Unmarshal(buf[:n], &w); {
		case err != nil:
		case w.Attached:
			c.attached.Store(true)
		case w.Refused != nil && c.decided != nil:
			c.decided(*w.Refused)
		case w.Failure != "":
			c.over.Store(true) // it says why itself
			c.broken <- errors.New(w.Failure)
		}
	}
}

// Authority implements Wire. A policy that opens TLS is never carried.
func (c *carrier) Authority() []byte { return nil }

// Env implements Wire. A policy that puts in secrets is never carried.
func (c *carrier) Env() map[string]string { return nil }

// Attach implements Wire. It does not wait. Broken tells whether the carrier failed to attach the
// link.
func (c *carrier) Attach(_ context.Context, link *os.File) error {
	defer link.Close() // the carrier has a copy, and the device ends with that copy
	return sendOne(c.socket, []byte{'l'}, int(link.Fd()))
}

// Broken gets an error when the box has lost its network.
func (c *carrier) Broken() <-chan error { return c.broken }

// Close implements Wire. It ends the carrier after the carrier has reported all its decisions. A
// carrier without a link has decided nothing.
func (c *carrier) Close() error {
	c.once.Do(func() {
		<-c.started
		if c.err != nil {
			return
		}
		c.over.Store(true)
		if c.attached.Load() {
			_ = unix.Shutdown(c.socket, unix.SHUT_WR)
		} else {
			_ = unix.Kill(c.pid, unix.SIGKILL) // it is our child, and nobody else waits for it
		}
		if c.decided != nil {
			select {
			case <-c.read:
			case <-time.After(carrierEnds):
				_ = unix.Kill(c.pid, unix.SIGKILL)
				<-c.read
			}
		}
		for {
			if _, err := syscall.Wait4(c.pid, nil, 0, nil); err != syscall.EINTR {
				break
			}
		}
		_ = unix.Close(c.socket)
	})
	return nil
}

// Carry is the carrier's own part. It carries the network with the wire that open makes, and
// returns when there is nothing more to carry.
func Carry(open func(WireOptions) (Wire, error)) {
	unix.CloseOnExec(carrierFD)
	var mu sync.Mutex
	say := func(w carrierWord) {
		text, err := json.Marshal(w)
		if err == nil && len(text) > maxCarrierWord && w.Refused != nil {
			w.Refused.Path = ""
			text, err = json.Marshal(w)
		}
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		_ = sendOne(carrierFD, text)
	}
	way, err := carry(open, say)
	if err != nil {
		say(carrierWord{Failure: err.Error()})
	}
	if way != nil {
		_ = way.Close() // reports the remaining decisions
	}
}

// carry follows the runner's order until the runner ends.
func carry(open func(WireOptions) (Wire, error), say func(carrierWord)) (Wire, error) {
	var way Wire
	buf := make([]byte, 16)
	for {
		n, fds, err := receiveOne(carrierFD, buf)
		if err != nil || n == 0 {
			return way, nil // the runner is done, or gone
		}
		if len(fds) != 1 {
			return way, errors.New("a message without its descriptor")
		}
		f := os.NewFile(uintptr(fds[0]), "from the runner")
		switch {
		case buf[0] == 'o' && way == nil:
			var o carrierOrder
			err := json.NewDecoder(f).Decode(&o)
			_ = f.Close()
			if err != nil {
				return nil, err
			}
			way, err = open(WireOptions{Policy: o.Policy, Table: o.Table, Lookup: func(string) (string, bool) { return "", false }, Decided: func(d carrel.Decision) {
				if !d.Allowed { // the runner wants no others
					say(carrierWord{Refused: &d})
				}
			}})
			if err != nil {
				return nil, err
			}
		case buf[0] == 'l' && way != nil:
			_ = unix.SetNonblock(fds[0], true)
			_ = proc.Park(fds[0]) // otherwise this process, for which the runner waits, would take 20 ms longer to end
			if err := way.Attach(context.Background(), f); err != nil {
				return way, err
			}
			say(carrierWord{Attached: true})
		}
	}
}

// sendOne sends one datagram.
func sendOne(socket int, b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(socket, b, oob, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return os.NewSyscallError("sendmsg", err)
		}
	}
}

// receiveOne waits for one datagram. An empty one means that the other end is closed.
func receiveOne(socket int, b []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		var oobn int
		n, oobn, _, _, err = unix.Recvmsg(socket, b, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, nil, os.NewSyscallError("recvmsg", err)
		}
		fds, err = proc.Rights(oob[:oobn])
		return n, fds, err
	}
}

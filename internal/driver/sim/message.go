package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// The daemon and a worker talk over one socket of records. A request has an operation; its answer
// has the request's number. Both sides send requests. Descriptors are passed beside the text.

// Operations that the daemon requests from a worker.
const (
	opCreate   = "create"   // Spec, Names
	opLoad     = "restore"  // Spec, Names; the snapshot's file
	opDial     = "dial"     // Sandbox, Port; the guest's end
	opStats    = "stats"    // Sandbox
	opDestroy  = "destroy"  // Sandbox
	opSnapshot = "snapshot" // Sandbox; the new file
	opFiles    = "files"    // Spec; the snapshot's file, the output for the tar stream, then streamEnd
	opPrograms = "programs" // Sandbox, Names: from now on its owner's programs
	opCancel   = "cancel"   // Of: the caller of that request gave up
)

// Operations that a worker requests from the daemon.
const (
	opLocal = "local" // Sandbox; the host's end
	opLink  = "link"  // Sandbox; the daemon's end of its link
	opRun   = "run"   // Sandbox, Name of a program; the daemon's end of its connection
)

// message is one record.
type message struct {
	ID      uint64 `json:"id"`
	Op      string `json:"op,omitempty"` // "" in an answer
	Sandbox carrel.ID
	Name    string               `json:"name,omitempty"`
	Names   []string             `json:"names,omitempty"`
	Of      uint64               `json:"of,omitempty"`
	Port    uint16               `json:"port,omitempty"`
	Spec    *driver.Spec         `json:"spec,omitempty"`
	Stats   *driver.Stats        `json:"stats,omitempty"`
	Info    *driver.SnapshotInfo `json:"info,omitempty"`
	Failed  *failure             `json:"failed,omitempty"`

	files []*os.File // descriptors beside it; the receiver closes them
}

// failure is an error in the form for another process.
type failure struct {
	Op, Kind, Field, Text, Hint string
	ID                          carrel.ID
	Errno                       syscall.Errno
}

// failed describes an error; nil for no error.
func failed(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Kind: string(carrel.KindOf(err)), Text: err.Error(), Hint: carrel.HintOf(err)}
	var e *carrel.Error
	if errors.As(err, &e) {
		f.Op, f.Field, f.ID = e.Op, e.Field, e.ID
		if f.Text = ""; e.Err != nil {
			f.Text = e.Err.Error()
		}
	}
	_ = errors.As(err, &f.Errno) // 0 is none
	return f
}

// told is an error that came from another process.
type told struct {
	text  string
	errno syscall.Errno
}

func (t told) Error() string { return t.text }

// Is finds the error's number.
func (t told) Is(target error) bool { return t.errno != 0 && target == t.errno }

// err turns a failure back into an error.
func (f *failure) err() error {
	if f == nil {
		return nil
	}
	kind := carrel.Kind(f.Kind)
	return &carrel.Error{Op: f.Op, Kind: kind, ID: f.ID, Field: f.Field, Hint: f.Hint, Err: told{f.Text, f.Errno}}
}

// Bounds of one record, and of requests at once.
const (
	maxMessage = 64 << 10
	maxFiles   = 4
	maxServing = 1024
)

// line is one side of the socket.
type line struct {
	c *net.UnixConn

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan message // closed when the line breaks
	serving map[uint64]context.CancelFunc
	broken  error
}

// newLine returns the line of a socket of records. It owns the socket.
func newLine(f *os.File) (*line, error) {
	c, err := net.FileConn(f)
	_ = f.Close() // FileConn has a copy
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("the worker's line is no unix socket")
	}
	return &line{c: u, waiting: map[uint64]chan message{}, serving: map[uint64]context.CancelFunc{}}, nil
}

// send writes one record and closes its files.
func (l *line) send(m message) error {
	defer closeFiles(m.files)
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return fmt.Errorf("a message of %d bytes", len(b))
	}
	var rights []byte
	if len(m.files) > 0 {
		fds := make([]int, len(m.files))
		for i, f := range m.files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = l.c.WriteMsgUnix(b, rights, nil)
	return err
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// receive reads one record.
func (l *line) receive(buf []byte) (m message, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := l.c.ReadMsgUnix(buf, oob)
	if err != nil {
		return m, err
	}
	controls, _ := unix.ParseSocketControlMessage(oob[:oobn]) // controls that can't be parsed hold no descriptors
	for _, c := range controls {
		fds, _ := unix.ParseUnixRights(&c)
		for _, fd := range fds {
			m.files = append(m.files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	switch {
	case n == 0:
		err = net.ErrClosed
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("a message was too long")
	default:
		err = json.Unmarshal(buf[:n], &m)
	}
	if err != nil {
		closeFiles(m.files)
	}
	return m, err
}

// serve reads records until the line breaks. It handles each request on a goroutine of its own and
// sends the answer.
func (l *line) serve(handle func(context.Context, message) message) error {
	buf := make([]byte, maxMessage)
	free := make(chan struct{}, maxServing)
	for {
		m, err := l.receive(buf)
		if err != nil {
			l.hangUp(err)
			return err
		}
		if m.Op == "" {
			l.mu.Lock()
			c := l.waiting[m.ID]
			delete(l.waiting, m.ID)
			l.mu.Unlock()
			if c == nil { // nobody waits any more
				closeFiles(m.files)
				continue
			}
			c <- m
			continue
		}
		if m.Op == opCancel {
			l.mu.Lock()
			if cancel := l.serving[m.Of]; cancel != nil {
				cancel()
			}
			l.mu.Unlock()
			closeFiles(m.files)
			continue
		}
		free <- struct{}{} // so a hostile worker can't flood the daemon
		ctx, cancel := context.WithCancel(context.Background())
		l.mu.Lock()
		l.serving[m.ID] = cancel
		l.mu.Unlock()
		go func() {
			answer := handle(ctx, m)
			cancel()
			<-free
			l.mu.Lock()
			delete(l.serving, m.ID)
			l.mu.Unlock()
			answer.ID, answer.Op = m.ID, ""
			if err := l.send(answer); err != nil {
				l.hangUp(err)
			}
		}()
	}
}

// hangUp breaks the line. Callers that wait get no answer.
func (l *line) hangUp(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
		_ = l.c.Close()
	}
	for id, c := range l.waiting {
		close(c)
		delete(l.waiting, id)
	}
	for _, cancel := range l.serving {
		cancel()
	}
}

// errGone means that the other side has ended.
var errGone = errors.New("the worker process has ended")

// cancelTime bounds the wait for the end of a cancelled request.
const cancelTime = 5 * time.Second

// ask sends a request and waits for its answer. If done is closed first, ask cancels the request,
// waits a moment for its end and returns errAway.
func (l *line) ask(done <-chan struct{}, m message) (message, error) {
	answer := make(chan message, 1)
	l.mu.Lock()
	if l.broken != nil {
		l.mu.Unlock()
		closeFiles(m.files)
		return message{}, errGone
	}
	l.last++
	m.ID = l.last
	l.waiting[m.ID] = answer
	l.mu.Unlock()
	if err := l.send(m); err != nil {
		l.hangUp(err)
		return message{}, errGone
	}
	select {
	case got, ok := <-answer:
		if !ok {
			return message{}, errGone
		}
		return got, got.Failed.err()
	case <-done:
	}
	_ = l.send(message{Op: opCancel, Of: m.ID}) // on a broken line there is nothing to cancel
	late := time.NewTimer(cancelTime)
	defer late.Stop()
	select {
	case got := <-answer:
		closeFiles(got.files)
	case <-late.C:
	}
	l.mu.Lock()
	delete(l.waiting, m.ID)
	l.mu.Unlock()
	return message{}, errAway
}

// errAway means that the caller gave up.
var errAway = errors.New("no longer waited for")

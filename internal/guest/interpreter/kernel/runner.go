package kernel

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/interpreter/jupyter"
)

const (
	// maxLine is the longest line of a runner that is kept.
	maxLine = jupyter.MaxMessage
	// outChunk is the most that is read of a program's output at once.
	outChunk = 32 << 10
	// drainPoll is the time between two looks at whether a pipe is empty.
	drainPoll = 200 * time.Microsecond
	// lostTime is how long a process may take to its end after it closed the protocol's descriptors.
	lostTime = 500 * time.Millisecond
	// tooLong is what a cell's user reads in place of a value that was left out.
	tooLong = "carrel: a result of more than 64 MiB was left out\n"
)

// request is a cell on its way to a runner.
type request struct {
	ID   int               `json:"id"`
	Code string            `json:"code"`
	Base map[string]string `json:"base,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
}

// line is what a runner says.
type line struct {
	Type      string                     `json:"type"`
	ID        int                        `json:"id"` // of "done"
	Protocol  string                     `json:"protocol"`
	Text      string                     `json:"text"`
	Main      bool                       `json:"main"`
	Data      map[string]json.RawMessage `json:"data"`
	Name      string                     `json:"name"`
	Value     string                     `json:"value"`
	Traceback string                     `json:"traceback"`
	Count     int                        `json:"count"`
}

// event translates a line; ok is false if it is none of a cell's events.
func (l line) event() (e Event, ok bool) {
	switch l.Type {
	case "stdout":
		return Event{Type: Stdout, Text: l.Text}, true
	case "stderr":
		return Event{Type: Stderr, Text: l.Text}, true
	case "result":
		return Event{Type: Result, Main: l.Main, Data: forms(l.Data)}, true
	case "error":
		return Event{Type: Error, Name: l.Name, Value: l.Value, Traceback: l.Traceback}, true
	case "count":
		return Event{Type: Count, N: l.Count}, true
	}
	return Event{}, false
}

// runner is a kernel that speaks our own protocol.
type runner struct {
	*process
	requests io.WriteCloser
	lines    chan line
	out, err *output
	id       int // of the last cell
	encode   func(request) ([]byte, error)
}

// readLines hands on the runner's lines until its end.
func readLines(r io.Reader, to chan<- line, done <-chan struct{}) {
	defer close(to)
	in := bufio.NewReaderSize(r, 32<<10)
	for {
		raw, err := readLine(in)
		var l line
		switch {
		case errors.Is(err, errLong):
			l = line{Type: "stderr", Text: tooLong}
		case err != nil:
			return
		case json.Unmarshal(raw, &l) != nil:
			continue // the program wrote to our descriptor
		}
		select {
		case to <- l:
		case <-done:
			return
		}
	}
}

var errLong = errors.New("a line is too long")

// readLine reads a line of at most maxLine bytes. A longer one is skipped.
func readLine(in *bufio.Reader) ([]byte, error) {
	var buf []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if long = long || len(buf)+len(part) > maxLine; !long {
			buf = append(buf, part...)
		} else {
			buf = nil
		}
		if err == nil && long {
			return nil, errLong
		}
		if err == nil {
			return bytes.TrimSuffix(buf, []byte("\n")), nil
		}
	}
}

// Run runs one cell.
func (r *runner) Run(ctx context.Context, c Cell, sink Sink) error {
	r.id++
	raw, err := r.encode(request{ID: r.id, Code: c.Code, Base: c.Base, Env: c.Env})
	if err != nil {
		return err
	}
	ordered := &orderedSink{sink: sink}
	r.out.attach(ordered)
	r.err.attach(ordered)
	defer r.detach()
	sent := make(chan error, 1)
	go func() { _, err := r.requests.Write(raw); sent <- err }()
	for {
		select {
		case l, ok := <-r.lines:
			switch e, is := l.event(); {
			case !ok:
				return r.lost()
			case is:
				err = ordered.put(e)
			case l.Type == "done" && l.ID == r.id:
				r.out.drain()
				r.err.drain()
				return ordered.err()
			}
		case err = <-sent:
			sent = nil
			if err != nil {
				err = ErrDied
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// lost ends a runner that closed its end of the protocol, if it has not ended already.
func (r *runner) lost() error {
	select {
	case <-r.done:
	case <-time.After(lostTime):
		r.condemn("it closed its connection to the interpreter")
	}
	return ErrDied
}

// detach drops what is printed from now on.
func (r *runner) detach() {
	r.out.attach(nil)
	r.err.attach(nil)
}

// Settle waits for the end of the cell whose Run was left.
func (r *runner) Settle(ctx context.Context) error {
	for {
		select {
		case l, ok := <-r.lines:
			if !ok {
				return r.lost()
			}
			if l.Type == "done" && l.ID == r.id {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// orderedSink is a sink for several writers. It keeps the first error.
type orderedSink struct {
	mu     sync.Mutex
	sink   Sink
	failed error
}

func (o *orderedSink) put(e Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		o.failed = o.sink(e)
	}
	return o.failed
}

func (o *orderedSink) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// output reads what a program prints and gives it to the cell that runs. Without one it drops it, so
// that a server which an earlier cell started does not wait for a reader.
type output struct {
	file *os.File
	typ  EventType

	mu   sync.Mutex // held from a read until its bytes are delivered
	to   *orderedSink
	read int64  // bytes
	tail *tail  // gets what no cell takes; may be nil
	left []byte // the beginning of a character whose end has not been read
}

// newOutput starts to read a pipe. rest, if not nil, gets what no cell takes.
func newOutput(f *os.File, typ EventType, rest *tail) *output {
	o := &output{file: f, typ: typ, tail: rest}
	go o.follow()
	return o
}

func (o *output) attach(to *orderedSink) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to, o.left = to, nil
}

// follow reads until the pipe's last writer is gone.
func (o *output) follow() {
	defer o.file.Close()
	conn, err := o.file.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, outChunk)
	for ended := false; !ended && err == nil; {
		err = conn.Read(func(fd uintptr) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			n, err := syscall.Read(int(fd), buf)
			if errors.Is(err, syscall.EAGAIN) {
				return false
			}
			if ended = n <= 0; !ended {
				o.deliver(buf[:n])
			}
			return true
		})
	}
}

// deliver hands on whole characters. The caller holds mu.
func (o *output) deliver(b []byte) {
	o.read += int64(len(b))
	if o.to == nil {
		if o.tail != nil {
			_, _ = o.tail.Write(b)
		}
		return
	}
	text := append(o.left, b...)
	cut := len(text) - incomplete(text)
	o.left = bytes.Clone(text[cut:])
	if cut > 0 {
		whole := string(bytes.ToValidUTF8(text[:cut], []byte("\ufffd")))
		_ = o.to.put(Event{Type: o.typ, Text: whole}) // the sink keeps its error
	}
}

// incomplete returns how many bytes at the end of b begin a character that is not whole.
func incomplete(b []byte) int {
	for n := 1; n <= 3 && n <= len(b); n++ {
		c := b[len(b)-n]
		switch {
		case c < 0x80:
			return 0
		case c >= 0xc0: // the first byte of a character of 2, 3 or 4 bytes
			if (c < 0xe0 && n < 2) || (c >= 0xe0 && c < 0xf0 && n < 3) || (c >= 0xf0 && n < 4) {
				return n
			}
			return 0
		}
	}
	return 0
}

// drain waits until everything is delivered that was in the pipe when it was called. It does not
// wait for more, because a program in the background may go on printing.
func (o *output) drain() {
	var target int64
	for waiting := 1; ; time.Sleep(drainPoll) {
		conn, err := o.file.SyscallConn()
		if err != nil {
			return
		}
		var have int64
		err = conn.Control(func(fd uintptr) {
			o.mu.Lock()
			defer o.mu.Unlock()
			waiting, _ = unix.IoctlGetInt(int(fd), bytesWaiting)
			have = o.read
		})
		if target == 0 {
			target = have + int64(waiting)
		}
		if err != nil || waiting == 0 || have >= target {
			return // a closed pipe was read to its end
		}
	}
}

package agent

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// drainGrace applies after a process has ended while a child still holds its pipe. When the
	// pipe was silent for this long, it counts as read to the end.
	drainGrace = 100 * time.Millisecond
	// drainBlind is the same for a System whose pipes do not report pending bytes.
	drainBlind = time.Second
	// readSmall and readLarge are the sizes of the output buffer. It is small until a read fills
	// it, because most processes are silent most of the time.
	readSmall, readLarge = 4 << 10, 64 << 10
)

// drainable is an optional interface of a process's output. It tells for certain whether all was
// read, so no output is lost on a busy machine that lets us read late.
type drainable interface {
	SetReadDeadline(time.Time) error
	// Pending returns how many bytes can be read now.
	Pending() (int, error)
}

// pump reads one output of a process to its end.
type pump struct {
	src  io.Reader
	from stream
	out  *output

	exited atomic.Bool   // the process has ended; its children may still run
	after  int           // bytes read since then; for the reading goroutine only
	empty  chan struct{} // closed when all of the process's own output was read
	once   sync.Once
}

func newPump(src io.Reader, from stream, out *output) *pump {
	return &pump{src: src, from: from, out: out, empty: make(chan struct{})}
}

// run reads until the last writer closes the pipe, or until our side is closed.
func (p *pump) run() {
	defer p.markEmpty()
	buf := make([]byte, readSmall)
	for {
		n, err := p.src.Read(buf)
		if n > 0 {
			p.out.add(p.from, buf[:n])
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.onSilence()
		case err != nil:
			return
		case n == len(buf) && n < readLarge:
			buf = make([]byte, readLarge)
		}
		if p.exited.Load() {
			// A child that writes without end would never be silent. More bytes than a pipe can
			// hold are not the process's own output.
			if p.after += n; p.after > outputLimit {
				p.markEmpty()
			}
		}
	}
}

// exit tells the pump that the process has ended. If the pump can't find out by itself whether it
// has read everything, exit returns a channel that fires when it is time to give up.
func (p *pump) exit() <-chan time.Time {
	p.exited.Store(true)
	if d, ok := p.src.(drainable); ok && d.SetReadDeadline(time.Now().Add(drainGrace)) == nil {
		return nil
	}
	return time.After(drainBlind)
}

// onSilence is called when nothing was read until the deadline that exit set. That alone proves
// nothing, because the machine may have been too busy to read.
func (p *pump) onSilence() {
	d := p.src.(drainable) // it had a deadline
	if n, err := d.Pending(); err == nil && n > 0 {
		_ = d.SetReadDeadline(time.Now().Add(drainGrace)) // it worked before
		return
	}
	p.markEmpty()
	_ = d.SetReadDeadline(time.Time{})
}

func (p *pump) markEmpty() { p.once.Do(func() { close(p.empty) }) }

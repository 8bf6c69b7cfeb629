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
	// drainGrace is how long a pipe must be silent, after its process has ended,
	// to count as read to the end although a child still holds it.
	drainGrace = 100 * time.Millisecond
	// drainBlind is the same for a System whose pipes can't be asked.
	drainBlind = time.Second
	// Sizes of the buffer that output is read into: small until a read fills it,
	// because most processes are silent most of the time.
	readSmall, readLarge = 4 << 10, 64 << 10
)

// drainable is what the output of a System's processes may be, so that it can be
// known for certain that all was read: however late a busy machine lets us read,
// no output may be lost.
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

	exited atomic.Bool   // the process has ended, children of it may not
	after  int           // bytes read since; of the reading goroutine alone
	empty  chan struct{} // closed when all that the process itself wrote was read
	once   sync.Once
}

func newPump(src io.Reader, from stream, out *output) *pump {
	return &pump{src: src, from: from, out: out, empty: make(chan struct{})}
}

// run reads until the last writer has closed the pipe, or it is closed under it.
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
			// A child that never stops writing would never be silent: past what any
			// pipe holds, it is not the process's own output any more.
			if p.after += n; p.after > outputLimit {
				p.markEmpty()
			}
		}
	}
}

// exit tells the pump that the process has ended and returns a channel that fires
// when the pump can't find out by itself whether it has read everything.
func (p *pump) exit() <-chan time.Time {
	p.exited.Store(true)
	if d, ok := p.src.(drainable); ok && d.SetReadDeadline(time.Now().Add(drainGrace)) == nil {
		return nil
	}
	return time.After(drainBlind)
}

// onSilence is called when nothing was read until the deadline that exit set.
// That alone proves nothing, for the machine may have been too busy to read.
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

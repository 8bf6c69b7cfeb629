//go:build linux

package tier

import (
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/term"
)

// Copying takes a moment for a project and long for a home. A copy of more than a second is
// reported on standard error: on a terminal in one line that is overwritten and removed at the end,
// elsewhere in a line now and then.

// progress reports a long wait to a person. A nil progress reports nothing.
type progress struct {
	w        io.Writer
	terminal bool
	begun    time.Time // earlier waits count, too: ten short waits are a long one

	mu    sync.Mutex
	said  time.Time // when the last line was written
	lines int
}

// The times of progress.
const (
	patience  = time.Second
	redraw    = 200 * time.Millisecond // on a terminal
	sayAgain  = 10 * time.Second       // elsewhere
	lineStart = "\r\x1b[K"             // takes away what the line has
)

// newProgress makes the progress of a request.
func newProgress(r *Request) *progress {
	if r.Progress == nil {
		return nil
	}
	p := &progress{w: r.Progress, begun: time.Now()}
	if f, ok := r.Progress.(interface{ Fd() uintptr }); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// during reports an activity until the returned function is called. far says how much of it is
// done.
func (p *progress) during(what string, far func() string) (done func()) {
	if p == nil {
		return func() {}
	}
	stop := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		wait := time.NewTimer(max(patience-time.Since(p.begun), 0))
		defer wait.Stop()
		for {
			select {
			case <-stop:
				return
			case <-wait.C:
			}
			p.say(what + far())
			wait.Reset(redraw)
		}
	})
	return func() {
		close(stop)
		ended.Wait()
		p.clear()
	}
}

// say writes one state.
func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "%scarrel: %s", lineStart, text)
	case p.lines == 0 || time.Since(p.said) >= sayAgain:
		fmt.Fprintf(p.w, "carrel: %s\n", text)
	default:
		return
	}
	p.lines++
	p.said = time.Now()
}

// clear takes the line away.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.lines > 0 {
		fmt.Fprint(p.w, lineStart)
		p.lines = 0
	}
}

// again begins a new wait, after the command.
func (p *progress) again() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.lines = time.Now(), 0
}

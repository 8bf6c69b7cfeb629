package kernel

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Program is a started program that a [Streams] kernel talks to: a runner of ours on a system that
// gives a program three streams and no other descriptor.
type Program interface {
	PID() int
	Stdin() io.WriteCloser
	Stdout() io.Reader
	Stderr() io.Reader
	// Kill ends the program and all that it started. It may be called in any state.
	Kill()
	// Wait returns how the program ended, once it has. It may be called once.
	Wait() string
}

// Runner is a runner's files and its command, of which the first word is a program's name.
type Runner struct {
	Files   map[string][]byte // by name
	Command []string          // in it, the files are named by their path
	mark    string
}

// StreamsRunner returns the runner of a language for a [Streams] kernel whose files are in dir.
func StreamsRunner(language, dir string) (Runner, error) {
	r := Runner{Files: map[string][]byte{}, mark: "\x1e" + rand.Text() + " "}
	var names []string
	switch language {
	case Python:
		names = []string{"carrel_kernel.py", "carrel_plain.py", "carrel_charts.py", "carrel_pillow.py"}
		r.Command = []string{"python3", dir + "/" + names[0], "mark:" + r.mark}
	case JavaScript:
		names = []string{"quick.js"}
		r.Command = []string{"node", dir + "/" + names[0], r.mark}
	default:
		return r, fmt.Errorf("%w: %q: there are python and javascript", ErrUnknown, language)
	}
	for _, name := range names {
		raw, err := scripts.ReadFile("scripts/" + name)
		if err != nil {
			return r, err
		}
		r.Files[name] = raw
	}
	return r, nil
}

// Streams is a kernel that has its program's three streams. Lines of the runner are marked; all else
// on the standard output is the cell's. An interrupt ends the program: here are no signals.
type Streams struct {
	program Program
	mark    []byte
	lines   chan line
	done    chan struct{}
	said    *tail
	id      int

	mu     sync.Mutex
	reason string
}

var _ Kernel = (*Streams)(nil)

// NewStreams waits until the runner in a program is ready. After an error the program has ended.
func NewStreams(ctx context.Context, p Program, r Runner) (*Streams, error) {
	k := &Streams{program: p, mark: []byte(r.mark), lines: make(chan line), done: make(chan struct{}),
		said: &tail{}}
	var readers sync.WaitGroup
	readers.Go(func() { k.readOut(p.Stdout()) })
	readers.Go(func() { k.readErr(p.Stderr()) })
	go func() {
		why := p.Wait()
		k.mu.Lock()
		k.reason = why
		k.mu.Unlock()
		close(k.done)
		readers.Wait()
		close(k.lines)
	}()
	for {
		select {
		case l, ok := <-k.lines:
			if !ok {
				return nil, fmt.Errorf("the kernel did not start: %s%s", k.Reason(), k.said)
			}
			if l.Type == "ready" {
				return k, nil
			}
			_, _ = io.WriteString(k.said, l.Text)
		case <-ctx.Done():
			k.Close()
			return nil, fmt.Errorf("the kernel did not start in time: %w%s", ctx.Err(), k.said)
		}
	}
}

// emit hands on a line, unless the program has ended and nobody waits.
func (k *Streams) emit(l line) bool {
	select {
	case k.lines <- l:
		return true
	default:
	}
	select {
	case k.lines <- l:
		return true
	case <-k.done:
		return false
	}
}

// readOut takes the runner's lines and the text between them.
func (k *Streams) readOut(r io.Reader) {
	var buf []byte
	chunk := make([]byte, outChunk)
	for {
		n, err := r.Read(chunk)
		long := len(buf) > outChunk // a line of the runner whose end was not in what came before
		if buf = append(buf, chunk[:n]...); long && err == nil && len(buf) <= maxLine &&
			bytes.IndexByte(chunk[:n], '\n') < 0 {
			continue
		}
		if buf = k.split(buf); err != nil {
			if len(buf) > 0 {
				k.emit(line{Type: "stdout", Text: string(bytes.ToValidUTF8(buf, []byte("\ufffd")))})
			}
			return
		}
	}
}

// split hands on what is whole in buf, and returns the rest.
func (k *Streams) split(buf []byte) []byte {
	for {
		at := bytes.Index(buf, k.mark)
		text := at
		if at < 0 { // its beginning may be at the end
			text = len(buf) - overlap(buf, k.mark)
			text -= incomplete(buf[:text])
		}
		if text > 0 {
			k.emit(line{Type: "stdout", Text: string(bytes.ToValidUTF8(buf[:text], []byte("\ufffd")))})
			buf = buf[text:]
		}
		if at < 0 {
			return buf
		}
		raw, rest, whole := bytes.Cut(buf[len(k.mark):], []byte("\n"))
		var l line
		switch {
		case !whole && len(raw) > maxLine:
			k.program.Kill()
			return nil
		case !whole:
			return buf
		case json.Unmarshal(raw, &l) == nil:
			k.emit(l)
		}
		buf = rest
	}
}

// overlap returns how many bytes at the end of b are the beginning of mark.
func overlap(b, mark []byte) int {
	for n := min(len(b), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(b, mark[:n]) {
			return n
		}
	}
	return 0
}

// readErr takes what is printed past the runner.
func (k *Streams) readErr(r io.Reader) {
	var left []byte
	chunk := make([]byte, outChunk)
	for {
		n, err := r.Read(chunk)
		left = append(left, chunk[:n]...)
		cut := len(left) - incomplete(left)
		if err != nil {
			cut = len(left)
		}
		if cut > 0 {
			text := string(bytes.ToValidUTF8(left[:cut], []byte("\ufffd")))
			k.emit(line{Type: "stderr", Text: text})
			left = bytes.Clone(left[cut:])
		}
		if err != nil {
			return
		}
	}
}

// Run implements Kernel.
func (k *Streams) Run(ctx context.Context, c Cell, sink Sink) error {
	k.id++
	raw, err := encodeJSON(request{ID: k.id, Code: c.Code, Base: c.Base, Env: c.Env})
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { _, err := k.program.Stdin().Write(raw); sent <- err }()
	for {
		select {
		case l, ok := <-k.lines:
			if !ok {
				return ErrDied
			}
			if e, is := l.event(); is {
				err = sink(e)
			} else if l.Type == "done" && l.ID == k.id {
				return nil
			}
		case err = <-sent:
			if sent = nil; err != nil {
				k.Close()
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

// Interrupt implements Kernel. It ends the program.
func (k *Streams) Interrupt() { k.program.Kill() }

// Settle implements Kernel.
func (k *Streams) Settle(ctx context.Context) error {
	for {
		select {
		case l, ok := <-k.lines:
			if !ok {
				return ErrDied
			}
			if l.Type == "done" && l.ID == k.id {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Done implements Kernel.
func (k *Streams) Done() <-chan struct{} { return k.done }

// Reason implements Kernel.
func (k *Streams) Reason() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reason
}

// PID implements Kernel.
func (k *Streams) PID() int { return k.program.PID() }

// closeTime bounds the wait for a program that was killed.
const closeTime = 10 * time.Second

// Close implements Kernel.
func (k *Streams) Close() {
	k.program.Kill()
	select {
	case <-k.done:
	case <-time.After(closeTime): // it is killed; its end only comes late
	}
}

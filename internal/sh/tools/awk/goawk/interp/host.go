package interp

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"strings"
	"time"
)

// Host is where a program runs. There are no other ways out of the interpreter.
type Host interface {
	// Open opens a file for reading.
	Open(name string) (io.ReadCloser, error)
	// Create opens a file for writing, or appending.
	Create(name string, appending bool) (io.WriteCloser, error)
	// System runs a shell command and returns its status.
	System(command string) int
	// Reader runs a shell command whose output is read; wait returns its status.
	Reader(command string) (r io.ReadCloser, wait func() int, err error)
	// Writer runs a shell command whose input is written.
	Writer(command string) (w io.WriteCloser, wait func() int, err error)
	// Both runs a shell command that is read and written.
	Both(command string) (r io.ReadCloser, w io.WriteCloser, wait func() int, err error)
	// Step and Pay are those of package tool.
	Step(n int) bool
	Pay(n int64) error
	// IDs are the numbers of the process and its users, by their names in PROCINFO.
	IDs() map[string]int
	// Now is the clock.
	Now() time.Time
	// Warn prints a warning.
	Warn(format string, args ...any)
	// ErrText words an error of the others.
	ErrText(err error) string
}

// ErrStopped ends a program that may not go on.
var ErrStopped = errors.New("stopped")

const notClosedExitCode = -127

var errDoubleClose = errors.New("close: stream already closed")

type inputStream interface {
	io.ReadCloser
	ExitCode() int
}

type outputStream interface {
	io.Writer
	Flush() error
	Close() error
	ExitCode() int
}

// stream is a file or a command, either way.
type stream struct {
	io.Reader
	*bufio.Writer
	closer   io.Closer
	wait     func() int
	exitCode int
	closed   bool
}

func (s *stream) Read(b []byte) (int, error)  { return s.Reader.Read(b) }
func (s *stream) Write(b []byte) (int, error) { return s.Writer.Write(b) }
func (s *stream) ExitCode() int               { return s.exitCode }

func (s *stream) Flush() error {
	if s.Writer == nil {
		return nil
	}
	return s.Writer.Flush()
}

func (s *stream) Close() error {
	if s.closed {
		return errDoubleClose
	}
	s.closed = true
	err := s.Flush()
	if cerr := s.closer.Close(); err == nil {
		err = cerr
	}
	s.exitCode = 0
	if s.wait != nil {
		s.exitCode = s.wait()
	} else if err != nil {
		s.exitCode = -1
	}
	return err
}

// steps pays for a batch of instructions.
func (p *interp) steps() error {
	if p.broke != nil {
		return p.broke
	}
	if p.ctxOps++; p.ctxOps < 64 {
		return nil
	}
	p.ctxOps = 0
	if !p.host.Step(24) {
		return ErrStopped
	}
	return nil
}

// elementCost is what an element of an array costs beside its texts.
const elementCost = 160

// owes is how much is paid at a time.
const owes = 32 << 10

// maxString is the longest string.
const maxString = 64 << 20

// keep pays for what a variable holds beyond what it held.
func (p *interp) keep(old, v value) {
	if d := len(v.s) - len(old.s); d != 0 {
		p.pay(int64(d))
	}
}

// pay takes memory, in large pieces; the program ends soon when there is none left.
func (p *interp) pay(n int64) {
	if p.owed += n; p.owed > -owes && p.owed < owes {
		return
	}
	n, p.owed = p.owed, 0
	if err := p.host.Pay(n); err != nil && p.broke == nil {
		p.broke = err
	}
}

// own returns a text that does not keep a much longer record alive, of which it is a part.
func (p *interp) own(s string) string {
	if len(s) < 1024 && len(p.line) > 4*len(s)+64 {
		return strings.Clone(s)
	}
	return s
}

// part returns a piece of a text; a small piece does not keep it alive.
func part(s, piece string) string {
	if len(piece) < 1024 && len(s) > 4*len(piece)+64 {
		return strings.Clone(piece)
	}
	return piece
}

// work pays for an operation on a string of n bytes.
func (p *interp) work(n int) error {
	if n < 4096 {
		return nil
	}
	if n > maxString {
		return newError("string too long")
	}
	if !p.host.Step(n >> 9) {
		return ErrStopped
	}
	return nil
}

// weigh is what an array costs, with those in it.
func weigh(array map[string]value) int64 {
	n := int64(0)
	for todo := []map[string]value{array}; len(todo) > 0; {
		a := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		n += int64(len(a)) * elementCost
		for k, v := range a {
			n += int64(len(v.s) + len(k))
			if v.arr != nil {
				todo = append(todo, v.arr)
			}
		}
	}
	return n
}

// drop gives back what an array holds.
func (p *interp) drop(array map[string]value) {
	if len(array) > 0 {
		p.pay(-weigh(array))
	}
}

// put sets an element of an array.
func (p *interp) put(array map[string]value, index string, v value) {
	old, ok := array[index]
	if !ok {
		index = p.own(index)
		p.pay(int64(elementCost + len(index)))
	}
	if old.typ == typeArray && v.typ != typeArray {
		p.scalarOf(index)
		return
	}
	v.s = p.own(v.s)
	p.keep(old, v)
	array[index] = v
}

// remove deletes an element.
func (p *interp) remove(array map[string]value, index string) {
	if v, ok := array[index]; ok {
		p.pay(-int64(elementCost + len(index)))
		p.keep(v, null())
		p.drop(v.arr)
		delete(array, index)
	}
}

// replaceArray puts another array in one's place.
func (p *interp) replaceArray(i int, array map[string]value) {
	p.drop(p.arrays[i])
	p.pay(weigh(array))
	if p.pinned[i] {
		clear(p.arrays[i])
		maps.Copy(p.arrays[i], array)
		return
	}
	p.arrays[i] = array
}

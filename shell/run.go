package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/carrel-dev/carrel/shell/interp"
)

// Limit is a bound that ends a script: see [Exit].
type Limit = interp.Limit

// The bounds that end a script.
const (
	LimitMemory = interp.LimitMemory
	LimitOutput = interp.LimitOutput
	LimitSteps  = interp.LimitSteps
	LimitTime   = interp.LimitTime
	LimitFault  = interp.LimitFault // no limit: the shell or one of its programs has a bug and panicked
)

// Exit is how a script ended.
type Exit struct {
	Status  int    // 0 to 255; 128 + Signal when a signal ended it
	Signal  int    // 0 when none did
	Limit   Limit  // the limit that ended it; "" when none did
	Message string // the reason in words, with the limit's value
}

// Result is what [Machine.Run] returns.
type Result struct {
	Exit
	Stdout, Stderr string
}

// Command is a script to start. The zero value reads commands from Stdin one by one, as a session
// does.
type Command struct {
	Script string
	Args   []string // $1 and so on; $0 is bash
	Env    []string // NAME=value, on top of the machine's
	Dir    string   // absolute, or below the home directory; "" is the home directory
	// Stdin is read while the script runs; nil is empty. Wait does not wait for a Read that is
	// still blocked.
	Stdin io.Reader
	// Stdout and Stderr are written to while the script runs, each by one goroutine; nil discards.
	// A script whose writer fails gets SIGPIPE.
	Stdout, Stderr io.Writer
	// Terminal, if given, makes the streams a terminal: Stdin is the keyboard, Stdout is the
	// screen, and Stderr is not used.
	Terminal *Terminal
}

// Terminal is the size of a terminal, in characters.
type Terminal struct{ Cols, Rows uint16 }

// Process is a running or finished script.
type Process struct {
	process  *interp.Process
	terminal *interp.TTY

	done chan struct{}
	exit Exit // like err, valid only after done is closed
	err  error
}

// Run runs a script in a new shell, and returns its output when it has ended. It then ends the jobs
// that the script left in the background. The error is not about the script. It is ctx's error when
// ctx ended the script, and an [Error] otherwise. After an error, the Result has the output so far.
func (m *Machine) Run(ctx context.Context, script string) (Result, error) {
	if script == "" {
		return Result{}, ctx.Err() // an empty Command would read its standard input
	}
	var out, errs bytes.Buffer
	p, err := m.Start(ctx, Command{Script: script, Stdout: &out, Stderr: &errs})
	if err != nil {
		return Result{}, err
	}
	exit, err := p.Wait()
	return Result{exit, out.String(), errs.String()}, err
}

// Start starts a script in a new shell. The script ends when ctx is done. The caller need not wait
// for it: Close does.
func (m *Machine) Start(ctx context.Context, c Command) (*Process, error) {
	const op = "start a script"
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkEnv(c.Env); err != nil {
		return nil, &Error{Op: op, Field: "Env", Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, &Error{Op: op, Err: ErrClosed}
	}
	p := &Process{done: make(chan struct{})}
	spec := m.spec(c)
	streams := p.connect(m, c, &spec)
	var err error
	if p.process, err = m.machine.Start(spec); err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	streams.begin()
	m.running.Go(func() { p.await(ctx, m, streams) })
	return p, nil
}

// spec describes the shell that runs a command, without its streams.
func (m *Machine) spec(c Command) interp.Spec {
	s := interp.Spec{Path: "/bin/bash", Dir: m.Files().abs(c.Dir), UID: m.cred.UID, GID: m.cred.GID, Env: slices.Concat(m.options.Env, c.Env)}
	switch {
	case c.Script != "":
		s.Args = append([]string{"-c", c.Script, "bash"}, c.Args...)
	case len(c.Args) > 0:
		s.Args = append([]string{"-s", "--"}, c.Args...)
	}
	return s
}

// streams carry the input and the outputs of one script.
type streams struct {
	in  func()         // carries the input until it ends; nil without an input
	out []func() error // each one carries an output until its writers have ended
	all sync.WaitGroup // of out

	mu  sync.Mutex
	err error // the first error of one of the caller's writers
}

// connect connects a script to the caller's streams.
func (p *Process) connect(m *Machine, c Command, spec *interp.Spec) *streams {
	s := &streams{}
	if c.Terminal != nil {
		tty := m.machine.NewTTY(c.Terminal.Cols, c.Terminal.Rows)
		p.terminal, spec.TTY = tty, tty
		spec.Env = append(spec.Env, "TERM=xterm-256color")
		if c.Stdin != nil {
			s.in = func() { _, _ = io.Copy(tty, c.Stdin) } // an error ends the typing and has no other effect
		}
		s.out = append(s.out, func() error { return carry("Stdout", c.Stdout, tty, func() { _ = tty.Close() }) })
		return s
	}
	if c.Stdin != nil {
		in := interp.NewPipe()
		spec.Stdin = in
		s.in = func() {
			_, _ = io.Copy(in, c.Stdin) // the script sees the end of input, and may have ended itself
			in.CloseWrite()
		}
	}
	for _, o := range []struct {
		name string
		to   io.Writer
		pipe **interp.Pipe
	}{{"Stdout", c.Stdout, &spec.Out}, {"Stderr", c.Stderr, &spec.Err}} {
		if o.to == nil {
			continue
		}
		pipe := interp.NewPipe()
		*o.pipe = pipe
		s.out = append(s.out, func() error { return carry(o.name, o.to, pipe, pipe.CloseRead) })
	}
	return s
}

// carry copies an output to the caller's writer. When that writer fails, carry calls stop, which
// makes the script's writes fail.
func carry(name string, to io.Writer, from io.Reader, stop func()) error {
	if to == nil {
		to = io.Discard
	}
	if _, err := io.Copy(to, from); err != nil {
		stop()
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// begin starts to carry. await waits only for the outputs, because nothing can end a blocked Read
// of the caller's.
func (s *streams) begin() {
	if s.in != nil {
		go s.in()
	}
	for _, carry := range s.out {
		s.all.Go(func() {
			if err := carry(); err != nil {
				s.mu.Lock()
				s.err = errors.Join(s.err, err)
				s.mu.Unlock()
			}
		})
	}
}

// await waits for the script and its output, and records how the script ended.
func (p *Process) await(ctx context.Context, m *Machine, s *streams) {
	defer close(p.done)
	stop := context.AfterFunc(ctx, p.process.End)
	e := p.process.Wait()
	inTime := stop()
	p.process.End() // the jobs that it left
	s.all.Wait()
	p.exit = Exit{Status: e.Code, Signal: e.Signal, Limit: e.Limit, Message: e.Message}
	const killed = 9
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	switch {
	case e.Signal == killed && e.Limit == "" && !inTime:
		p.err = context.Cause(ctx)
	case e.Signal == killed && e.Limit == "" && closed:
		p.err = &Error{Op: "run a script", Err: ErrClosed}
	case s.err != nil:
		p.err = &Error{Op: "run a script", Err: s.err}
	}
}

// Wait returns when the script has ended and all its output has been passed on. It ends the jobs
// that the script left in the background. The error is as for [Machine.Run], or the error of a
// writer of the caller's. It may be called more than once.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Done returns a channel that is closed when Wait would return at once.
func (p *Process) Done() <-chan struct{} { return p.done }

// PID is the script's process number, inside its machine.
func (p *Process) PID() int { return p.process.PID() }

// Signal sends a signal to the script and the programs that it waits for. The error is ESRCH when
// it has ended.
func (p *Process) Signal(sig int) error { return p.process.Signal(sig) }

// Kill ends the script and everything that it started.
func (p *Process) Kill() { p.process.End() }

// Resize changes the size of the script's terminal, if it has one.
func (p *Process) Resize(t Terminal) {
	if p.terminal != nil {
		p.terminal.Resize(t.Cols, t.Rows)
	}
}

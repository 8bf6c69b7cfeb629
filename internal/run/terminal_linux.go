package run

import (
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/carrel-dev/carrel/internal/box"
)

// forwarded are the signals that are passed to the command.
var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP, unix.SIGALRM,
}

// terminal is the caller's terminal while the command has a terminal of its own.
type terminal struct {
	in, out *os.File // each nil if it is no terminal
	piped   bool     // output goes to another program that may write to the terminal
	state   *term.State
	mu      sync.Mutex
}

// streams sets the command's standard streams. For each that is a terminal, the command gets a
// terminal of its own.
func (j *Job) streams(p *plan, o *box.Options) *terminal {
	o.Stdin, o.Stdout, o.Stderr = j.In, j.Out, j.Err
	t := &terminal{}
	any := false
	for i, f := range []*os.File{j.In, j.Out, j.Err} {
		if f == nil || !term.IsTerminal(int(f.Fd())) {
			continue
		}
		p.spec.Terminal[i], any = true, true
		if i == 0 {
			t.in = f
		} else if t.out == nil {
			t.out = f
		}
	}
	if !any || j.Box.NoTerminal || !foreground(t) {
		p.spec.Terminal = [3]bool{}
		return nil
	}
	t.piped = !p.spec.Terminal[1]
	return t
}

// foreground reports whether this process may read from its terminal. A background job that took
// the terminal over would take it from the shell.
func foreground(t *terminal) bool {
	f := t.in
	if f == nil {
		f = t.out
	}
	pgrp, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || pgrp == unix.Getpgrp()
}

// raw passes keys on unchanged, so that the command's own terminal turns them into signals.
func (t *terminal) raw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.in != nil && t.state == nil {
		t.state, _ = term.MakeRaw(int(t.in.Fd()))
		if t.piped { // "carrel run … | less": the other program's lines end as before
			output(t.in, unix.OPOST, 0)
		}
	}
}

// output sets and clears modes of a terminal's output.
func output(f *os.File, set, clear uint32) {
	if m, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
		m.Oflag = m.Oflag&^clear | set
		_ = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, m)
	}
}

// restore undoes raw.
func (t *terminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != nil {
		_ = term.Restore(int(t.in.Fd()), t.state)
		t.state = nil
	}
}

// resize gives the command's terminal the size of the caller's.
func (t *terminal) resize(inner *os.File) {
	f := t.out
	if f == nil {
		f = t.in
	}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		_ = unix.IoctlSetWinsize(int(inner.Fd()), unix.TIOCSWINSZ, size)
	}
}

// watch relays signals until the command has ended.
func (j *Job) watch(b *box.Box, t *terminal, signals <-chan os.Signal, stopped <-chan struct{}) (box.Exit, error) {
	drained := make(chan struct{})
	inner := b.Terminal()
	if t == nil || inner == nil {
		t = nil
		close(drained)
	} else {
		t.resize(inner)
		t.raw()
		if t.in == nil { // the caller's terminal is not raw, and ends lines itself
			output(inner, 0, unix.ONLCR)
		}
		defer t.restore()
		t.relay(inner, drained)
		defer inner.Close()
	}
	type end struct {
		exit box.Exit
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		x, err := b.Wait()
		ended <- end{x, err}
	}()
	for {
		select {
		case e := <-ended:
			if t != nil {
				<-drained // what it wrote last
			}
			return e.exit, e.err
		case s := <-signals:
			j.forward(b, t, inner, s.(syscall.Signal))
		case <-stopped:
			t.suspend(b)
		}
	}
}

// forward hands a signal on.
func (j *Job) forward(b *box.Box, t *terminal, inner *os.File, s syscall.Signal) {
	switch {
	case s == unix.SIGWINCH && t != nil:
		t.resize(inner)
	case s == unix.SIGTSTP && t == nil:
		_ = b.Signal(unix.SIGSTOP) // the box reports its stop, and only then this process stops
	case s == unix.SIGCONT && t == nil:
		_ = b.Signal(unix.SIGCONT)
	case s == unix.SIGCONT:
		t.raw()
		t.resize(inner)
	default:
		_ = b.Signal(s)
	}
}

// suspend stops this process after the command was stopped, with the terminal's earlier settings.
// When the shell continues the job, it continues the command.
func (t *terminal) suspend(b *box.Box) {
	if t != nil {
		t.restore()
	}
	_ = unix.Kill(0, unix.SIGSTOP) // with all other processes of this job
	if t != nil {
		t.raw()
	}
	_ = b.Signal(unix.SIGCONT)
}

// relay copies between the two terminals. It closes drained when all of the command's output is
// written.
func (t *terminal) relay(inner *os.File, drained chan<- struct{}) {
	go func() {
		defer close(drained)
		if t.out == nil {
			_, _ = io.Copy(io.Discard, inner)
			return
		}
		_, _ = io.Copy(t.out, inner) // EIO after the last process at the other end
	}()
	if t.in != nil {
		go func() {
			// The goroutine ends with the process, because a read from a terminal can't be
			// cancelled.
			_, _ = io.Copy(inner, t.in)
		}()
	}
}

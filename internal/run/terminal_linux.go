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

// forwarded are the signals that are the command's.
var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP, unix.SIGALRM,
}

// terminal is the caller's, while the command has one of its own in its place.
type terminal struct {
	in, out *os.File // each nil if it is no terminal
	piped   bool     // standard output is none, but goes on to something that may write to it
	state   *term.State
	mu      sync.Mutex
}

// streams gives the command its standard streams: a terminal of its own for those that are one.
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

// foreground reports whether this process may read from its terminal: a job in the background that took it over
// would take it from the shell.
func foreground(t *terminal) bool {
	f := t.in
	if f == nil {
		f = t.out
	}
	pgrp, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || pgrp == unix.Getpgrp()
}

// raw hands keys on as they are, so that the command's own terminal makes signals of them.
func (t *terminal) raw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.in != nil && t.state == nil {
		t.state, _ = term.MakeRaw(int(t.in.Fd()))
		if t.piped { // "carrel run … | less": lines of others end as before
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

// watch relays until the command has ended.
func (j *Job) watch(b *box.Box, t *terminal, signals <-chan os.Signal, stopped <-chan struct{}) (box.Exit, error) {
	drained := make(chan struct{})
	inner := b.Terminal()
	if t == nil || inner == nil {
		t = nil
		close(drained)
	} else {
		t.resize(inner)
		t.raw()
		if t.in == nil { // the caller's is not raw, and ends lines itself
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
		_ = b.Signal(unix.SIGSTOP) // the box tells when it has, and then this process does: once, and not here too
	case s == unix.SIGCONT && t == nil:
		_ = b.Signal(unix.SIGCONT)
	case s == unix.SIGCONT:
		t.raw()
		t.resize(inner)
	default:
		_ = b.Signal(s)
	}
}

// suspend stops this process as the command was stopped, with the terminal as it was, and goes on with it
// when the shell says so.
func (t *terminal) suspend(b *box.Box) {
	if t != nil {
		t.restore()
	}
	_ = unix.Kill(0, unix.SIGSTOP) // with whatever else is of this job
	if t != nil {
		t.raw()
	}
	_ = b.Signal(unix.SIGCONT)
}

// relay copies between the two terminals. drained is closed when all that the command wrote is out.
func (t *terminal) relay(inner *os.File, drained chan<- struct{}) {
	go func() {
		defer close(drained)
		if t.out == nil {
			_, _ = io.Copy(io.Discard, inner)
			return
		}
		_, _ = io.Copy(t.out, inner) // EIO when the last process with the other end is gone
	}()
	if t.in != nil {
		go func() {
			// The goroutine ends with the process: a read from a terminal can't be called off.
			_, _ = io.Copy(inner, t.in)
		}()
	}
}

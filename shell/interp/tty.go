package interp

import (
	"context"
	"io"
	"sync"
	"syscall"
	"unicode/utf8"
)

// TTY is a simulated terminal. The host writes keys with Write and reads the screen with Read.
// Processes use it as their standard streams. In its normal mode it echoes, edits lines (backspace,
// ^U, ^W), and turns ^C into SIGINT and ^D into end of file.
type TTY struct {
	m   *Machine
	in  *Pipe // finished input for the processes
	out *Pipe // to the screen

	mu    sync.Mutex
	rows  uint16
	cols  uint16
	line  []byte // under edit
	raw   bool
	quiet bool          // no echo
	intr  func(sig int) // what ^C, ^Z and ^\\ do
	pgid  int           // the group in front
	shell int           // the shell's group

	keys sync.Mutex // one key at a time; before mu

	// Guarded by in.mu. A ^D on an empty line marks an end of file at its place in the input. Keys
	// typed after it are for the next reader.
	sent, taken int64
	eofs        []int64
}

// NewTTY makes a terminal of this size.
func (m *Machine) NewTTY(cols, rows uint16) *TTY {
	t := &TTY{m: m, in: NewPipe(), out: NewPipe(), cols: cols, rows: rows}
	t.in.attach(m)
	t.out.attach(m)
	return t
}

// Size returns the terminal's size.
func (t *TTY) Size() (cols, rows uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cols, t.rows
}

// Resize changes the terminal's size.
func (t *TTY) Resize(cols, rows uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cols, t.rows = cols, rows
}

// Read reads the output that the screen shows.
func (t *TTY) Read(b []byte) (int, error) { return t.out.Read(b) }

// Write types keys.
func (t *TTY) Write(b []byte) (int, error) {
	for i, c := range b {
		if err := t.key(c); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// Close hangs up the terminal. Processes read end of file, and their output is dropped.
func (t *TTY) Close() error {
	t.in.CloseWrite()
	t.out.CloseRead()
	return nil
}

// hangUp ends the screen's output once the last process has gone.
func (t *TTY) hangUp() {
	t.out.CloseWrite()
	t.in.CloseRead()
}

// key handles one byte of input.
func (t *TTY) key(c byte) error {
	t.keys.Lock()
	defer t.keys.Unlock()
	t.mu.Lock()
	if t.raw {
		t.mu.Unlock()
		return t.send([]byte{c})
	}
	echo, done, sig, eof := t.edit(c)
	if t.quiet && sig == 0 {
		echo = nil
	}
	intr := t.intr
	t.mu.Unlock()
	if len(echo) > 0 {
		t.show(echo)
	}
	if sig != 0 && intr != nil {
		intr(sig)
	}
	if eof {
		t.in.mu.Lock()
		t.eofs = append(t.eofs, t.sent)
		t.in.wakeAll()
		t.in.mu.Unlock()
		return nil
	}
	return t.send(done)
}

// edit applies one key to the line that is being typed, as the kernel's line discipline does. echo
// goes to the screen, and done goes to a reader. sig is the signal that the key sends. eof says
// whether readers see an end of file. t.mu is held.
func (t *TTY) edit(c byte) (echo, done []byte, sig int, eof bool) {
	switch c {
	case '\r', '\n':
		done = append(t.line, '\n')
		t.line = nil
		echo = []byte("\r\n")
	case 0x7f, 0x08:
		if len(t.line) > 0 {
			_, n := utf8.DecodeLastRune(t.line)
			t.line = t.line[:len(t.line)-n]
			echo = []byte("\b \b")
		}
	case 0x15: // ^U
		for range utf8.RuneCount(t.line) {
			echo = append(echo, "\b \b"...)
		}
		t.line = nil
	case 0x17: // ^W
		n := len(t.line)
		for n > 0 && t.line[n-1] == ' ' {
			n--
		}
		for n > 0 && t.line[n-1] != ' ' {
			n--
		}
		for range utf8.RuneCount(t.line[n:]) {
			echo = append(echo, "\b \b"...)
		}
		t.line = t.line[:n]
	case 0x03: // ^C
		t.line = nil
		echo = []byte("^C\r\n")
		sig = sigINT
	case 0x1a: // ^Z
		t.line = nil
		echo = []byte("^Z")
		sig = sigTSTP
	case 0x1c: // ^\\
		t.line = nil
		echo = []byte("^\\\r\n")
		sig = sigQUIT
	case 0x04: // ^D
		if done, t.line = t.line, nil; len(done) == 0 {
			eof = true
		}
	default:
		const most = 4096 // as on Linux
		if len(t.line) < most {
			t.line = append(t.line, c)
			echo = []byte{c}
		}
	}
	return echo, done, sig, eof
}

// send gives input to the processes. Input that does not fit is dropped, as on Linux.
func (t *TTY) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // do not wait
	n, err := t.in.WriteContext(ctx, b)
	t.in.mu.Lock()
	t.sent += int64(n)
	t.in.mu.Unlock()
	if err == context.Canceled {
		return nil
	}
	return err
}

// show puts bytes on the screen. It does not wait for a reader.
func (t *TTY) show(b []byte) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = t.out.WriteContext(ctx, b) // a full screen loses echo, like a real one
}

// ttyStream is a terminal as a process's stream.
type ttyStream struct{ t *TTY }

func (s ttyStream) Read(ctx context.Context, b []byte) (int, error) {
	t, in := s.t, s.t.in
	p := procOf(ctx)
	in.mu.Lock()
	defer in.mu.Unlock()
	for {
		if p != nil && !t.mayRead(p) {
			in.mu.Unlock()
			if p.stopped() == 0 {
				p.deliver(sigTTIN)
			}
			p.halt(ctx)
			stuck := p.stopped() == 0 && !t.mayRead(p)
			in.mu.Lock()
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			if stuck { // it ignores the signal
				return 0, syscall.EIO
			}
			continue
		}
		if len(t.eofs) > 0 {
			if t.taken >= t.eofs[0] {
				t.eofs = t.eofs[1:]
				return 0, io.EOF
			}
			b = b[:min(int64(len(b)), t.eofs[0]-t.taken)]
		}
		if in.off < len(in.buf) {
			n := in.take(b)
			t.taken += int64(n)
			return n, nil
		}
		if in.writers == 0 || in.readers == 0 {
			return 0, io.EOF
		}
		if err := in.await(ctx); err != nil {
			return 0, err
		}
	}
}

func (s ttyStream) Write(ctx context.Context, b []byte) (int, error) {
	s.t.mu.Lock()
	raw := s.t.raw
	s.t.mu.Unlock()
	out := b
	if !raw {
		out = make([]byte, 0, len(b)+16)
		for _, c := range b {
			if c == '\n' {
				out = append(out, '\r')
			}
			out = append(out, c)
		}
	}
	if _, err := s.t.out.WriteContext(ctx, out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (s ttyStream) Close() error { return nil }

// group returns the foreground process group.
func (t *TTY) group() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pgid
}

// setGroup sets the foreground process group.
func (t *TTY) setGroup(pgid int) {
	t.mu.Lock()
	t.pgid = pgid
	t.mu.Unlock()
	t.look()
}

// mayRead reports whether a process is in the foreground and not stopped.
func (t *TTY) mayRead(p *proc) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.stopped() == 0 && (p.pgid == t.pgid || t.pgid == 0)
}

// look makes goroutines that wait for input check whether they still may read.
func (t *TTY) look() {
	t.in.mu.Lock()
	t.in.wakeAll()
	t.in.mu.Unlock()
}

// setRaw turns the raw mode on or off. In raw mode every key is passed on at once. A line that is
// being edited is passed on before.
func (t *TTY) setRaw(raw bool) {
	t.keys.Lock()
	defer t.keys.Unlock()
	t.mu.Lock()
	line := t.line
	t.line, t.raw = nil, raw
	t.mu.Unlock()
	if raw {
		_ = t.send(line) // what does not fit is dropped
	}
}

// setCooked ends the raw mode. Keys typed ahead are treated as if they were typed now, because the
// next reader expects lines.
func (t *TTY) setCooked() {
	t.setRaw(false)
	t.in.mu.Lock()
	ahead := append([]byte(nil), t.in.buf[t.in.off:]...)
	t.in.buf, t.in.off = t.in.buf[:0], 0
	t.taken += int64(len(ahead))
	t.in.mu.Unlock()
	for _, c := range ahead {
		_ = t.key(c) // a hung up terminal takes none
	}
}

// ttyOf returns the terminal of a descriptor, or nil when it is not a terminal.
func (r *runner) ttyOf(n int) *TTY {
	if d := r.fds.get(n); d != nil {
		switch s := d.stream.(type) {
		case ttyStream:
			return s.t
		case counted:
			if t, ok := s.stream.(ttyStream); ok {
				return t.t
			}
		}
	}
	return nil
}

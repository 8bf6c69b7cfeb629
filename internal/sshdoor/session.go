package sshdoor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
)

// exitOwnFailure is the exit status when the door failed, and not the command. The command line
// uses the same one.
const exitOwnFailure = 125

// hangUpTime is how long a terminal's process may take to end by itself after its client has gone.
const hangUpTime = 2 * time.Second

const (
	maxEnv     = 64
	maxEnvText = 4096
)

// session is one session channel. It runs at most one program.
type session struct {
	client *client
	ch     ssh.Channel

	env     map[string]string
	tty     bool // has a terminal; set, like env, before the program begins
	started bool
	inputs  sync.WaitGroup

	settled chan struct{} // closed when the program runs, or never will
	settle  func()

	mu      sync.Mutex
	size    carrel.Size    // of the terminal
	process carrel.Process // once it runs
}

// session serves a session channel until it ends.
func (c *client) session(ctx context.Context, n ssh.NewChannel) {
	ch, requests, err := n.Accept()
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &session{client: c, ch: ch, env: map[string]string{}, settled: make(chan struct{})}
	s.settle = sync.OnceFunc(func() { close(s.settled) })
	var wg sync.WaitGroup
	for r := range requests {
		run, ok := s.handle(ctx, r)
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if run != nil {
			wg.Go(func() {
				defer ch.Close() // which ends the requests
				defer s.settle()
				run()
			})
		}
	}
	cancel() // the client closed the channel, or the connection
	_ = ch.Close()
	wg.Wait()
	s.inputs.Wait()
}

// handle carries out a request. run is the work that goes on after the answer.
func (s *session) handle(ctx context.Context, r *ssh.Request) (run func(), ok bool) {
	switch r.Type {
	case "pty-req":
		var p struct {
			Term                      string
			Cols, Rows, Width, Height uint32
			Modes                     string
		}
		if ssh.Unmarshal(r.Payload, &p) != nil || s.started || s.tty || len(p.Term) > maxEnvText {
			return nil, false
		}
		s.tty, s.size = true, terminalSize(p.Cols, p.Rows)
		if p.Term != "" && !strings.ContainsRune(p.Term, 0) {
			s.env["TERM"] = p.Term
		}
		return nil, true
	case "env":
		var e struct{ Name, Value string }
		if ssh.Unmarshal(r.Payload, &e) != nil || s.started || !envAllowed(e.Name, e.Value) || len(s.env) >= maxEnv {
			return nil, false
		}
		s.env[e.Name] = e.Value
		return nil, true
	case "window-change":
		var w struct{ Cols, Rows, Width, Height uint32 }
		if ssh.Unmarshal(r.Payload, &w) != nil || !s.tty {
			return nil, false
		}
		s.mu.Lock()
		s.size = terminalSize(w.Cols, w.Rows)
		p, size := s.process, s.size
		s.mu.Unlock()
		if p != nil {
			_ = p.Resize(ctx, size)
		}
		return nil, true
	case "signal":
		var sig struct{ Name string }
		return nil, ssh.Unmarshal(r.Payload, &sig) == nil && s.signal(ctx, sig.Name)
	case "shell":
		return s.start(ctx, "shell", func() { s.run(ctx, "") })
	case "exec":
		var e struct{ Command string }
		if ssh.Unmarshal(r.Payload, &e) != nil || e.Command == "" || strings.ContainsRune(e.Command, 0) {
			return nil, false
		}
		return s.start(ctx, "exec", func() { s.run(ctx, e.Command) })
	case "subsystem":
		var e struct{ Name string }
		if ssh.Unmarshal(r.Payload, &e) != nil || e.Name != "sftp" {
			return nil, false
		}
		return s.start(ctx, "sftp", func() { s.settle(); s.sftp(ctx) }) // it gets no signals
	}
	return nil, false // agents, X11 and all others
}

// start lets one program begin, and only once.
func (s *session) start(ctx context.Context, what string, run func()) (func(), bool) {
	if s.started {
		return nil, false
	}
	s.started = true
	s.client.note(ctx, what)
	return run, true
}

// envAllowed reports whether a client may set a variable. It allows only the language, and nothing
// that changes the work of programs.
func envAllowed(name, value string) bool {
	lang := name == "LANG" || (strings.HasPrefix(name, "LC_") && len(name) <= 64 && strings.Trim(name[3:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "")
	return lang && len(value) <= maxEnvText && !strings.ContainsRune(value, 0)
}

// terminalSize converts a size. Some clients send 0, which means not known.
func terminalSize(cols, rows uint32) carrel.Size {
	if cols == 0 || rows == 0 {
		cols, rows = 80, 24
	}
	return carrel.Size{Cols: uint16(min(cols, 0xffff)), Rows: uint16(min(rows, 0xffff))}
}

// signal sends a signal to the program, if there is a way. A program may write output, and the
// client may then send a signal, before this side knows that the program runs.
func (s *session) signal(ctx context.Context, name string) bool {
	if s.started {
		select {
		case <-s.settled:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	p, tty := s.process, s.tty
	s.mu.Unlock()
	if p == nil {
		return false
	}
	switch name {
	case "TERM", "HUP":
		return p.Signal(ctx, int(syscall.SIGTERM)) == nil
	case "KILL":
		return p.Signal(ctx, int(syscall.SIGKILL)) == nil
	case "INT", "QUIT":
		if tty {
			_, err := p.Write([]byte{map[string]byte{"INT": 3, "QUIT": 28}[name]})
			return err == nil
		}
	}
	return false
}

// run runs a command line, or a shell if there is none, and reports how it ended.
func (s *session) run(ctx context.Context, line string) {
	p, err := s.begin(ctx, line)
	if err != nil {
		s.fail(err)
		return
	}
	defer p.Close()
	res, err := p.Wait(ctx)
	if ctx.Err() != nil {
		s.abandon(p)
		return
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.exit(res)
}

// begin starts the program with the channel as its input and output. If there is no bash, it tries
// sh.
func (s *session) begin(ctx context.Context, line string) (p carrel.Process, err error) {
	computer, err := s.client.computer(ctx)
	if err != nil {
		return nil, err
	}
	for _, shell := range []string{"/bin/bash", "/bin/sh"} {
		args := []string{shell, "-c", line}
		switch {
		case line == "" && s.tty:
			args = []string{shell, "-i", "-l"}
		case line == "":
			args = []string{shell, "-l"}
		}
		cmd := carrel.Command{Args: args, Env: s.env, User: s.client.target.user, OpenStdin: !s.tty, Stdout: s.ch, Stderr: s.ch.Stderr()}
		s.mu.Lock()
		size := s.size
		s.mu.Unlock()
		if s.tty {
			cmd.TTY = &size
		}
		// The context must outlive the channel, so that the process can still be ended.
		if p, err = computer.Start(context.WithoutCancel(ctx), cmd); err == nil {
			s.mu.Lock()
			s.process = p
			now := s.size
			s.mu.Unlock()
			s.settle()
			if s.tty && now != size {
				_ = p.Resize(ctx, now)
			}
			s.inputs.Go(func() { s.input(p) }) // ends with the channel
			return p, nil
		}
		if kind := carrel.KindOf(err); kind != carrel.NotFound && kind != carrel.Invalid {
			return nil, err
		}
	}
	return nil, err
}

// input copies the client's input to the program.
func (s *session) input(p carrel.Process) {
	_, err := io.Copy(p, s.ch)
	if err == nil && !s.tty {
		_ = p.CloseStdin()
	}
}

// abandon handles a process whose client has gone. A process on a terminal is ended, as by a
// hangup. Others run on, and their input ends.
func (s *session) abandon(p carrel.Process) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*hangUpTime)
	defer cancel()
	if !s.tty {
		_ = p.CloseStdin()
		return
	}
	_ = p.Signal(ctx, int(syscall.SIGTERM))
	waiting, done := context.WithTimeout(ctx, hangUpTime)
	defer done()
	if _, err := p.Wait(waiting); err != nil {
		_ = p.Signal(ctx, int(syscall.SIGKILL)) // an interactive shell ignores SIGTERM
	}
}

// fail writes to the client's standard error why no program runs.
func (s *session) fail(err error) {
	fmt.Fprintf(s.ch.Stderr(), "carrel: %s\r\n", publicText(err))
	s.status(exitOwnFailure)
}

// exit reports how the program ended.
func (s *session) exit(res *carrel.Result) {
	_ = s.ch.CloseWrite()
	if res.ExitCode >= 0 {
		s.status(uint32(res.ExitCode))
		return
	}
	_, _ = s.ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
		Name     string
		Core     bool
		Message  string
		Language string
	}{signalName(res.Status), false, res.Status, ""}))
}

func (s *session) status(code uint32) {
	_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
}

// signalName is SSH's name for the signal in a status text.
func signalName(status string) string {
	for text, name := range map[string]string{"hangup": "HUP", "interrupt": "INT", "quit": "QUIT", "aborted": "ABRT", "terminated": "TERM",
		"segmentation fault": "SEGV", "broken pipe": "PIPE", "alarm clock": "ALRM", "illegal instruction": "ILL", "floating point exception": "FPE"} {
		if strings.Contains(status, text) {
			return name
		}
	}
	return "KILL"
}

// sftp serves files.
func (s *session) sftp(ctx context.Context) {
	computer, err := s.client.computer(ctx)
	if err == nil {
		err = serveFiles(ctx, s.ch, computer, s.client.target.user)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && !errors.Is(err, io.EOF):
		s.client.door.opts.Log.Debug("ssh: sftp", "sandbox", s.client.target.id, "err", err)
		s.fail(err)
	default:
		s.status(0)
	}
}

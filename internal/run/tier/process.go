//go:build linux

package tier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/carrel-dev/carrel"
)

// command returns the command to run. In the simulated machine it is always a command line.
func (b *box) command() carrel.Command {
	args := b.req.Args
	if b.req.Tier == carrel.Sim {
		line := args[0]
		if len(args) > 1 {
			words := make([]string, len(args))
			for i, a := range args {
				words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
			}
			line = strings.Join(words, " ")
		}
		args = []string{"/bin/bash", "-c", line}
	}
	return carrel.Command{Args: args, Env: b.req.environment(), Dir: b.req.Dir, User: b.user,
		Stdout: b.req.Stdout, Stderr: b.req.Stderr, Timeout: b.req.Timeout}
}

// run runs the command and waits for its end.
func (b *box) run(ctx context.Context) (res Result, err error) {
	cmd := b.command()
	in := newInput(b.req)
	defer in.Close()
	if in != nil {
		cmd.Stdin = in
	}
	if t := b.req.Terminal; t != nil {
		size, restore, err := rawTerminal(t)
		if err != nil {
			return res, err
		}
		defer restore()
		cmd.TTY = &size
	}
	began := time.Now()
	p, err := b.comp.Start(ctx, cmd)
	if carrel.KindOf(err) == carrel.Invalid {
		// It can't be executed. Let a shell report that, with its usual text and status.
		cmd.Args = append([]string{"/bin/sh", "-c", `exec "$@"`, "carrel"}, cmd.Args...)
		p, err = b.comp.Start(ctx, cmd)
	}
	if err != nil {
		return res, err
	}
	defer p.Close()
	done := make(chan struct{})
	forwarded := make(chan struct{})
	go func() { defer close(forwarded); b.forward(ctx, p, done) }()
	got, err := p.Wait(ctx)
	close(done)
	<-forwarded
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	if t := b.req.Timeout; t > 0 && time.Since(began) >= t && (err != nil || got == nil || got.ExitCode < 0) {
		if err == nil || carrel.KindOf(err) == carrel.TimedOut {
			return Result{Signal: syscall.SIGKILL, Limit: "timeout"}, nil
		}
	}
	if err != nil {
		return b.died(err)
	}
	if got.ExitCode >= 0 {
		return Result{Code: got.ExitCode}, nil
	}
	return Result{Signal: signalOf(got.Status)}, nil
}

// died returns the reason why the sandbox ended during the command, if it did.
func (b *box) died(err error) (Result, error) {
	select {
	case e := <-b.ended:
		res := Result{Signal: syscall.SIGKILL}
		if e.Reason == carrel.EndOutOfMemory {
			res.Limit = "memory"
			return res, &carrel.Error{Op: "run", Kind: carrel.Exhausted, Err: errors.New("the sandbox was out of memory and ended; what the command changed is lost"),
				Hint: "give it more with --memory"}
		}
		return res, &carrel.Error{Op: "run", Kind: carrel.Internal, Err: fmt.Errorf("the sandbox ended (%s: %s): %w", e.Reason, e.Message, err)}
	case <-time.After(endTime):
		return Result{}, err
	}
}

// endTime bounds the wait for the reason of a sandbox's end.
const endTime = 5 * time.Second

// signalOf finds the signal in "signal: killed".
func signalOf(status string) syscall.Signal {
	for s := syscall.Signal(1); s < 65; s++ {
		if name := "signal: " + s.String(); status == name || strings.HasPrefix(status, name+" (") {
			return s
		}
	}
	return syscall.SIGKILL
}

// forward passes signals on until the command has ended.
func (b *box) forward(ctx context.Context, p carrel.Process, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case s, ok := <-b.req.Signals:
			if !ok {
				return
			}
			if err := b.signal(ctx, p, s); err != nil && carrel.KindOf(err) != carrel.NotFound {
				b.req.note(fmt.Sprintf("the signal %q was not passed on: %v", s, err))
			}
		}
	}
}

// signal passes one signal on. The guest can send SIGTERM and SIGKILL; for others it runs kill
// inside.
func (b *box) signal(ctx context.Context, p carrel.Process, s os.Signal) error {
	sig, ok := s.(syscall.Signal)
	switch {
	case !ok, sig == syscall.SIGCHLD, sig == syscall.SIGPIPE, sig == syscall.SIGURG:
		return nil
	case sig == syscall.SIGWINCH:
		if b.req.Terminal == nil {
			return nil
		}
		size, err := sizeOf(b.req.Terminal)
		if err != nil {
			return err
		}
		return p.Resize(ctx, size)
	case sig == syscall.SIGTERM, sig == syscall.SIGKILL:
		return p.Signal(ctx, int(sig))
	}
	name := strings.TrimPrefix(unix.SignalName(sig), "SIG")
	if name == "" {
		return errors.New("it has no name")
	}
	// Signal the whole group, as a terminal would: the command leads its own group.
	pid := strconv.Itoa(p.PID())
	script := "kill -s " + name + " -- -" + pid + " 2>/dev/null || kill -s " + name + " " + pid
	res, err := b.comp.Run(ctx, carrel.Command{Args: []string{"/bin/bash", "-c", script}, User: "root", Dir: "/"})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("%q", strings.TrimSpace(string(res.Stderr)))
	}
	return err
}

// rawTerminal switches the caller's terminal to raw mode, because the terminal inside does the
// rest.
func rawTerminal(t *os.File) (size carrel.Size, restore func(), err error) {
	if size, err = sizeOf(t); err != nil {
		return size, nil, fmt.Errorf("terminal: %w", err)
	}
	old, err := term.MakeRaw(int(t.Fd()))
	if err != nil {
		return size, nil, fmt.Errorf("terminal: %w", err)
	}
	return size, func() { _ = term.Restore(int(t.Fd()), old) }, nil
}

// sizeOf returns a terminal's size. If the terminal does not know it, it returns the usual size.
func sizeOf(t *os.File) (carrel.Size, error) {
	w, h, err := term.GetSize(int(t.Fd()))
	if err != nil {
		return carrel.Size{}, err
	}
	if w <= 0 || h <= 0 {
		w, h = 80, 24
	}
	return carrel.Size{Cols: uint16(min(w, 0xffff)), Rows: uint16(min(h, 0xffff))}, nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// execFlags are the flags that exec and shell share.
type execFlags struct {
	interactive, tty, detach bool
	user, dir, tag           string
	envs                     []string
}

// execCommand is "carrel exec".
func (a *app) execCommand() *cobra.Command {
	var f execFlags
	c := &cobra.Command{
		Use:   "exec [flags] ID [--] COMMAND [ARG…]",
		Short: "Run a command in a sandbox",
		Long: `Runs a command in a sandbox. Output streams as it is written, and the exit
status is the command's own; 125 means that Carrel could not run it. The command
is run without a shell: for pipes and variables use  -- bash -c '…'. A paused
sandbox that resumes by itself is woken; another is an error.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			line := args[1:]
			if line[0] == "--" { // flags already end at the ID, so a "--" after it is optional
				line = line[1:]
			}
			if len(line) == 0 {
				return usage(fmt.Errorf("no command to run\nusage: %s", c.UseLine()))
			}
			return a.exec(c.Context(), args[0], line, f)
		},
	}
	fl := c.Flags()
	fl.SetInterspersed(false) // flags after the ID belong to the command
	fl.BoolVarP(&f.interactive, "interactive", "i", false, "pass standard input")
	fl.BoolVarP(&f.tty, "tty", "t", false, "run it on a terminal of its own")
	fl.BoolVarP(&f.detach, "detach", "d", false, "print its process ID and leave it running; carrel logs ID PID shows its output")
	fl.StringVar(&f.tag, "tag", "", "a name to find the process by")
	fl.StringArrayVarP(&f.envs, "env", "e", nil, "KEY=VALUE (repeat)")
	addExecFlags(c, &f)
	return c
}

// shellCommand is "carrel shell".
func (a *app) shellCommand() *cobra.Command {
	f := execFlags{interactive: true, tty: true}
	c := &cobra.Command{
		Use:   "shell ID",
		Short: "Open an interactive shell in a sandbox",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.tty = isTerminal(a.in) // a script that pipes input into it gets a shell without one
			line := []string{"/bin/bash", "-l"}
			if f.tty {
				line = []string{"/bin/bash", "-i", "-l"}
			}
			return a.exec(c.Context(), args[0], line, f)
		},
	}
	addExecFlags(c, &f)
	return c
}

func addExecFlags(c *cobra.Command, f *execFlags) {
	c.Flags().StringVarP(&f.user, "user", "u", "", "user to run as (default: the template's)")
	c.Flags().StringVarP(&f.dir, "workdir", "w", "", "directory to run in (default: the user's home)")
}

// exec runs a command line and exits with its status.
func (a *app) exec(ctx context.Context, idText string, line []string, f execFlags) error {
	id, err := carrel.ParseID(idText)
	if err != nil {
		return ownFailure{err}
	}
	env, err := keyValues("--env", f.envs)
	if err != nil {
		return err
	}
	cmd := carrel.Command{Args: line, Env: env, User: f.user, Dir: f.dir, Tag: f.tag, Stdout: a.out, Stderr: a.err}
	return a.withService(ctx, func(svc carrel.Service) error {
		comp, err := computer(ctx, svc, id)
		if err != nil {
			return ownFailure{err}
		}
		if f.detach {
			return a.startDetached(ctx, comp, id, cmd)
		}
		code, err := a.attach(ctx, comp, cmd, f)
		if err != nil {
			return ownFailure{err}
		}
		a.code = code
		return nil
	})
}

// computer opens the inside of a sandbox. It first wakes a paused sandbox if any use may wake it.
func computer(ctx context.Context, svc carrel.Service, id carrel.ID) (carrel.Computer, error) {
	comp, err := svc.Computer(ctx, id)
	if err == nil || carrel.KindOf(err) != carrel.Conflict {
		return comp, err
	}
	sb, getErr := svc.Get(ctx, id)
	if getErr != nil {
		return nil, err
	}
	switch {
	case sb.State == carrel.Resuming:
	case sb.State != carrel.Paused && sb.State != carrel.Pausing:
		return nil, err
	case !wakes(sb.Lifecycle):
		return nil, &carrel.Error{Op: "open computer", Kind: carrel.Conflict, ID: id, Err: fmt.Errorf("the sandbox is %s", sb.State),
			Hint: "carrel resume " + string(id)}
	}
	if _, _, err := svc.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
		return nil, err
	}
	return svc.Computer(ctx, id)
}

// wakes reports whether a paused sandbox resumes by itself on its next use.
func wakes(l carrel.Lifecycle) bool { return l.AutoResume || l.Idle.After > 0 }

// startDetached starts a process and leaves it.
func (a *app) startDetached(ctx context.Context, comp carrel.Computer, id carrel.ID, cmd carrel.Command) error {
	cmd.Stdout, cmd.Stderr, cmd.Keep = nil, nil, true
	p, err := comp.Start(ctx, cmd)
	if err != nil {
		return startFailure(err)
	}
	defer p.Close()
	if a.json {
		return a.printJSON(map[string]int{"pid": p.PID()})
	}
	fmt.Fprintln(a.out, p.PID())
	noteDetached(a.err, id, p.PID(), cmd.Tag)
	return nil
}

// attach runs cmd in the foreground: input, terminal, window size and signals.
func (a *app) attach(ctx context.Context, comp carrel.Computer, cmd carrel.Command, f execFlags) (int, error) {
	if f.interactive {
		cmd.Stdin = a.in
	}
	if f.tty {
		size, restore, err := a.rawTerminal(f.interactive)
		if err != nil {
			return 0, err
		}
		defer restore()
		cmd.TTY = &size
	}
	// The process needs some time to end after the first Ctrl-C, so the signal's context must not
	// close the connection.
	p, err := comp.Start(context.WithoutCancel(ctx), cmd)
	if err != nil {
		return 0, startFailure(err)
	}
	defer p.Close()
	stop := a.forwardSignals(p, f.tty)
	defer stop()
	res, err := p.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return 0, err
	}
	if res.ExitCode < 0 { // ended by a signal: use a shell's status for that
		return 128 + int(syscall.SIGKILL), nil
	}
	return res.ExitCode, nil
}

// rawTerminal returns the terminal's size and switches it to raw mode, so that keys reach the
// sandbox unchanged. The returned function switches back.
func (a *app) rawTerminal(raw bool) (carrel.Size, func(), error) {
	size := carrel.Size{Cols: 80, Rows: 24}
	if !isTerminal(a.in) {
		return size, func() {}, nil
	}
	fd := int(a.in.Fd())
	if w, h, err := term.GetSize(fd); err == nil && w > 0 && h > 0 {
		size = carrel.Size{Cols: uint16(min(w, 0xffff)), Rows: uint16(min(h, 0xffff))}
	}
	if !raw {
		return size, func() {}, nil
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return size, nil, fmt.Errorf("terminal: %w", err)
	}
	return size, func() { _ = term.Restore(fd, old) }, nil
}

// endGrace is how long a command may clean up before it is killed, after we were asked to end.
// Senders of SIGTERM (timeout, a service manager) send no second one.
const endGrace = 10 * time.Second

// forwardSignals passes on window changes and interrupts until stop is called. The first interrupt
// asks the process to end, the second kills it.
func (a *app) forwardSignals(p carrel.Process, tty bool) (stop func()) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, append(resized, os.Interrupt, syscall.SIGTERM)...)
	done := make(chan struct{})
	finished := make(chan struct{})
	send := func(sig syscall.Signal) {
		if err := p.Signal(context.Background(), int(sig)); err != nil && !errors.Is(err, carrel.NotFound) {
			a.report(err)
		}
	}
	go func() {
		defer close(finished)
		kill := syscall.SIGTERM
		var overdue <-chan time.Time
		for {
			select {
			case <-done:
				return
			case <-overdue:
				send(syscall.SIGKILL)
			case s := <-signals:
				if slices.Contains(resized, s) {
					if tty {
						a.resize(p)
					}
					continue
				}
				send(kill)
				kill = syscall.SIGKILL
				if s == syscall.SIGTERM {
					overdue = time.After(endGrace)
				}
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-finished
	}
}

func (a *app) resize(p carrel.Process) {
	if w, h, err := term.GetSize(int(a.in.Fd())); err == nil && w > 0 && h > 0 {
		_ = p.Resize(context.Background(), carrel.Size{Cols: uint16(min(w, 0xffff)), Rows: uint16(min(h, 0xffff))})
	}
}

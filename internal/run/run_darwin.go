package run

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/seatbelt"
)

const system = "darwin"

// box runs the command under sandbox-exec, with a Seatbelt profile of the decisions. It shares the
// caller's terminal and process group, so the terminal's signals reach it by themselves.
func (j *Job) box(ctx context.Context) (int, syscall.Signal, error) {
	if err := j.portable(); err != nil {
		return 0, 0, err
	}
	temp, err := os.MkdirTemp("", "carrel-run-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(temp)
	opts := seatbelt.Options{Temp: temp}
	line, err := opts.Command(j.Box, j.Args)
	if err != nil {
		return 0, 0, err
	}
	for _, n := range seatbelt.Notes(j.Box) {
		j.Note(n)
	}
	if j.Box.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, j.Box.Timeout)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env, cmd.Dir = append(j.Env, "TMPDIR="+temp), j.Box.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = j.In, j.Out, j.Err
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT) // the terminal sends them to the command, too
	defer signal.Reset()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-done:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(done)
	if ctx.Err() != nil && j.Box.Timeout > 0 {
		return ExitTimeout, 0, nil
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return 0, 0, err
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 0, status.Signal(), nil
	}
	return cmd.ProcessState.ExitCode(), 0, nil
}

// portable refuses what Seatbelt can't enforce: no box is better than one with a hole.
func (j *Job) portable() error {
	b := j.Box
	open := b.Closed || b.Host || b.Policy.Default == "allow" && len(b.Policy.Rules) == 0
	for _, c := range []struct {
		field string
		bad   bool
		hint  string
	}{
		{"--allow", !open, "on macOS the network is closed, or open with --internet"},
		{"--overlay", b.Overlay, "work on a copy of the directory"},
		{"--memory", b.MemoryMB > 0 || b.CPUs > 0 || b.Pids > 0, "macOS has no limits for a group of processes"},
	} {
		if c.bad {
			return &carrel.Error{Op: "run", Kind: carrel.Unsupported, Field: c.field, Err: errors.New(c.field + " does not work on macOS"), Hint: c.hint}
		}
	}
	return nil
}

// dieBy ends this process with the signal that ended the command.
func dieBy(sig syscall.Signal) int {
	signal.Reset(sig)
	_ = syscall.Kill(os.Getpid(), sig)
	return 128 + int(sig)
}

// tiered runs the command in another tier.
func (j *Job) tiered(ctx context.Context) (int, syscall.Signal, error) { return j.Deps.Tier(ctx, j) }

func signalName(sig syscall.Signal) string { return sig.String() }

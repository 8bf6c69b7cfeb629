package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/box/stagebin"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/refusal"
	"github.com/carrel-dev/carrel/internal/run"
	"github.com/carrel-dev/carrel/internal/run/tier"
	"github.com/carrel-dev/carrel/internal/run/wired"
	"github.com/carrel-dev/carrel/internal/settings"
	"golang.org/x/term"
)

// runDeps returns the heavy parts of "carrel run".
func runDeps() run.Deps {
	return run.Deps{Stage: stagebin.File, Wire: wired.Open, Tier: runTier}
}

// runTier runs the command in a sandbox of another tier, in this process.
func runTier(ctx context.Context, j *run.Job) (int, syscall.Signal, error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	defer signal.Stop(signals)
	keep := j.Box.Overlay
	b := j.Box
	r := tier.Request{
		Tier: b.Tier, Dir: b.Dir, Args: j.Args, Env: j.Env, Stdout: j.Out, Stderr: j.Err,
		Network: carrel.Network{Policy: &b.Policy}, CPUs: b.CPUs, MemoryMB: b.MemoryMB, Pids: b.Pids, Timeout: b.Timeout,
		Readable:  func(path string) bool { access, _ := b.Access(path); return access != settings.Denied },
		Protected: func(path string) (string, bool) { return run.Protected(b, path) },
		Note:      j.Note, Denied: j.Decided, Signals: signals, KeepChanges: keep,
		Copy: j.Copy,
	}
	if !j.Quiet {
		r.Progress = j.Err
	}
	r.Stdin = j.In
	if term.IsTerminal(int(j.In.Fd())) && term.IsTerminal(int(j.Out.Fd())) {
		r.Terminal = j.In
	}
	res, err := tier.Run(ctx, r)
	if err != nil {
		if res.Upper != "" {
			fmt.Fprintf(j.Err, "carrel: the changes are kept in %s\n", printable(res.Upper))
		}
		return 0, 0, err
	}
	if res.Upper != "" {
		defer func() {
			if !j.Keeps() {
				_ = overlay.Remove(res.Upper)
			}
		}()
	}
	if res.Limit == "timeout" {
		j.Limit(res.Limit, b.Timeout.String())
		return run.ExitTimeout, 0, nil
	}
	for _, s := range res.Skipped {
		j.Log.Add(refusal.Refusal{Kind: refusal.Write, What: filepath.Join(b.Dir, s.Path), Operation: "apply", Rule: s.Rule,
			Reason: "it was changed in the sandbox and not carried back", Certain: true})
	}
	if keep {
		if err := j.Kept(ctx, b.Dir, res.Upper, res.Changes); err != nil {
			return 0, 0, err
		}
	}
	return res.Code, res.Signal, nil
}

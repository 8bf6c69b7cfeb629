package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// forkBatch is how many forks one request makes. With more, the user would see nothing for long.
const forkBatch = 100

// forkCommand is "carrel fork".
func (a *app) forkCommand() *cobra.Command {
	var opts carrel.ForkOptions
	var whole bool
	c := &cobra.Command{
		Use:   "fork ID",
		Short: "Make new sandboxes from this moment of one",
		Long: `Makes new sandboxes from this moment of a running or paused one, with its memory,
processes and files, and prints their IDs. The sandbox itself goes on. Many are made
100 at a time, all from the same moment. When some can't be made, no more are begun,
those that were made stay, and the exit status is 1.`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
		if opts.Count < 1 || opts.Count > carrel.MaxForks {
			return usage(fmt.Errorf("--count %d is not between 1 and %d", opts.Count, carrel.MaxForks))
		}
		job := &forkJob{app: a, svc: svc, id: id, opts: opts, whole: whole, forks: []carrel.Sandbox{}, failed: []failure{}}
		return job.run(ctx)
	})
	c.Flags().IntVarP(&opts.Count, "count", "n", 1, fmt.Sprintf("how many, up to %d", carrel.MaxForks))
	c.Flags().DurationVar(&opts.Timeout, "timeout", 0, "life of each (default: the parent's, or the daemon's)")
	c.Flags().BoolVar(&opts.FilesOnly, "files-only", false,
		"begin with the files alone: the forks boot afresh")
	c.Flags().BoolVar(&whole, "all-or-nothing", false, "when one can't be made, remove the others again")
	return c
}

// forkJob is one run of fork.
type forkJob struct {
	app   *app
	svc   carrel.Service
	id    carrel.ID
	opts  carrel.ForkOptions // Count is of all
	whole bool               // all or nothing

	forks  []carrel.Sandbox
	failed []failure
	told   map[string]bool // errors that were reported
}

// run makes the forks and reports the results.
func (j *forkJob) run(ctx context.Context) error {
	at, err := carrel.SnapshotID(""), error(nil)
	for err == nil && len(j.failed) == 0 && len(j.forks) < j.opts.Count {
		opts := j.opts
		opts.Count, opts.At = min(forkBatch, j.opts.Count-len(j.forks)), at
		var results []carrel.ForkResult
		if results, err = j.svc.Fork(ctx, j.id, opts); err == nil {
			at, err = j.take(results)
		}
	}
	if err != nil && len(j.forks) == 0 && len(j.failed) == 0 {
		return err
	}
	if err != nil {
		j.fail(err)
	}
	if len(j.failed) > 0 {
		j.app.code = 1
		if errors.Is(err, context.Canceled) {
			fmt.Fprintf(j.app.err, "carrel: there may be more than these: see carrel timeline %s\n", j.id)
		}
		j.sumUp(ctx)
	}
	if j.whole {
		for _, sb := range j.forks {
			if err := j.app.printLine(sb.ID); err != nil {
				return err
			}
		}
	}
	return j.app.printSeveral(nil, map[string]any{"wanted": j.opts.Count, "forks": j.forks, "failed": j.failed})
}

// take records the results of one request. It returns the snapshot from which the forks were made.
func (j *forkJob) take(results []carrel.ForkResult) (at carrel.SnapshotID, err error) {
	if len(results) == 0 {
		return "", &carrel.Error{Op: "fork sandbox", Kind: carrel.Internal, ID: j.id, Err: errors.New("the daemon made none and says no reason")}
	}
	for _, r := range results {
		if r.Err != nil {
			j.fail(r.Err)
			continue
		}
		j.forks, at = append(j.forks, r.Sandbox), r.Sandbox.Snapshot
		if !j.whole {
			err = errors.Join(err, j.app.printLine(r.Sandbox.ID))
		}
	}
	if j.opts.Count > forkBatch {
		fmt.Fprintf(j.app.err, "carrel: %d of %d forks are made\n", len(j.forks), j.opts.Count)
	}
	return at, err
}

// fail records a failure. Equal failures are reported once.
func (j *forkJob) fail(err error) {
	f := failureOf("", err)
	j.failed = append(j.failed, f)
	if j.told == nil {
		j.told = map[string]bool{}
	}
	if !j.told[f.Error] {
		j.told[f.Error] = true
		j.app.report(err)
	}
}

// sumUp reports how many forks were made. If the user wants all or none, it removes them after a
// failure.
func (j *forkJob) sumUp(ctx context.Context) {
	if !j.whole {
		if j.opts.Count > 1 {
			fmt.Fprintf(j.app.err, "carrel: %d of %d forks were made and stay\n", len(j.forks), j.opts.Count)
		}
		return
	}
	made := len(j.forks)
	left := []carrel.Sandbox{}
	for _, sb := range j.forks {
		if err := j.svc.Kill(context.WithoutCancel(ctx), sb.ID); err != nil && carrel.KindOf(err) != carrel.NotFound {
			j.app.report(err)
			left = append(left, sb)
		}
	}
	j.forks = left
	fmt.Fprintf(j.app.err, "carrel: %d of %d forks could be made; %d of these were removed again\n", made, j.opts.Count, made-len(left))
}

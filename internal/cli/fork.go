package cli

import (
	"context"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// mostForks is how many forks one call may ask for, as at E2B.
const mostForks = 100

// forkCommand is "carrel fork".
func (a *app) forkCommand() *cobra.Command {
	var opts carrel.ForkOptions
	c := &cobra.Command{
		Use:   "fork ID",
		Short: "Make new sandboxes from this moment of one",
		Long: `Makes new sandboxes from this moment of a running or paused one, with its memory,
processes and files, and prints their IDs. The sandbox itself goes on. The exit
status is 1 when any of them could not be made.`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
		if opts.Count < 1 || opts.Count > mostForks {
			return usage(fmt.Errorf("--count %d is not between 1 and %d", opts.Count, mostForks))
		}
		results, err := svc.Fork(ctx, id, opts)
		if err != nil {
			return err
		}
		forks, failed := []carrel.Sandbox{}, []failure{}
		for _, r := range results {
			if r.Err != nil {
				failed = append(failed, failureOf("", r.Err))
				a.report(r.Err)
				a.code = 1
				continue
			}
			forks = append(forks, r.Sandbox)
			if err := a.printLine(r.Sandbox.ID); err != nil {
				return err
			}
		}
		return a.printSeveral(nil, map[string]any{"forks": forks, "failed": failed})
	})
	c.Flags().IntVarP(&opts.Count, "count", "n", 1, "how many, up to 100")
	c.Flags().DurationVar(&opts.Timeout, "timeout", 0, "life of each (default: the daemon's)")
	return c
}

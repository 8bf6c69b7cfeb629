package cli

import (
	"context"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// backTo is the destination of a rollback.
type backTo struct {
	snapshot string
	last     bool
	steps    int
}

// rollbackCommand is "carrel rollback".
func (a *app) rollbackCommand() *cobra.Command {
	var to backTo
	var opts carrel.RollbackOptions
	c := &cobra.Command{
		Use:   "rollback ID [SNAPSHOT|NAME]",
		Short: "Put a sandbox back to an earlier moment",
		Long: `Puts a sandbox back to an earlier moment of its own timeline, with the same ID and
the same addresses, and prints the snapshot it is back at. Without a snapshot it
goes back to the head: what happened since the last snapshot is undone. -n 1 goes
to the head's parent, -n 2 to that one's, and so on. --last goes to the newest
snapshot, wherever on the tree: after a rollback with --keep it undoes that one.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				to.snapshot = args[1]
			}
			if err := to.check(c.Flags().Changed("steps")); err != nil {
				return err
			}
			return a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
				return a.rollback(ctx, svc, id, to, opts)
			})(c, args)
		},
	}
	f := c.Flags()
	f.BoolVar(&to.last, "last", false, "to the newest snapshot, wherever on the tree")
	f.IntVarP(&to.steps, "steps", "n", 0, "so many snapshots before the head")
	f.BoolVar(&opts.Keep, "keep", false, "take a snapshot of what is left behind first")
	return c
}

func (to backTo) check(counted bool) error {
	switch {
	case to.snapshot != "" && (to.last || counted), to.last && counted:
		return usage(fmt.Errorf("name a snapshot, or give one of --last and --steps"))
	case to.steps < 0:
		return usage(fmt.Errorf("--steps %d is negative", to.steps))
	}
	return nil
}

func (a *app) rollback(ctx context.Context, svc carrel.Service, id carrel.ID, to backTo, opts carrel.RollbackOptions) error {
	target, err := to.find(ctx, svc, id)
	if err != nil {
		return err
	}
	sb, err := svc.Rollback(ctx, id, target, opts)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"snapshot": target, "sandbox": sb})
	}
	fmt.Fprintln(a.out, target)
	if opts.Keep {
		fmt.Fprintf(a.err, "carrel: what was left behind is kept; to go there again: carrel rollback %s --last\n", id)
	}
	return nil
}

// find returns the snapshot to go back to.
func (to backTo) find(ctx context.Context, svc carrel.Service, id carrel.ID) (carrel.SnapshotID, error) {
	if to.snapshot != "" {
		return resolveSnapshot(ctx, svc, to.snapshot, snapshotsOf(id))
	}
	tl, err := svc.Timeline(ctx, id)
	if err != nil {
		return "", err
	}
	if tl.Head == "" || len(tl.Snapshots) == 0 {
		return "", noSnapshot(id, "it has no snapshot to go back to", "take one before the next risk: carrel snapshot "+string(id))
	}
	if to.last {
		newest := tl.Snapshots[0]
		for _, s := range tl.Snapshots {
			if s.Created.After(newest.Created) {
				newest = s
			}
		}
		return newest.ID, nil
	}
	at := tl.Head
	for done := range to.steps {
		if at = parentOf(tl, at); at == "" {
			return "", noSnapshot(id, fmt.Sprintf("%d steps back from its head lie before its first snapshot; %d is the most", to.steps, done),
				"see carrel timeline "+string(id))
		}
	}
	return at, nil
}

// noSnapshot returns the error for a sandbox that lacks the requested snapshot.
func noSnapshot(id carrel.ID, what, hint string) error {
	return &carrel.Error{Op: "find snapshot", Kind: carrel.NotFound, ID: id, Err: fmt.Errorf("%s", what), Hint: hint}
}

// parentOf returns the snapshot before a given one; "" if the timeline has none.
func parentOf(tl carrel.Timeline, id carrel.SnapshotID) carrel.SnapshotID {
	var parent carrel.SnapshotID
	for _, s := range tl.Snapshots {
		if s.ID == id {
			parent = s.Parent
		}
	}
	for _, s := range tl.Snapshots {
		if s.ID == parent {
			return parent
		}
	}
	return ""
}

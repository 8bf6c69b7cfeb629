package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
)

// fsckCommands are the commands for things without a record.
type fsckCommands struct{ *app }

// fsckResult is what "carrel fsck --json" prints.
type fsckResult struct {
	Unclaimed []carrel.Unclaimed `json:"unclaimed"` // left after the command
	Reclaimed []string           `json:"reclaimed"`
	Deleted   []string           `json:"deleted"`
	Failed    []failure          `json:"failed"`
}

// fsckCommand is "carrel fsck".
func (a fsckCommands) fsckCommand() *cobra.Command {
	var repair bool
	var remove []string
	c := &cobra.Command{
		Use:   "fsck [flags]",
		Short: "List snapshots and sandboxes that have no record, and repair that",
		Long: `Lists what the daemon found at its start and has no record of. Records can be lost: by damage
to the disk, or when an older state.db is put back. The daemon deletes nothing because its record
is missing. It keeps such things for 30 days and lists them here.

--repair makes the records of snapshots again, from what each snapshot says of itself. A sandbox
that was paused is then there again. --delete ID deletes one thing, or ends a running sandbox.
Without a flag nothing is changed.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if repair && len(remove) > 0 {
				return usage(errors.New("--repair and --delete: give one of them"))
			}
			return a.withService(c.Context(), func(svc carrel.Service) error { return a.fsck(c, svc, repair, remove) })
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "make the records of snapshots again")
	c.Flags().StringArrayVar(&remove, "delete", nil, "`ID` of a thing to delete (repeat)")
	return c
}

// fsck lists, repairs or deletes, and prints what is left.
func (a fsckCommands) fsck(c *cobra.Command, svc carrel.Service, repair bool, remove []string) error {
	ctx := c.Context()
	res := fsckResult{Reclaimed: []string{}, Deleted: []string{}}
	do, done, ids := svc.Discard, &res.Deleted, remove
	if repair {
		list, err := svc.Unclaimed(ctx)
		if err != nil {
			return err
		}
		do, done = svc.Reclaim, &res.Reclaimed
		for _, u := range list {
			if u.Problem == "" {
				ids = append(ids, u.ID)
			}
		}
	}
	var first, err error
	res.Failed, first = a.forEach(ctx, ids, func(id string) error {
		err := do(ctx, id)
		if err == nil {
			*done = append(*done, id)
		}
		return err
	})
	if res.Unclaimed, err = svc.Unclaimed(ctx); err != nil {
		return err
	}
	if a.json {
		return errors.Join(a.printJSON(res), first)
	}
	return errors.Join(a.printUnclaimed(res, repair), first)
}

// printUnclaimed prints what is left on stdout, and the rest for a person.
func (a fsckCommands) printUnclaimed(res fsckResult, repair bool) error {
	if n := len(res.Reclaimed); n > 0 {
		fmt.Fprintf(a.err, "carrel: made %d records again\n", n)
	}
	if n := len(res.Deleted); n > 0 {
		fmt.Fprintf(a.err, "carrel: deleted %d\n", n)
	}
	if len(res.Unclaimed) == 0 {
		fmt.Fprintln(a.err, "carrel: everything has its record")
		return nil
	}
	now := time.Now()
	repairable := false
	rows := make([][]string, 0, len(res.Unclaimed))
	for _, u := range res.Unclaimed {
		note := u.Reason
		if u.Problem != "" {
			note = "can't be repaired: " + u.Problem
		} else {
			repairable = true
		}
		size, sandbox := "-", "-"
		if u.Size > 0 {
			size = bytesText(u.Size)
		}
		if u.Sandbox != "" {
			sandbox = string(u.Sandbox)
		}
		rows = append(rows, []string{u.ID, string(u.Kind), sandbox, size, ago(now, u.Found), fmt.Sprintf("in %d d", int(u.Expires.Sub(now).Hours()/24)), printable(note)})
	}
	if err := a.table([]string{"ID", "KIND", "SANDBOX", "SIZE", "FOUND", "DELETED", "WHY"}, rows); err != nil {
		return err
	}
	if repairable && !repair {
		fmt.Fprintln(a.err, "hint: carrel fsck --repair makes the records of snapshots again")
	}
	return nil
}

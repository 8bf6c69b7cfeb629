package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// snapshotCommands are the commands about snapshots.
type snapshotCommands struct{ *app }

// snapshotCommand is "carrel snapshot ID" and the parent of "carrel snapshot …".
func (a snapshotCommands) snapshotCommand() *cobra.Command {
	var opts carrel.SnapshotOptions
	c := &cobra.Command{
		Use:   "snapshot ID",
		Short: "Keep this moment of a sandbox, or see to what was kept",
		Long: `Keeps this moment of a sandbox, which goes on, and prints the snapshot's ID. The
subcommands see to snapshots. Where one is named, its ID, one of its names, or the
beginning of its ID as carrel timeline shows it will do.`,
		Args: cobra.ExactArgs(1),
		RunE: a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
			snap, err := svc.Snapshot(ctx, id, opts)
			if err != nil {
				return err
			}
			return a.printSnapshotID(snap)
		}),
	}
	f := c.Flags()
	f.StringVar(&opts.Name, "name", "", "a name to find it by, such as warm or warm:v2")
	f.StringVar(&opts.Label, "label", "", "a note for people")
	f.BoolVar(&opts.FilesOnly, "files-only", false, "keep the files only, without memory and processes")
	c.AddCommand(a.snapshotListCommand(), a.snapshotRemoveCommand(), a.snapshotInspectCommand(), a.snapshotLabelCommand(),
		a.snapshotNameCommand(), a.snapshotKeepCommand(), a.snapshotUsageCommand(), a.snapshotGCCommand())
	return c
}

// printSnapshotID prints the ID of a snapshot that a command made or changed.
func (a snapshotCommands) printSnapshotID(s carrel.Snapshot) error {
	if a.json {
		return a.printJSON(s)
	}
	_, err := fmt.Fprintln(a.out, s.ID)
	return err
}

func (a snapshotCommands) snapshotListCommand() *cobra.Command {
	var opts carrel.SnapshotListOptions
	var sandbox string
	var limit int
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List snapshots, newest first", Args: cobra.NoArgs,
		Long: `Lists the snapshots that were asked for, newest first; with --all also those that
were taken for pauses, forks and rollbacks, and by themselves.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage(fmt.Errorf("--limit %d is negative", limit))
			}
			if sandbox != "" {
				id, err := carrel.ParseID(sandbox)
				if err != nil {
					return err
				}
				opts.Sandbox = id
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				all, err := listSnapshots(c.Context(), svc, opts, limit)
				if err != nil {
					return err
				}
				return a.printSnapshots(all)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&sandbox, "sandbox", "", "only those of this sandbox")
	f.StringVar(&opts.Name, "name", "", "only those of this name, with or without a tag")
	f.BoolVar(&opts.Auto, "all", false, "also those that nobody asked for by name")
	f.IntVarP(&limit, "limit", "n", 0, "at most this many (0: all)")
	return c
}

func (a snapshotCommands) printSnapshots(all []carrel.Snapshot) error {
	if a.json {
		return a.printJSON(all)
	}
	rows := make([][]string, 0, len(all))
	for _, s := range all {
		kept := "–"
		if s.Kept {
			kept = "kept"
		}
		label := s.Label
		if s.Unavailable != "" {
			label = strings.TrimSpace(label + " (not available now: " + s.Unavailable + ")")
		}
		rows = append(rows, []string{string(s.ID), string(s.Sandbox), ago(a.now(), s.Created), string(s.Cause), holds(s), bytesText(s.Size),
			addedText(s.New), kept, first(strings.Join(s.Names, ","), "–"), label})
	}
	return a.table([]string{"ID", "SANDBOX", "AGE", "CAUSE", "HOLDS", "SIZE", "ADDED", "KEPT", "NAMES", "LABEL"}, rows)
}

func (a snapshotCommands) snapshotRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm SNAPSHOT|NAME…", Short: "Remove snapshots; what came after them stays", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				removed := []carrel.SnapshotID{}
				failed, err := a.forEach(c.Context(), args, func(arg string) error {
					id, err := resolveSnapshot(c.Context(), svc, arg, allSnapshots)
					if err != nil {
						return err
					}
					if err := svc.DeleteSnapshot(c.Context(), string(id)); err != nil {
						return err
					}
					removed = append(removed, id)
					return a.printLine(id)
				})
				return a.printSeveral(err, map[string]any{"removed": removed, "failed": failed})
			})
		},
	}
}

func (a snapshotCommands) snapshotInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect SNAPSHOT|NAME", Aliases: []string{"info"}, Short: "Show one snapshot", Args: cobra.ExactArgs(1),
		RunE: a.onSnapshot(func(ctx context.Context, svc carrel.Service, id carrel.SnapshotID, _ []string) error {
			s, err := svc.GetSnapshot(ctx, string(id))
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(s)
			}
			added := "not known yet"
			if s.New >= 0 {
				added = bytesText(s.New)
			}
			return a.table([]string{"FIELD", "VALUE"}, [][]string{
				{"id", string(s.ID)}, {"sandbox", string(s.Sandbox)}, {"parent", first(string(s.Parent), "–")},
				{"created", s.Created.Format(time.RFC3339)}, {"cause", string(s.Cause)}, {"detail", s.Detail},
				{"names", strings.Join(s.Names, ",")}, {"label", s.Label},
				{"available", first(s.Unavailable, "yes")}, {"holds", holds(s)},
				{"kept", strconv.FormatBool(s.Kept)},
				{"template", first(s.Alias, s.Template)}, {"tier", string(s.Tier)},
				{"cpus", strconv.FormatFloat(s.Limits.CPUs, 'g', -1, 64)}, {"memory", bytesText(int64(s.Limits.MemoryMB) << 20)},
				{"disk", bytesText(int64(s.Limits.DiskMB) << 20)}, {"pids", strconv.Itoa(s.Limits.Pids)},
				{"size", bytesText(s.Size)}, {"added", added},
			})
		}),
	}
}

// onSnapshot returns the function of a command whose first argument is a snapshot; rest are the
// other arguments.
func (a snapshotCommands) onSnapshot(fn func(ctx context.Context, svc carrel.Service, id carrel.SnapshotID, rest []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		return a.withService(c.Context(), func(svc carrel.Service) error {
			id, err := resolveSnapshot(c.Context(), svc, args[0], allSnapshots)
			if err != nil {
				return err
			}
			return fn(c.Context(), svc, id, args[1:])
		})
	}
}

// updateSnapshot changes a snapshot and prints its ID.
func (a snapshotCommands) updateSnapshot(ctx context.Context, svc carrel.Service, id carrel.SnapshotID, u carrel.SnapshotUpdate) error {
	snap, err := svc.UpdateSnapshot(ctx, id, u)
	if err != nil {
		return err
	}
	return a.printSnapshotID(snap)
}

func (a snapshotCommands) snapshotLabelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "label SNAPSHOT TEXT", Short: `Write a note on a snapshot; "" removes it`, Args: cobra.ExactArgs(2),
		RunE: a.onSnapshot(func(ctx context.Context, svc carrel.Service, id carrel.SnapshotID, rest []string) error {
			return a.updateSnapshot(ctx, svc, id, carrel.SnapshotUpdate{Label: &rest[0]})
		}),
	}
}

// sameName reports whether two names mean the same: a name without a tag has the default tag.
func sameName(a, b string) bool {
	const defaultTag = ":default"
	return strings.TrimSuffix(a, defaultTag) == strings.TrimSuffix(b, defaultTag)
}

func (a snapshotCommands) snapshotNameCommand() *cobra.Command {
	var remove bool
	c := &cobra.Command{
		Use: "name SNAPSHOT NAME", Short: "Give a snapshot one more name", Args: cobra.ExactArgs(2),
		RunE: a.onSnapshot(func(ctx context.Context, svc carrel.Service, id carrel.SnapshotID, rest []string) error {
			snap, err := svc.GetSnapshot(ctx, string(id))
			if err != nil {
				return err
			}
			names := slices.DeleteFunc(slices.Clone(snap.Names), func(n string) bool { return sameName(n, rest[0]) })
			switch {
			case !remove:
				names = append(names, rest[0])
			case len(names) == len(snap.Names):
				return &carrel.Error{Op: "name snapshot", Kind: carrel.NotFound, Field: "name", Err: fmt.Errorf("%s does not have the name %q", id, rest[0]),
					Hint: "its names: carrel snapshot inspect " + string(id)}
			}
			return a.updateSnapshot(ctx, svc, id, carrel.SnapshotUpdate{Names: &names})
		}),
	}
	c.Flags().BoolVar(&remove, "remove", false, "take the name away")
	return c
}

func (a snapshotCommands) snapshotKeepCommand() *cobra.Command {
	var off bool
	c := &cobra.Command{
		Use: "keep SNAPSHOT|NAME", Short: "Keep a snapshot whatever the retention, and beyond its sandbox's end", Args: cobra.ExactArgs(1),
		RunE: a.onSnapshot(func(ctx context.Context, svc carrel.Service, id carrel.SnapshotID, _ []string) error {
			keep := !off
			return a.updateSnapshot(ctx, svc, id, carrel.SnapshotUpdate{Kept: &keep})
		}),
	}
	c.Flags().BoolVar(&off, "off", false, "let retention have it again")
	return c
}

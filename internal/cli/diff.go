package cli

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// diffCommand is "carrel diff".
func (a *app) diffCommand() *cobra.Command {
	var stat bool
	var file string
	c := &cobra.Command{
		Use:   "diff SNAPSHOT SNAPSHOT | SNAPSHOT | ID",
		Short: "List which files changed between two snapshots",
		Long: `Lists which files changed from one snapshot to another: A added, M modified,
D removed, m only the mode or owner. One snapshot is compared with its parent, and
for a sandbox its head is: what changed between its last two snapshots. What
happened since the head is in no snapshot; take one first to see it. With --file it
shows how the text of one file changed, line by line.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				from, to, err := diffEnds(c.Context(), svc, args)
				if err != nil {
					return err
				}
				if file != "" {
					return fileDiffs{a}.print(c.Context(), svc, from, to, file)
				}
				changes, err := svc.Diff(c.Context(), from, to)
				if err != nil {
					return err
				}
				return a.printDiff(diff{From: from, To: to, Changes: changes}, stat)
			})
		},
	}
	c.Flags().StringVar(&file, "file", "", "show what changed in the text of this file, an absolute path")
	c.Flags().BoolVar(&stat, "stat", false, "print the sums only")
	return c
}

// diffEnds returns the two snapshots that the arguments name.
func diffEnds(ctx context.Context, svc carrel.Service, args []string) (from, to carrel.SnapshotID, err error) {
	if len(args) == 2 {
		if from, err = resolveSnapshot(ctx, svc, args[0], allSnapshots); err != nil {
			return "", "", err
		}
		to, err = resolveSnapshot(ctx, svc, args[1], allSnapshots)
		return from, to, err
	}
	if id, err := carrel.ParseID(args[0]); err == nil {
		tl, err := svc.Timeline(ctx, id)
		if err != nil {
			return "", "", err
		}
		if to = tl.Head; to == "" {
			return "", "", noSnapshot(id, "it has no snapshots to compare", "take one with: carrel snapshot "+string(id))
		}
	} else if to, err = resolveSnapshot(ctx, svc, args[0], allSnapshots); err != nil {
		return "", "", err
	}
	snap, err := svc.GetSnapshot(ctx, string(to))
	if err != nil {
		return "", "", err
	}
	if snap.Parent == "" {
		return "", "", noSnapshot(snap.Sandbox, fmt.Sprintf("%s is the first snapshot: there is none to compare it with", to), "name two: carrel diff SNAPSHOT SNAPSHOT")
	}
	return snap.Parent, to, nil
}

// diff is the JSON of a diff.
type diff struct {
	From    carrel.SnapshotID   `json:"from"`
	To      carrel.SnapshotID   `json:"to"`
	Changes []carrel.FileChange `json:"changes"`
}

// diffStat has the sums of a diff, in JSON.
type diffStat struct {
	From     carrel.SnapshotID `json:"from"`
	To       carrel.SnapshotID `json:"to"`
	Added    int               `json:"added"`
	Modified int               `json:"modified"`
	Removed  int               `json:"removed"`
	Mode     int               `json:"mode"`
	Before   int64             `json:"bytesBefore"` // of the changed files
	After    int64             `json:"bytesAfter"`
}

func (a *app) printDiff(d diff, stat bool) error {
	if stat {
		return a.printStat(d.sums())
	}
	if a.json {
		if d.Changes == nil {
			d.Changes = []carrel.FileChange{}
		}
		return a.printJSON(d)
	}
	arrow := "→"
	if plainTerminal(os.Getenv) {
		arrow = "->"
	}
	for _, c := range d.Changes {
		if _, err := fmt.Fprintln(a.out, changeText(c, arrow)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printStat(s diffStat) error {
	if a.json {
		return a.printJSON(s)
	}
	_, err := fmt.Fprintf(a.out, "%d added, %d modified, %d removed, %d with another mode or owner; %s before, %s after\n",
		s.Added, s.Modified, s.Removed, s.Mode, bytesText(s.Before), bytesText(s.After))
	return err
}

func (d diff) sums() diffStat {
	s := diffStat{From: d.From, To: d.To}
	counts := map[carrel.ChangeKind]*int{carrel.ChangeAdded: &s.Added, carrel.ChangeModified: &s.Modified,
		carrel.ChangeRemoved: &s.Removed, carrel.ChangeMode: &s.Mode}
	for _, c := range d.Changes {
		if n := counts[c.Kind]; n != nil {
			*n++
		}
		if c.Before != nil && c.Before.Mode.IsRegular() {
			s.Before += c.Before.Size
		}
		if c.After != nil && c.After.Mode.IsRegular() {
			s.After += c.After.Size
		}
	}
	return s
}

// changeLetters are git's letters for the kinds of changes.
var changeLetters = map[carrel.ChangeKind]string{carrel.ChangeAdded: "A", carrel.ChangeModified: "M", carrel.ChangeRemoved: "D", carrel.ChangeMode: "m"}

// changeText writes one change on one line: the letter, the path, and the changed properties.
func changeText(c carrel.FileChange, arrow string) string {
	line := first(changeLetters[c.Kind], "?") + " " + pathText(c.Path)
	if isDir(c.Before) || isDir(c.After) {
		line += "/"
	}
	before, after := sizeOf(c.Before), sizeOf(c.After)
	if c.Kind == carrel.ChangeMode {
		before, after = accessOf(c.Before), accessOf(c.After)
	}
	switch {
	case before == "" && after == "":
		return line
	case before == "" || after == "":
		return line + "  " + before + after
	case before == after:
		return line + "  " + after
	}
	return line + "  " + before + " " + arrow + " " + after
}

func isDir(f *carrel.FileInfo) bool { return f != nil && f.Mode.IsDir() }

// sizeOf writes a file's size, or its kind if it is not a regular file.
func sizeOf(f *carrel.FileInfo) string {
	switch {
	case f == nil || f.Mode.IsDir():
		return ""
	case f.Mode.IsRegular():
		return bytesText(f.Size)
	case f.Mode&fs.ModeSymlink != 0:
		return "link to " + pathText(f.Target)
	}
	return "special"
}

// accessOf writes a file's owner and permissions.
func accessOf(f *carrel.FileInfo) string {
	if f == nil {
		return ""
	}
	return strings.Join([]string{f.Mode.String(), printable(f.Owner + ":" + f.Group)}, " ")
}

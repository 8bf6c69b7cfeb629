package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff/lcs"

	"github.com/carrel-dev/carrel"
)

// contextLines is how many unchanged lines stand around a change.
const contextLines = 3

// fileDiff is the JSON of a comparison of one file. A side is null where there is no such file.
type fileDiff struct {
	From   carrel.SnapshotID    `json:"from"`
	To     carrel.SnapshotID    `json:"to"`
	Path   string               `json:"path"`
	Before *carrel.SnapshotFile `json:"before"`
	After  *carrel.SnapshotFile `json:"after"`
}

// fileDiffs print comparisons of files.
type fileDiffs struct{ *app }

// print compares the text of one file in two snapshots.
func (a fileDiffs) print(ctx context.Context, svc carrel.Service, from, to carrel.SnapshotID, name string) error {
	d := fileDiff{From: from, To: to, Path: name}
	var err error
	if d.Before, err = fileIn(ctx, svc, from, name); err != nil {
		return err
	}
	if d.After, err = fileIn(ctx, svc, to, name); err != nil {
		return err
	}
	if d.Before == nil && d.After == nil {
		_, err := svc.SnapshotFile(ctx, to, name) // says what is missing
		return err
	}
	if a.json {
		return a.printJSON(d)
	}
	before, after := textOf(d.Before), textOf(d.After)
	if before == nil || after == nil {
		_, err := fmt.Fprintf(a.out, "%s: only texts of at most %s can be compared by line\n", pathText(name), bytesText(carrel.MaxSnapshotFile))
		return err
	}
	return writeHunks(a.out, before, after)
}

// fileIn reads a file of a snapshot. The result is nil if there is none.
func fileIn(ctx context.Context, svc carrel.Service, id carrel.SnapshotID, name string) (*carrel.SnapshotFile, error) {
	f, err := svc.SnapshotFile(ctx, id, name)
	if e, ok := errors.AsType[*carrel.Error](err); ok && e.Kind == carrel.NotFound && e.Field == "path" {
		return nil, nil
	}
	return &f, err
}

// textOf returns the lines of a file, or nil if it is no text or only its beginning is known.
func textOf(f *carrel.SnapshotFile) []string {
	switch {
	case f == nil:
		return []string{}
	case f.Info.Target != "":
		return []string{"→ " + f.Info.Target + "\n"}
	case !f.Whole || !utf8.Valid(f.Content) || bytes.ContainsRune(f.Content, 0):
		return nil
	}
	lines := strings.SplitAfter(string(f.Content), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// writeHunks writes the changed lines with some lines around them. Nothing that a file holds steers
// the terminal.
func writeHunks(w io.Writer, before, after []string) error {
	edits := lcs.DiffLines(before, after)
	for i := 0; i < len(edits); {
		last := i // of the edits that stand in one piece
		for last+1 < len(edits) && edits[last+1].Start-edits[last].End <= 2*contextLines {
			last++
		}
		from, to := max(0, edits[i].Start-contextLines), min(len(before), edits[last].End+contextLines)
		into := edits[i].ReplStart - (edits[i].Start - from)
		until := edits[last].ReplEnd + (to - edits[last].End)
		lines := []string{fmt.Sprintf("@@ -%d,%d +%d,%d @@", from+1, to-from, into+1, until-into)}
		add := func(sign string, part []string) {
			for _, l := range part {
				lines = append(lines, sign+shown(strings.TrimSuffix(l, "\n")))
			}
		}
		for _, e := range edits[i : last+1] {
			add(" ", before[from:e.Start])
			add("-", before[e.Start:e.End])
			add("+", after[e.ReplStart:e.ReplEnd])
			from = e.End
		}
		add(" ", before[from:to])
		if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
			return err
		}
		i = last + 1
	}
	return nil
}

// shown is visible, but for tabs.
func shown(line string) string {
	cells := strings.Split(line, "\t")
	for i, c := range cells {
		cells[i] = visible(c)
	}
	return strings.Join(cells, "\t")
}

package cli

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// timelineCommand is "carrel timeline".
func (a *app) timelineCommand() *cobra.Command {
	var ascii, all bool
	c := &cobra.Command{
		Use:   "timeline ID",
		Short: "Draw a sandbox's past as a tree",
		Long: `Draws a sandbox's past, oldest first: every snapshot, and where the sandbox is now.
A straight history is a straight line; what a rollback left behind is a branch, and
forks hang from the moment they came after. A snapshot is shown by the beginning of
its ID, which the other commands take as well. Beside it stand its age, what it
holds, the size of that, what it added to the store, and why it was taken.`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
		tl, err := svc.Timeline(ctx, id)
		if err != nil {
			return err
		}
		if a.json {
			if tl.Snapshots == nil {
				tl.Snapshots = []carrel.Snapshot{}
			}
			return a.printJSON(tl)
		}
		sb, err := svc.Get(ctx, id)
		if err != nil {
			return err
		}
		if !c.Flags().Changed("ascii") {
			ascii = plainTerminal(os.Getenv)
		}
		p := a.pen(ascii)
		p.all = all
		if _, err := fmt.Fprint(a.out, p.timeline(tl, sb)); err != nil {
			return err
		}
		if len(tl.Snapshots) == 0 {
			fmt.Fprintf(a.err, "carrel: no snapshots yet; take one with: carrel snapshot %s\n", id)
		}
		return nil
	})
	c.Flags().BoolVar(&ascii, "ascii", false, "draw with ASCII only (default: when the locale is not UTF-8)")
	c.Flags().BoolVar(&all, "all", false, "show all forks of a moment that has many")
	return c
}

// pen is the style in which a timeline is written.
type pen struct {
	now    time.Time
	ascii  bool
	color  bool
	all    bool
	width  int // of the terminal, in cells
	glyphs glyphs
	short  int // characters of a snapshot's ID
}

// pen returns the pen for standard output. Colour never carries information that the text lacks.
func (a *app) pen(ascii bool) pen {
	p := pen{now: a.now(), ascii: ascii, width: math.MaxInt, glyphs: unicodeGlyphs}
	if ascii {
		p.glyphs = asciiGlyphs
	}
	if f, ok := a.out.(*os.File); ok && isTerminal(f) {
		p.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			p.width = w
		}
	}
	return p
}

// The styles, as escape sequences of terminals.
const (
	plain = ""
	faint = "\x1b[2m"
	title = "\x1b[33m"
	vivid = "\x1b[1;32m"
	reset = "\x1b[0m"
)

// piece is a part of a line in one style.
type piece struct{ style, text string }

// timeline writes a whole timeline.
func (p pen) timeline(tl carrel.Timeline, sb carrel.Sandbox) string {
	p.short = shortIDs(tl.Snapshots)
	d := artist{glyphs: p.glyphs, mostForks: 8, present: p.present(sb)}
	if p.all {
		d.mostForks = math.MaxInt
	}
	rows := d.draw(tl)
	left := 0
	for _, r := range rows {
		if r.at != nil {
			left = max(left, cells(r.graph)+1+p.short)
		}
	}
	columns := p.columns(rows)
	var out strings.Builder
	for i, r := range rows {
		switch {
		case r.at != nil:
			id := short(r.at.ID, p.short)
			pieces := []piece{{faint, r.graph}, {plain, " "}, {title, id}, {plain, strings.Repeat(" ", left-cells(r.graph)-1-cells(id)) + "  " + columns[i]}}
			if r.at.head {
				pieces = append(pieces, piece{vivid, "  " + p.glyphs.back + " head"})
			}
			p.write(&out, append(pieces, piece{plain, p.texts(tl, r.at)}))
		case r.here:
			p.write(&out, []piece{{faint, strings.TrimSuffix(r.graph, p.glyphs.here)}, {vivid, p.glyphs.here + " " + r.note}})
		default:
			p.write(&out, []piece{{faint, r.graph}, {plain, " " + r.note}})
		}
	}
	if n := len(tl.Snapshots); n > 0 {
		fmt.Fprintf(&out, "\n%s, %s in the store\n", plural(n, "snapshot"), bytesText(tl.Size))
	}
	return out.String()
}

// present describes the present state of the sandbox.
func (p pen) present(sb carrel.Sandbox) string {
	if sb.State == carrel.Running || sb.State == "" {
		return "you are here"
	}
	return "you are here, " + string(sb.State)
}

// columns returns the aligned part of each row with a snapshot.
func (p pen) columns(rows []row) []string {
	table, widths := make([][]string, len(rows)), [5]int{}
	for i, r := range rows {
		if r.at == nil {
			continue
		}
		table[i] = []string{ago(p.now, r.at.Created), holds(r.at.Snapshot), bytesText(r.at.Size), addedText(r.at.New), string(r.at.Cause)}
		for j, cell := range table[i] {
			if p.ascii {
				table[i][j] = strings.ReplaceAll(cell, "–", p.glyphs.dash)
			}
			widths[j] = max(widths[j], cells(table[i][j]))
		}
	}
	out := make([]string, len(rows))
	for i, line := range table {
		for j, cell := range line {
			if j == 0 || j == 2 || j == 3 { // numbers end in one column
				cell = strings.Repeat(" ", widths[j]-cells(cell)) + cell
			} else {
				cell = pad(cell, widths[j])
			}
			if j > 0 {
				out[i] += "  "
			}
			out[i] += cell
		}
	}
	return out
}

// mostDetail is how much of a command line is shown, in cells.
const mostDetail = 60

// texts returns texts of users about a snapshot. Each is in quotes or brackets that it can't end,
// so that nobody takes it for a text of ours.
func (p pen) texts(tl carrel.Timeline, m *moment) string {
	var out strings.Builder
	if m.Label != "" {
		out.WriteString("  " + quoted(m.Label, p.ascii))
	}
	if len(m.Names) > 0 {
		out.WriteString("  [" + strings.ReplaceAll(strings.Join(m.Names, ", "), "]", "?") + "]")
	}
	target, noID := carrel.ParseSnapshotID(m.Detail)
	switch {
	case m.Detail == "":
	case m.Cause == carrel.CauseRollback && noID == nil:
		out.WriteString("  to " + short(target, p.short))
	case m.Cause == carrel.CauseCommand:
		out.WriteString("  before " + quoted(cut(m.Detail, mostDetail, p.glyphs.more), p.ascii))
	default:
		out.WriteString("  " + quoted(cut(m.Detail, mostDetail, p.glyphs.more), p.ascii))
	}
	if m.Sandbox != tl.Sandbox && m.Sandbox != "" {
		out.WriteString("  of " + string(m.Sandbox))
	}
	return out.String()
}

// write writes one line, no wider than the terminal. The terminal gets only visible characters,
// whatever the line contains.
func (p pen) write(out *strings.Builder, pieces []piece) {
	whole := ""
	for i, s := range pieces {
		pieces[i].text = p.visible(s.text)
		whole += pieces[i].text
	}
	whole = strings.TrimRight(whole, " ")
	left := len(whole)
	more := ""
	if cells(whole) > p.width {
		more = p.glyphs.more
		left = len(strings.TrimSuffix(cut(whole, p.width, more), more))
	}
	for _, s := range pieces {
		text := s.text[:min(left, len(s.text))]
		left -= len(text)
		if p.color && s.style != plain && text != "" {
			text = s.style + text + reset
		}
		out.WriteString(text)
	}
	out.WriteString(more + "\n")
}

func (p pen) visible(s string) string {
	s = printable(s)
	if !p.ascii {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, s)
}

// holds describes the contents of a snapshot.
func holds(s carrel.Snapshot) string {
	if s.Memory {
		return "memory"
	}
	return "files"
}

// addedText writes how much a snapshot added to the store.
func addedText(n int64) string {
	if n < 0 { // not packed yet
		return "+?"
	}
	return "+" + bytesText(n)
}

// plural counts things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

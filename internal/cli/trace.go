package cli

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// traceCommand is "carrel trace".
func (a *app) traceCommand() *cobra.Command {
	var ascii, all bool
	c := &cobra.Command{
		Use:   "trace ID",
		Short: "Show where the time of a sandbox's creation, pause or resumption went",
		Long: `Shows what each of a sandbox's latest operations spent its time on, as a waterfall: a line for
each part with when it began, how long it took and a bar. Only so many operations of all
sandboxes are kept. With OTEL_EXPORTER_OTLP_ENDPOINT in the daemon's environment they are also
sent to that collector.`,
		Args: cobra.ExactArgs(1),
	}
	c.RunE = a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
		traces, err := svc.Traces(ctx, id)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(traces)
		}
		if len(traces) == 0 {
			fmt.Fprintln(a.err, "carrel: nothing is kept of this sandbox any more")
			return nil
		}
		if !c.Flags().Changed("ascii") {
			ascii = plainTerminal(os.Getenv)
		}
		p := a.pen(ascii)
		if p.width == math.MaxInt {
			p.width = 100
		}
		for i, tr := range traces {
			if !all && i < len(traces)-mostTraces {
				continue
			}
			if _, err := fmt.Fprint(a.out, p.waterfall(tr)); err != nil {
				return err
			}
		}
		return nil
	})
	c.Flags().BoolVar(&ascii, "ascii", false, "draw with ASCII only (default: when the locale is not UTF-8)")
	c.Flags().BoolVar(&all, "all", false, "all operations that are kept (default: the latest 4)")
	return c
}

const (
	mostTraces = 4 // shown without --all
	leastBar   = 10
)

// waterfall draws one operation.
func (p pen) waterfall(t carrel.Trace) string {
	if len(t.Spans) == 0 {
		return ""
	}
	whole := t.Spans[0]
	first, last := whole.Start, whole.Start.Add(whole.Duration)
	for _, s := range t.Spans {
		if s.Start.Before(first) {
			first = s.Start
		}
		if end := s.Start.Add(s.Duration); end.After(last) {
			last = end
		}
	}
	rows := treeRows(t.Spans)
	names := 0
	for _, r := range rows {
		names = max(names, 2*r.depth+cells(printable(r.span.Name)))
	}
	const numbers = 22 // " 1234.5 ms  1234.5 ms  "
	room := max(p.width-names-numbers-2, leastBar)
	var out strings.Builder
	for _, r := range rows {
		name := strings.Repeat("  ", r.depth) + printable(r.span.Name)
		from, took := r.span.Start.Sub(first), r.span.Duration
		fmt.Fprintf(&out, "%s%s %8.1f ", name, strings.Repeat(" ", names-cells(name)), ms(from))
		if r.span.Open {
			fmt.Fprintf(&out, "%8s     ", "…")
		} else {
			fmt.Fprintf(&out, "%8.1f ms  ", ms(took))
		}
		out.WriteString(p.bar(from, took, last.Sub(first), room))
		if r.span.Error != "" {
			out.WriteString("  " + printable(r.span.Error))
		}
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return out.String()
}

// bar returns a line for a part: its place and length show when the part began and how long it
// took.
func (p pen) bar(from, took, whole time.Duration, room int) string {
	mark, scale := "█", float64(room)/float64(max(whole, 1))
	if p.ascii {
		mark = "#"
	}
	begin := min(int(float64(from)*scale), room-1)
	length := min(max(int(math.Round(float64(took)*scale)), 1), room-begin)
	return strings.Repeat(" ", begin) + strings.Repeat(mark, length)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// spanRow is one line of a waterfall.
type spanRow struct {
	span  carrel.Span
	depth int
}

// treeRows puts each part below its parent.
func treeRows(spans []carrel.Span) []spanRow {
	known := map[string]bool{}
	for _, s := range spans {
		known[s.ID] = true
	}
	below := map[string][]carrel.Span{}
	for i, s := range spans {
		parent := s.Parent
		if i == 0 || !known[parent] || parent == s.ID {
			parent = ""
		}
		below[parent] = append(below[parent], s)
	}
	var rows []spanRow
	var add func(parent string, depth int)
	add = func(parent string, depth int) {
		list := below[parent]
		delete(below, parent) // each once, even if a daemon sends a circle
		slices.SortStableFunc(list, func(a, b carrel.Span) int { return a.Start.Compare(b.Start) })
		for _, s := range list {
			rows = append(rows, spanRow{s, depth})
			add(s.ID, depth+1)
		}
	}
	add("", 0)
	return rows
}

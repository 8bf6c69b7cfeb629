package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
)

// topCommands are the commands that watch all sandboxes.
type topCommands struct{ *app }

// usageRow is the present use of one sandbox.
type usageRow struct {
	ID      carrel.ID      `json:"id"`
	Name    string         `json:"name,omitempty"`
	Tier    carrel.Tier    `json:"tier"`
	Started time.Time      `json:"started"`
	Metric  *carrel.Metric `json:"metric,omitempty"` // absent until the first sample
}

// topOrders are the orders of a table. Each puts the largest first.
var topOrders = map[string]func(x, y usageRow) int{
	"cpu":    func(x, y usageRow) int { return cmp.Compare(y.metric().CPUUsedPct, x.metric().CPUUsedPct) },
	"memory": func(x, y usageRow) int { return cmp.Compare(y.metric().MemUsed, x.metric().MemUsed) },
	"disk":   func(x, y usageRow) int { return cmp.Compare(y.metric().DiskUsed, x.metric().DiskUsed) },
	"network": func(x, y usageRow) int {
		return cmp.Compare(y.metric().NetSent+y.metric().NetReceived, x.metric().NetSent+x.metric().NetReceived)
	},
	"age": func(x, y usageRow) int { return x.Started.Compare(y.Started) },
}

// metric returns the sample, or a zero one.
func (r usageRow) metric() carrel.Metric {
	if r.Metric == nil {
		return carrel.Metric{}
	}
	return *r.Metric
}

// topCommand is "carrel top".
func (a topCommands) topCommand() *cobra.Command {
	var order string
	var every time.Duration
	var limit int
	c := &cobra.Command{
		Use:   "top [flags]",
		Short: "Show what running sandboxes use, on a terminal again and again",
		Long: `Shows what running sandboxes use of processors, memory, disk and network. On a terminal the table is
written anew every two seconds until Ctrl-C. Elsewhere, and with --json, it is written once.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if topOrders[order] == nil {
				return usage(fmt.Errorf("--sort %s: want cpu, memory, disk, network or age", order))
			}
			if every < 100*time.Millisecond {
				return usage(fmt.Errorf("--every %s: want 100ms or more", every))
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				if a.json || !isTerminal(a.out) {
					return a.showUsage(c.Context(), svc, order, limit)
				}
				return a.watchUsage(c.Context(), svc, order, limit, every)
			})
		},
	}
	c.Flags().StringVar(&order, "sort", "cpu", "cpu, memory, disk, network or age: the most first")
	c.Flags().DurationVar(&every, "every", 2*time.Second, "how often, on a terminal")
	c.Flags().IntVarP(&limit, "limit", "n", 0, "at most this many (0: all)")
	return c
}

// watchUsage writes the table again and again, in the same place.
func (a topCommands) watchUsage(ctx context.Context, svc carrel.Service, order string, limit int, every time.Duration) error {
	screen := a.out
	defer func() { a.out = screen }()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var table bytes.Buffer
		a.out = &table
		if err := a.showUsage(ctx, svc, order, limit); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		// Go to the corner, clear the rest of each line, then the rest of the screen.
		text := bytes.ReplaceAll(table.Bytes(), []byte("\n"), []byte("\x1b[K\r\n"))
		if _, err := fmt.Fprintf(screen, "\x1b[H%s\x1b[J", text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// showUsage writes the table once.
func (a topCommands) showUsage(ctx context.Context, svc carrel.Service, order string, limit int) error {
	rows, err := usageOf(ctx, svc, a.now().Add(-usageAge))
	if err != nil {
		return err
	}
	slices.SortStableFunc(rows, topOrders[order])
	if limit > 0 && len(rows) > limit {
		rows = rows[:limit]
	}
	if a.json {
		return a.printJSON(rows)
	}
	cells := make([][]string, 0, len(rows))
	for _, r := range rows {
		cpu, memory, disk, network := "–", "–", "–", "–"
		if m := r.Metric; m != nil {
			cpu = fmt.Sprintf("%.1f %% of %g", m.CPUUsedPct, m.CPUCount)
			memory = bytesText(m.MemUsed) + " of " + bytesText(m.MemTotal)
			disk = bytesText(m.DiskUsed)
			network = bytesText(m.NetSent) + " out, " + bytesText(m.NetReceived) + " in"
		}
		cells = append(cells, []string{string(r.ID), first(r.Name, "–"), string(r.Tier), cpu, memory, disk, network, span(a.now().Sub(r.Started))})
	}
	return a.table([]string{"ID", "NAME", "TIER", "CPU", "MEMORY", "DISK", "NETWORK", "AGE"}, cells)
}

// usageAge is the greatest age of a sample that counts as the present use.
const usageAge = 2 * time.Minute

// usageOf asks for the newest sample of all running sandboxes. It leaves out a sandbox that ends
// during that.
func usageOf(ctx context.Context, svc carrel.Service, since time.Time) ([]usageRow, error) {
	all, err := listAll(ctx, svc, carrel.ListOptions{States: []carrel.State{carrel.Running}}, 0)
	if err != nil {
		return nil, err
	}
	rows := make([]usageRow, len(all))
	var group errgroup.Group
	group.SetLimit(8)
	for i, sb := range all {
		group.Go(func() error {
			samples, err := svc.Metrics(ctx, sb.ID, since, time.Time{})
			if err != nil {
				return goneIsDone(err)
			}
			rows[i] = usageRow{ID: sb.ID, Name: sb.Name, Tier: sb.Tier, Started: sb.Started}
			if len(samples) > 0 {
				rows[i].Metric = &samples[len(samples)-1]
			}
			return nil
		})
	}
	err = group.Wait()
	return slices.DeleteFunc(rows, func(r usageRow) bool { return r.ID == "" }), err
}

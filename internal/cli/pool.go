package cli

import (
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// poolCommand is "carrel pool".
func (a *app) poolCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pool", Short: "Show the sandboxes that are kept ready", Args: cobra.NoArgs,
		Long: `Shows what the daemon keeps ready, so that a creation need not wait: how many of each
kind there are, how many there should be, and how often one was there when it was wanted
(hits) or was not (misses). See carrel serve --warm and --warm-floor.`,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				st, err := svc.Pool(c.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(st)
				}
				return a.printPool(st)
			})
		},
	}
}

// printGate reports other starts, if there are any or some were refused.
func (a *app) printGate(g carrel.Gate) {
	if g.Starting+g.Waiting > 0 || g.Refused > 0 {
		fmt.Fprintf(a.err, "carrel: %d start of %d that the machine sustains at once, %d wait for their turn; %d were refused\n", g.Starting, g.Limit, g.Waiting, g.Refused)
	}
}

// printPool prints the kinds on stdout, and the rest for a person on stderr.
func (a *app) printPool(st carrel.PoolStatus) error {
	defer a.printGate(st.Gate)
	if b := st.Blanks; b != nil {
		defer fmt.Fprintf(a.err, "carrel: %d of %d kernels wait for a sandbox; %d were given one, %d sandboxes found none, %d ended without\n", b.Ready, b.Keep, b.Taken, b.Missed, b.Failed)
	}
	if st.Cap == 0 {
		fmt.Fprintln(a.err, "carrel: nothing is kept ready; switch it on with: carrel serve --warm 8")
		return nil
	}
	rows := make([][]string, 0, len(st.Kinds))
	for _, k := range st.Kinds {
		start := "boot"
		if k.Golden {
			start = "golden"
		}
		rows = append(rows, []string{k.Template, string(k.Tier), fmt.Sprintf("%g", k.Limits.CPUs), fmt.Sprintf("%d MiB", k.Limits.MemoryMB), start,
			fmt.Sprint(k.Ready), fmt.Sprint(k.Making), fmt.Sprint(k.Target), fmt.Sprint(k.Floor), fmt.Sprint(k.Hits), fmt.Sprint(k.Misses)})
	}
	if err := a.table([]string{"TEMPLATE", "TIER", "CPUS", "MEMORY", "START", "READY", "MAKING", "TARGET", "FLOOR", "HITS", "MISSES"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "carrel: %d of at most %d ready; %d hits, %d misses, %d given up\n", st.Ready, st.Cap, st.Hits, st.Misses, st.Lost)
	switch st.Memory {
	case "hold":
		fmt.Fprintln(a.err, "carrel: this machine's memory is short: no more are made")
	case "shrink":
		fmt.Fprintln(a.err, "carrel: this machine's memory is very short: those that are ready are given up")
	}
	if st.Problem != "" {
		fmt.Fprintf(a.err, "carrel: the last one could not be made: %s\n", printable(st.Problem))
	}
	return nil
}

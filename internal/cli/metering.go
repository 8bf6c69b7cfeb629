package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// usageCommand is "carrel usage".
func (a *app) usageCommand() *cobra.Command {
	var (
		opts              carrel.UsageOptions
		sandbox, from, to string
		csv               bool
	)
	c := &cobra.Command{
		Use: "usage", Short: "Show what sandboxes used, and what it costs", Args: cobra.NoArgs,
		Long: `Shows how long sandboxes were alive, how much processor, memory, disk and network they
really used, and what their snapshots took, summed by the columns that you name: project,
key, template, tier, kind, sandbox, day, and label:NAME for the metadata NAME. Without
--from it is about the last 30 days. With a price list (carrel serve --price-file) each
line says what it costs.`,
		Example: "  carrel usage --by project,template\n  carrel usage --by label:task --from 1d\n  carrel usage --by day --csv > usage.csv",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if csv && a.json {
				return usage(errors.New("give --csv or --json"))
			}
			if sandbox != "" {
				if opts.Sandbox, err = carrel.ParseID(sandbox); err != nil {
					return err
				}
			}
			if opts.From, err = a.moment("from", from); err != nil {
				return err
			}
			if opts.To, err = a.moment("to", to); err != nil {
				return err
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				r, err := svc.Usage(c.Context(), opts)
				switch {
				case err != nil:
					return err
				case a.json:
					return a.printJSON(r)
				case csv:
					return carrel.WriteUsageCSV(a.out, r)
				}
				return a.printUsage(r)
			})
		},
	}
	f := c.Flags()
	f.StringSliceVar(&opts.By, "by", nil, "the columns to sum by: project, key, template, tier, kind, sandbox, day, label:NAME")
	f.StringVar(&from, "from", "", "only from this time on: 12h, 7d, 2026-03-01, 2026-03-01T12:00:00Z")
	f.StringVar(&to, "to", "", "only before this time")
	f.StringVar(&opts.Project, "project", "", "only this project")
	f.StringVar(&sandbox, "sandbox", "", "only this sandbox")
	f.BoolVar(&csv, "csv", false, "print a table for spreadsheets")
	return c
}

// printUsage prints a report for people.
func (a *app) printUsage(r carrel.UsageReport) error {
	head := []string{}
	for _, by := range r.By {
		head = append(head, strings.ToUpper(by))
	}
	head = append(head, "ALIVE", "VCPU·H", "GIB·H", "CPU·H", "USED GIB·H", "OUT", "SNAPSHOTS GIB·H")
	if r.Currency != "" {
		head = append(head, strings.ToUpper(r.Currency))
	}
	line := func(group []string, t carrel.UsageTotals) []string {
		gib := func(m carrel.Milli) string { return hours(float64(m) / 1000 / 1024) }
		row := append([]string{}, group...)
		row = append(row, hours(float64(t.AliveSeconds)/1000), hours(float64(t.VCPUSeconds)/1e6), gib(t.MemoryMiBSeconds),
			hours(float64(t.CPUSeconds)/1e6), gib(t.MemoryUsedMiBSeconds), bytesText(t.BytesOut), gib(t.SnapshotMiBSeconds))
		if r.Currency != "" && t.Cost != nil {
			row = append(row, t.Cost.String())
		}
		return row
	}
	var rows [][]string
	for _, row := range r.Rows {
		rows = append(rows, line(row.Group, row.UsageTotals))
	}
	if len(r.By) > 0 {
		group := make([]string, len(r.By))
		group[0] = "total"
		rows = append(rows, line(group, r.Total))
	}
	for _, b := range r.Behind {
		fmt.Fprintf(a.err, "node %s does not answer: its usage is in the sums until %s, by project, key, template, tier, kind and day\n",
			b.Node, b.Until.Format(time.RFC3339))
	}
	return a.table(head, rows)
}

// hours writes seconds as hours. Anything above zero is seen to be more than nothing.
func hours(seconds float64) string {
	if h := seconds / 3600; h >= 0.01 || h == 0 {
		return fmt.Sprintf("%.2f", h)
	}
	return fmt.Sprintf("%.2g", seconds/3600)
}

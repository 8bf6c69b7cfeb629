package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// logsCommand is "carrel logs".
func (a *app) logsCommand() *cobra.Command {
	var follow bool
	var limit, tail int
	c := &cobra.Command{
		Use:   "logs ID [PID|TAG]",
		Short: "Show what happened to a sandbox, or what a process in it wrote",
		Long: `Without a process: what happened to the sandbox. With one: the last of its output,
as far as the sandbox keeps it, 1 MiB of each process. The output of what carrel exec -d
started can also be read when it has ended; carrel ps -a lists the processes.`,
		Args: cobra.RangeArgs(1, 2),
	}
	sandboxLogs := a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
		opts := carrel.LogOptions{Limit: limit}
		for {
			entries, err := svc.Logs(ctx, id, opts)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := a.printLog(e); err != nil {
					return err
				}
				opts.Since = e.Time.Add(1)
			}
			if !follow {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case tail < 0:
			return usage(errors.New("--tail: give a number of lines"))
		case len(args) == 1 && tail > 0:
			return usage(errors.New("--tail is for a process's output: name the process, or give -n"))
		case len(args) == 1:
			return sandboxLogs(c, args)
		case limit != 0:
			return usage(errors.New("-n is for what happened to a sandbox: for a process's output give --tail"))
		}
		return a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
			_, err := processCommands{a}.printOutput(ctx, svc, id, args[1], follow, tail)
			return err
		})(c, args)
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more")
	c.Flags().IntVarP(&limit, "limit", "n", 0, "at most this many lines at once")
	c.Flags().IntVar(&tail, "tail", 0, "begin with the last lines of a process's output")
	return c
}

func (a *app) printLog(e carrel.LogEntry) error {
	if a.json {
		return a.printJSON(e)
	}
	line := fmt.Sprintf("%s %-5s %s", e.Time.Format(time.RFC3339), e.Level, printable(e.Message))
	if len(e.Fields) > 0 {
		line += "  " + printable(labels(e.Fields))
	}
	_, err := fmt.Fprintln(a.out, line)
	return err
}

// metricsCommand is "carrel metrics".
func (a *app) metricsCommand() *cobra.Command {
	var since time.Duration
	c := &cobra.Command{
		Use:   "metrics ID",
		Short: "Show what a sandbox uses",
		Args:  cobra.ExactArgs(1),
	}
	c.RunE = a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
		var from time.Time
		if since > 0 {
			from = time.Now().Add(-since)
		}
		samples, err := svc.Metrics(ctx, id, from, time.Time{})
		if err != nil {
			return err
		}
		if since == 0 && len(samples) > 1 {
			samples = samples[len(samples)-1:]
		}
		if a.json {
			return a.printJSON(samples)
		}
		rows := make([][]string, 0, len(samples))
		for _, m := range samples {
			rows = append(rows, []string{m.Time.Format(time.RFC3339), fmt.Sprintf("%.1f %% of %g", m.CPUUsedPct, m.CPUCount),
				bytesText(m.MemUsed) + " of " + bytesText(m.MemTotal), bytesText(m.DiskUsed) + " of " + bytesText(m.DiskTotal)})
		}
		return a.table([]string{"TIME", "CPU", "MEMORY", "DISK"}, rows)
	})
	c.Flags().DurationVar(&since, "since", 0, "all samples of this last while (default: the newest)")
	return c
}

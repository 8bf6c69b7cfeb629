package cli

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// createCommand is "carrel create".
func (a *app) createCommand() *cobra.Command {
	var (
		opts       carrel.CreateOptions
		tier       string
		envs, meta []string
		tokens     []string
		net        networkFlags
		from       string
		life       lifecycleFlags
	)
	c := &cobra.Command{
		Use:   "create [flags]",
		Short: "Make a sandbox and print its ID",
		Long: `Makes a sandbox and prints its ID. Nothing kills it: when nothing happened in it for
30 minutes (no command, no connection, no busy processor), it is paused, and the next
request wakes it. --pause-idle changes that time, or with 0 lets it run on. With
--timeout or --on-timeout it has a timeout instead, as E2B's SDKs give it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if opts.Template != "" && from != "" {
				return usage(fmt.Errorf("give --template or --from"))
			}
			if opts.Env, err = keyValues("--env", envs); err != nil {
				return err
			}
			if opts.Metadata, err = keyValues("--metadata", meta); err != nil {
				return err
			}
			// Without network flags the daemon's default policy holds.
			if opts.Network, _, err = net.network(); err != nil {
				return err
			}
			if opts.Tokens, err = tokenSpecs(tokens); err != nil {
				return err
			}
			opts.Tier = carrel.Tier(tier)
			life.apply(c.Flags(), &opts.Lifecycle)
			pauseWhenIdle(c.Flags(), &opts)
			return a.withService(c.Context(), func(svc carrel.Service) error {
				if from != "" {
					id, err := resolveSnapshot(c.Context(), svc, from, allSnapshots)
					if err != nil {
						return err
					}
					opts.Template = string(id)
				}
				sb, err := svc.Create(c.Context(), opts)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(sb)
				}
				fmt.Fprintln(a.out, sb.ID)
				return nil
			})
		},
	}
	f := c.Flags()
	f.StringVar(&opts.Name, "name", "", "what else it is called by in its project: lower-case letters, digits and hyphens")
	f.StringVarP(&opts.Template, "template", "t", "", "template or snapshot: name, name:tag or ID (default base)")
	f.StringVar(&from, "from", "", "begin from this snapshot: its ID or name")
	f.StringVar(&tier, "tier", "", "sim, gvisor, … (default: the daemon's)")
	f.DurationVar(&opts.Timeout, "timeout", 0, "life until it is killed or paused (default: none)")
	f.Var((*cores)(&opts.Limits.CPUs), "cpus", "processor cores, such as 2 or 0.5 (default: the daemon's)")
	f.Var((*mebibytes)(&opts.Limits.MemoryMB), "memory", "memory, such as 512M or 4GiB; a number alone is MiB (default: the daemon's)")
	f.Var((*mebibytes)(&opts.Limits.DiskMB), "disk", "disk to write on, in the same way (default: the daemon's)")
	f.IntVar(&opts.Limits.Pids, "pids", 0, "processes and threads")
	f.StringArrayVarP(&envs, "env", "e", nil, "KEY=VALUE for every command (repeat)")
	f.StringArrayVarP(&meta, "metadata", "m", nil, "KEY=VALUE label (repeat)")
	f.StringArrayVar(&tokens, "token", nil, "NAME=AUDIENCE of an identity token that it may have (repeat)")
	net.add(c)
	life.add(f)
	return c
}

// listCommand is "carrel ls".
func (a *app) listCommand() *cobra.Command {
	var meta []string
	var limit int
	var builds bool
	c := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List sandboxes, newest first",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			filter, err := keyValues("--metadata", meta)
			if err != nil {
				return err
			}
			if limit < 0 {
				return usage(fmt.Errorf("--limit %d is negative", limit))
			}
			return a.withService(c.Context(), func(svc carrel.Service) error {
				all, err := listAll(c.Context(), svc, carrel.ListOptions{Metadata: filter, Builds: builds},
					limit)
				if err != nil {
					return err
				}
				return a.printSandboxes(all)
			})
		},
	}
	c.Flags().StringArrayVarP(&meta, "metadata", "m", nil, "only those with KEY=VALUE (repeat)")
	c.Flags().IntVarP(&limit, "limit", "n", 0, "at most this many (0: all)")
	c.Flags().BoolVar(&builds, "builds", false, "also those in which the steps of builds run")
	return c
}

// listAll reads all pages of a list.
func listAll(ctx context.Context, svc carrel.Service, opts carrel.ListOptions, limit int) ([]carrel.Sandbox, error) {
	all := []carrel.Sandbox{}
	for {
		page, err := svc.List(ctx, opts)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Sandboxes...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if page.Next == "" {
			return all, nil
		}
		opts.Cursor = page.Next
	}
}

func (a *app) printSandboxes(all []carrel.Sandbox) error {
	if a.json {
		for i := range all {
			all[i].AccessToken, all[i].TrafficToken = "", "" // a list does not need them; info shows them
		}
		return a.printJSON(all)
	}
	rows := make([][]string, 0, len(all))
	for _, s := range all {
		ends, from := endText(s, a.now()), ""
		if s.State == carrel.Paused {
			from = short(s.Snapshot, shortLen)
		}
		rows = append(rows, []string{string(s.ID), first(s.Name, "–"), string(s.State), first(s.Alias, s.Template), string(s.Tier),
			span(a.now().Sub(s.Started)), ends, first(from, "–"), labels(s.Metadata)})
	}
	return a.table([]string{"ID", "NAME", "STATE", "TEMPLATE", "TIER", "AGE", "ENDS IN", "RESUMES FROM", "METADATA"}, rows)
}

// endText says when a sandbox ends or is paused by itself.
func endText(s carrel.Sandbox, now time.Time) string {
	left, idle := span(s.Ends.Sub(now)), s.Lifecycle.Idle.After
	switch {
	case s.State == carrel.Paused:
		return "–" // its time does not run
	case s.Lifecycle.OnTimeout == carrel.ActionPause && idle > 0:
		return fmt.Sprintf("never, pauses after %v idle", idle)
	case s.Lifecycle.OnTimeout == carrel.ActionPause:
		return "never, pauses in " + left
	case idle > 0:
		return fmt.Sprintf("%s, pauses after %v idle", left, idle)
	}
	return left
}

// labels writes metadata as k=v pairs in order.
func labels(m map[string]string) string {
	pairs := make([]string, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, k+"="+v)
	}
	sort.Strings(pairs)
	return strings.Join(pairs, ",")
}

// infoCommand is "carrel info".
func (a *app) infoCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "info ID",
		Aliases: []string{"get", "inspect"},
		Short:   "Show one sandbox",
		Args:    cobra.ExactArgs(1),
		RunE: a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
			s, err := svc.Get(ctx, id)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(s)
			}
			ends := []string{"ends", s.Ends.Format(time.RFC3339)}
			if s.State == carrel.Paused {
				ends[0] = "paused since"
			}
			return a.table([]string{"FIELD", "VALUE"}, append([][]string{
				{"id", string(s.ID)},
				{"name", first(s.Name, "–")},
				{"state", string(s.State)},
				{"template", first(s.Alias, s.Template)},
				{"tier", string(s.Tier)},
				{"started", s.Started.Format(time.RFC3339)},
				ends,
				{"snapshot", first(string(s.Snapshot), "–")},
				{"restored", strconv.Itoa(s.Generation) + " times"},
				{"cpus", strconv.FormatFloat(s.Limits.CPUs, 'g', -1, 64)},
				{"memory", bytesText(int64(s.Limits.MemoryMB) << 20)},
				{"disk", bytesText(int64(s.Limits.DiskMB) << 20)},
				{"pids", strconv.Itoa(s.Limits.Pids)},
				{"network", networkText(s.Network)},
				{"metadata", labels(s.Metadata)},
			}, lifecycleRows(s.Lifecycle)...))
		}),
	}
}

// onSandbox returns the function of a command whose only argument is a sandbox.
func (a *app) onSandbox(fn func(context.Context, carrel.Service, carrel.ID) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		id, err := carrel.ParseID(args[0])
		if err != nil {
			return err
		}
		return a.withService(c.Context(), func(svc carrel.Service) error { return fn(c.Context(), svc, id) })
	}
}

// killCommand is "carrel kill".
func (a *app) killCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:     "kill ID… | --all",
		Aliases: []string{"rm"},
		Short:   "End sandboxes; nothing of them is left but the snapshots that were asked for",
		Args: func(_ *cobra.Command, args []string) error {
			if all != (len(args) == 0) {
				return fmt.Errorf("name the sandboxes to kill, or give --all")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				ids, err := a.killList(c.Context(), svc, args, all)
				if err != nil {
					return err
				}
				return a.killEach(c.Context(), svc, ids)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "every sandbox")
	return c
}

func (a *app) killList(ctx context.Context, svc carrel.Service, args []string, all bool) ([]carrel.ID, error) {
	ids := make([]carrel.ID, 0, len(args))
	for _, arg := range args {
		id, err := carrel.ParseID(arg)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	if !all {
		return ids, nil
	}
	sandboxes, err := listAll(ctx, svc, carrel.ListOptions{}, 0)
	for _, s := range sandboxes {
		ids = append(ids, s.ID)
	}
	return ids, err
}

// killEach kills all of ids and returns the first error.
func (a *app) killEach(ctx context.Context, svc carrel.Service, ids []carrel.ID) error {
	var firstErr error
	killed := []carrel.ID{}
	for _, id := range ids {
		if err := svc.Kill(ctx, id); err != nil {
			if firstErr == nil {
				firstErr = err
			} else {
				a.report(err)
			}
			continue
		}
		killed = append(killed, id)
		if !a.json {
			fmt.Fprintln(a.out, id)
		}
	}
	if a.json {
		if err := a.printJSON(map[string]any{"killed": killed}); err != nil {
			return err
		}
	}
	return firstErr
}

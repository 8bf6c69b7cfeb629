package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

// allowanceCommands are the commands about quotas, ceilings and budgets.
type allowanceCommands struct{ *app }

// on runs fn with the daemon's quotas, ceilings and budgets.
func (a allowanceCommands) on(ctx context.Context, fn func(carrel.Allowances) error) error {
	return a.withService(ctx, func(svc carrel.Service) error {
		c, ok := svc.(*client.Client)
		if !ok {
			return &carrel.Error{Op: "manage quotas", Kind: carrel.Unsupported, Err: errors.New("only a daemon has quotas")}
		}
		return fn(c.Allowances())
	})
}

// ofFlags are the flags that say whose quota or ceiling it is.
func ofFlags(c *cobra.Command, of *carrel.Holder) {
	c.Flags().StringVar(&of.Project, "of", "", "the project (default: the key's own); only the daemon's own key sets a project's")
	c.Flags().StringVar(&of.Key, "key", "", "a key of the project, by its name or ID, instead of the whole project")
}

// holderWords says whose something is.
func holderWords(h carrel.Holder, key string) string {
	if h.Key == "" {
		return h.Project
	}
	return h.Project + "/" + cmp.Or(key, h.Key)
}

// quotaCommand is "carrel quota …".
func (a allowanceCommands) quotaCommand() *cobra.Command {
	c := noun("quota", "How much a project and its keys may use, and what they use", a.quotaList(), a.quotaSet(), a.quotaRemove())
	c.Long = "Without a verb, shows the quotas that bind the key itself."
	c.RunE = func(c *cobra.Command, _ []string) error { return a.showQuotas(c.Context(), true) }
	return c
}

func (a allowanceCommands) quotaList() *cobra.Command {
	return &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "Show all quotas that the key sees", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.showQuotas(c.Context(), false) }}
}

// showQuotas prints quotas. With own it prints what is used of limits that are not set, too.
func (a allowanceCommands) showQuotas(ctx context.Context, own bool) error {
	return a.on(ctx, func(all carrel.Allowances) error {
		reports, err := all.Quotas(ctx, own)
		if err != nil {
			return err
		}
		return a.printQuotas(reports, own)
	})
}

func (a allowanceCommands) printQuotas(reports []carrel.QuotaReport, unset bool) error {
	if a.json {
		return a.printJSON(reports)
	}
	text := func(n *carrel.Milli) string {
		if n == nil {
			return "-"
		}
		return n.String()
	}
	var rows [][]string
	for _, r := range reports {
		for _, l := range r.Limits {
			if unset || l.Hard != nil || l.Soft != nil {
				rows = append(rows, []string{holderWords(r.Holder, r.KeyName), string(l.Name), l.Used.String(), text(l.Soft), text(l.Hard)})
			}
		}
	}
	return a.table([]string{"OF", "LIMIT", "USED", "SOFT", "HARD"}, rows)
}

func (a allowanceCommands) quotaSet() *cobra.Command {
	var of carrel.Holder
	var soft []string
	c := &cobra.Command{Use: "set LIMIT=N…", Short: "Change limits; LIMIT=none removes one",
		Long: `Changes limits of a project or of one of its keys. Limits that are not named stay.

The limits are sandboxes, createsPerMinute, vcpus, memoryMB, diskMB, snapshotsMB, builds,
egressMB (in a day, UTC) and forksPerCall. MB are MiB. Limits are hard: what would pass one is
refused. Those of --soft only warn.`,
		Example: "  carrel quota set --of web sandboxes=20 memoryMB=32768 --soft sandboxes=15",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && len(soft) == 0 {
				return usage(errors.New("no limit is given"))
			}
			return a.on(c.Context(), func(all carrel.Allowances) error { return a.setQuota(c.Context(), all, of, args, soft) })
		}}
	ofFlags(c, &of)
	c.Flags().StringArrayVar(&soft, "soft", nil, "LIMIT=N that only warns")
	return c
}

// setQuota changes some limits of a quota.
func (a allowanceCommands) setQuota(ctx context.Context, all carrel.Allowances, of carrel.Holder, hard, soft []string) error {
	had, err := all.Quotas(ctx, false)
	if err != nil {
		return err
	}
	own, err := all.Quotas(ctx, true)
	if err != nil {
		return err
	}
	of.Project = cmp.Or(of.Project, own[0].Project)
	q := carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{}, Soft: map[carrel.LimitName]carrel.Milli{}}
	for _, r := range had {
		if r.Project != of.Project || (r.Key != of.Key && r.KeyName != of.Key) {
			continue
		}
		for _, l := range r.Limits {
			if l.Hard != nil {
				q.Hard[l.Name] = *l.Hard
			}
			if l.Soft != nil {
				q.Soft[l.Name] = *l.Soft
			}
		}
	}
	if err := addLimits(&q, hard, soft); err != nil {
		return err
	}
	set, err := all.SetQuota(ctx, of, q)
	if err != nil {
		return err
	}
	return a.printQuotas([]carrel.QuotaReport{set}, false)
}

// addLimits reads texts LIMIT=N into a quota whose maps are made. LIMIT=none removes one.
func addLimits(q *carrel.Quota, hard, soft []string) error {
	for _, part := range []struct {
		texts []string
		into  map[carrel.LimitName]carrel.Milli
	}{{hard, q.Hard}, {soft, q.Soft}} {
		for _, text := range part.texts {
			name, value, ok := strings.Cut(text, "=")
			if !ok {
				return usage(fmt.Errorf("%q is not LIMIT=N", text))
			}
			if value == "none" {
				delete(part.into, carrel.LimitName(name))
				continue
			}
			n, err := carrel.ParseMilli(value)
			if err != nil {
				return usage(fmt.Errorf("%s: %w", name, err))
			}
			part.into[carrel.LimitName(name)] = n
		}
	}
	return nil
}

func (a allowanceCommands) quotaRemove() *cobra.Command {
	var of carrel.Holder
	c := &cobra.Command{Use: "rm", Short: "Remove the quota of a project or of one of its keys", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.on(c.Context(), func(all carrel.Allowances) error {
				_, err := all.SetQuota(c.Context(), of, carrel.Quota{})
				return err
			})
		}}
	ofFlags(c, &of)
	return c
}

// ceilingCommand is "carrel ceiling …".
func (a allowanceCommands) ceilingCommand() *cobra.Command {
	c := noun("ceiling", "What the sandboxes of a project or a key may ever be allowed", a.ceilingSet(), a.ceilingRemove())
	c.Long = "Without a verb, shows the ceilings that the key sees."
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.on(c.Context(), func(all carrel.Allowances) error {
			list, err := all.Ceilings(c.Context())
			if err != nil {
				return err
			}
			return a.printCeilings(list)
		})
	}
	return c
}

func (a allowanceCommands) printCeilings(all []carrel.CeilingOf) error {
	if a.json {
		return a.printJSON(all)
	}
	var rows [][]string
	add := func(c carrel.CeilingOf, name, text string, set bool) {
		if set {
			rows = append(rows, []string{holderWords(c.Holder, c.KeyName), name, cmp.Or(text, "nothing")})
		}
	}
	for _, c := range all {
		tiers := make([]string, len(c.Tiers))
		for i, t := range c.Tiers {
			tiers[i] = string(t)
		}
		add(c, "egress", strings.Join(c.Egress, " "), c.Egress != nil)
		add(c, "tiers", strings.Join(tiers, " "), c.Tiers != nil)
		add(c, "templates", strings.Join(c.Templates, " "), c.Templates != nil)
		add(c, "cpus", fmt.Sprintf("%g", c.Limits.CPUs), c.Limits.CPUs > 0)
		add(c, "memory", fmt.Sprintf("%d MiB", c.Limits.MemoryMB), c.Limits.MemoryMB > 0)
		add(c, "disk", fmt.Sprintf("%d MiB", c.Limits.DiskMB), c.Limits.DiskMB > 0)
		add(c, "processes", fmt.Sprint(c.Limits.Pids), c.Limits.Pids > 0)
		add(c, "timeout", c.Timeout.String(), c.Timeout > 0)
		add(c, "secrets", strings.Join(c.Secrets, " "), c.Secrets != nil)
	}
	return a.table([]string{"OF", "CEILING", "AT MOST"}, rows)
}

// ceilingFlags are the flags that say the bounds of a ceiling.
type ceilingFlags struct {
	ceiling carrel.Ceiling
	tiers   []string
}

// add adds the flags to a command.
func (g *ceilingFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&g.ceiling.Egress, "egress", nil, "destinations that a network may open: names, *.names, addresses, blocks")
	f.StringSliceVar(&g.tiers, "tier", nil, "tiers that sandboxes may be in")
	f.StringSliceVar(&g.ceiling.Templates, "template", nil, "templates, by name or ID, of which sandboxes may be made")
	f.StringSliceVar(&g.ceiling.Secrets, "secret", nil, "secrets that may be put into requests")
	f.Float64Var(&g.ceiling.Limits.CPUs, "cpus", 0, "CPUs of one sandbox")
	f.IntVar(&g.ceiling.Limits.MemoryMB, "memory", 0, "MiB of memory of one sandbox")
	f.IntVar(&g.ceiling.Limits.DiskMB, "disk", 0, "MiB of disk of one sandbox")
	f.IntVar(&g.ceiling.Limits.Pids, "pids", 0, "processes of one sandbox")
	f.DurationVar(&g.ceiling.Timeout, "timeout", 0, "how long a sandbox may run without being asked for again")
}

// of returns the ceiling that the flags say. A list that is named and empty allows nothing.
func (g *ceilingFlags) of(c *cobra.Command) carrel.Ceiling {
	ceiling := g.ceiling
	list := func(flag string, all []string) []string {
		if !c.Flags().Changed(flag) {
			return nil
		}
		out := []string{}
		for _, s := range all {
			if s != "" {
				out = append(out, s)
			}
		}
		return out
	}
	ceiling.Egress, ceiling.Secrets = list("egress", ceiling.Egress), list("secret", ceiling.Secrets)
	ceiling.Templates = list("template", ceiling.Templates)
	if names := list("tier", g.tiers); names != nil {
		ceiling.Tiers = []carrel.Tier{}
		for _, t := range names {
			ceiling.Tiers = append(ceiling.Tiers, carrel.Tier(t))
		}
	}
	return ceiling
}

func (a allowanceCommands) ceilingSet() *cobra.Command {
	var of carrel.Holder
	var given ceilingFlags
	c := &cobra.Command{Use: "set", Short: "Replace the ceiling of a project or of one of its keys", Args: cobra.NoArgs,
		Long: `Replaces the ceiling. What no flag names has no bound. An empty list, as in --egress "",
allows nothing.`,
		Example: "  carrel ceiling set --of web --egress '*.example.com' --tier gvisor --cpus 4 --timeout 1h",
		RunE: func(c *cobra.Command, _ []string) error {
			ceiling := given.of(c)
			if ceiling.IsZero() {
				return usage(errors.New("no bound is given; carrel ceiling rm removes the ceiling"))
			}
			return a.on(c.Context(), func(all carrel.Allowances) error {
				set, err := all.SetCeiling(c.Context(), of, ceiling)
				if err != nil {
					return err
				}
				return a.printCeilings([]carrel.CeilingOf{set})
			})
		}}
	ofFlags(c, &of)
	given.add(c)
	return c
}

func (a allowanceCommands) ceilingRemove() *cobra.Command {
	var of carrel.Holder
	c := &cobra.Command{Use: "rm", Short: "Remove the ceiling of a project or of one of its keys", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.on(c.Context(), func(all carrel.Allowances) error {
				_, err := all.SetCeiling(c.Context(), of, carrel.Ceiling{})
				return err
			})
		}}
	ofFlags(c, &of)
	return c
}

// budgetCommand is "carrel budget …".
func (a allowanceCommands) budgetCommand() *cobra.Command {
	return noun("budget", "What projects and labels may cost before their sandboxes are paused", a.budgetList(), a.budgetSet(), a.budgetRemove())
}

func (a allowanceCommands) budgetList() *cobra.Command {
	return &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "Show the budgets that the key sees, and what is spent", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.on(c.Context(), func(all carrel.Allowances) error {
				list, err := all.Budgets(c.Context())
				if err != nil {
					return err
				}
				return a.printBudgets(list)
			})
		}}
}

func (a allowanceCommands) printBudgets(all []carrel.BudgetStatus) error {
	if a.json {
		return a.printJSON(all)
	}
	var rows [][]string
	for _, b := range all {
		is := "ok"
		if b.Over {
			is = "spent"
		} else if b.Warned {
			is = "nearly spent"
		}
		ends := "never"
		if !b.Ends.IsZero() {
			ends = b.Ends.UTC().Format(time.DateOnly)
		}
		rows = append(rows, []string{b.Project, b.Name, cmp.Or(b.Label, "-"), b.Budget.Words(b.Spent, b.Currency),
			b.Budget.Words(b.Amount, b.Currency), string(b.Period), ends, is})
	}
	return a.table([]string{"PROJECT", "NAME", "LABEL", "SPENT", "OF", "PERIOD", "ANEW", "STATE"}, rows)
}

func (a allowanceCommands) budgetSet() *cobra.Command {
	b := carrel.Budget{}
	var money, period string
	var span time.Duration
	c := &cobra.Command{Use: "set NAME", Short: "Make or replace a budget", Args: cobra.ExactArgs(1),
		Example: `  carrel budget set month --of web --money 100
  carrel budget set night-run --of web --label task=4711 --time 2h --period total`,
		RunE: func(c *cobra.Command, args []string) error {
			b.Name, b.Period = args[0], carrel.BudgetPeriod(period)
			var err error
			switch {
			case (money == "") == (span == 0):
				return usage(errors.New("give either --money or --time"))
			case money != "":
				b.Unit = carrel.BudgetMoney
				if b.Amount, err = carrel.ParseMicro(money); err != nil {
					return usage(fmt.Errorf("--money: %w", err))
				}
			default:
				b.Unit, b.Amount = carrel.BudgetSeconds, carrel.Micro(span.Microseconds())
			}
			return a.on(c.Context(), func(all carrel.Allowances) error {
				set, err := all.SetBudget(c.Context(), b)
				if err != nil {
					return err
				}
				return a.printBudgets([]carrel.BudgetStatus{set})
			})
		}}
	f := c.Flags()
	f.StringVar(&b.Project, "of", "", "the project (default: the key's own)")
	f.StringVar(&b.Label, "label", "", "NAME=VALUE: only sandboxes with this entry of metadata")
	f.StringVar(&money, "money", "", "the amount, in the price list's currency")
	f.DurationVar(&span, "time", 0, "the amount, in time for which sandboxes run")
	f.StringVar(&period, "period", string(carrel.BudgetMonth), "when it begins anew: day, month or total (never)")
	f.IntVar(&b.WarnPct, "warn", 0, "at how many per cent it warns (default 80)")
	return c
}

func (a allowanceCommands) budgetRemove() *cobra.Command {
	var project string
	c := &cobra.Command{Use: "rm NAME", Short: "Remove a budget", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.on(c.Context(), func(all carrel.Allowances) error { return all.DeleteBudget(c.Context(), project, args[0]) })
		}}
	c.Flags().StringVar(&project, "of", "", "the project (default: the key's own)")
	return c
}

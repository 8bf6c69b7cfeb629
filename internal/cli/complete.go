package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/settings"
)

// completions tell a shell the possible words at the cursor.
type completions struct{ *app }

// completeWait is how long a shell waits for the daemon's answer. completeMost is the most
// sandboxes it gets.
const (
	completeWait = 2 * time.Second
	completeMost = 1000
)

// offer answers a shell's question: it gets the arguments so far, and the beginning of the next.
type offer = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// describe adds completions to the commands of the tree.
func (a completions) describe(c *cobra.Command) {
	_, below, _ := strings.Cut(c.CommandPath(), " ")
	n, named := namings[below]
	switch below {
	case "template inspect", "template start", "template rm":
		c.ValidArgsFunction = a.templates
	case "attach", "logs":
		c.ValidArgsFunction = a.processes(n, below == "logs")
	default:
		if named && (n.first || n.all) && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = a.sandboxes(n)
		}
	}
	if named && n.flag != "" {
		_ = c.RegisterFlagCompletionFunc(n.flag, a.sandboxes(naming{all: true}))
	}
	for flag, of := range map[string]offer{"template": a.templates, "tier": tiers, "default-tier": tiers, "profile": profiles} {
		if c.LocalFlags().Lookup(flag) != nil {
			_ = c.RegisterFlagCompletionFunc(flag, of)
		}
	}
	for _, sub := range c.Commands() {
		a.describe(sub)
	}
}

// sandboxes offers the IDs and names of the caller's own sandboxes. If a command takes one sandbox,
// nothing is offered for its other arguments.
func (a completions) sandboxes(n naming) offer {
	return func(c *cobra.Command, args []string, begun string) (out []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 && !n.all {
			return nil, cobra.ShellCompDirectiveDefault
		}
		a.ask(c, func(ctx context.Context, svc carrel.Service) error {
			found, err := listAll(ctx, svc, carrel.ListOptions{}, completeMost)
			for _, s := range found {
				about := first(s.Alias, s.Template) + ", " + string(s.State)
				for _, text := range []string{s.Name, string(s.ID)} {
					if text != "" && strings.HasPrefix(text, begun) {
						out = append(out, text+"\t"+printable(about))
					}
				}
			}
			return err
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// processes offers sandboxes first, and then the processes of the one that was named: those that
// run and, with ended, those whose output is kept.
func (a completions) processes(n naming, ended bool) offer {
	return func(c *cobra.Command, args []string, begun string) (out []string, _ cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return a.sandboxes(n)(c, args, begun)
		case 1:
		default:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a.ask(c, func(ctx context.Context, svc carrel.Service) error {
			id, err := carrel.ParseID(args[0])
			if err != nil {
				id, err = resolveSandbox(ctx, svc, args[0])
			}
			if err != nil {
				return err
			}
			_, all, err := recordsOf(ctx, svc, id)
			for _, r := range all {
				if !r.Ended.IsZero() && !ended {
					continue
				}
				state := first(r.Status, "running")
				for _, text := range []string{r.Tag, strconv.Itoa(r.PID)} {
					if text != "" && strings.HasPrefix(text, begun) {
						out = append(out, printable(text)+"\t"+printable(state+": "+strings.Join(r.Args, " ")))
					}
				}
			}
			return err
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// profiles offers the profiles of carrel run that are built in.
func profiles(_ *cobra.Command, _ []string, begun string) (out []string, _ cobra.ShellCompDirective) {
	for _, p := range settings.Profiles() {
		if strings.HasPrefix(p.Name, begun) {
			out = append(out, p.Name+"\t"+p.Description)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// templates offers templates by name, or by ID if they have no name.
func (a completions) templates(c *cobra.Command, _ []string, begun string) (out []string, _ cobra.ShellCompDirective) {
	a.ask(c, func(ctx context.Context, svc carrel.Service) error {
		found, err := svc.ListTemplates(ctx)
		for _, t := range found {
			if name := first(t.FullName(), t.ID); strings.HasPrefix(name, begun) {
				out = append(out, printable(name))
			}
		}
		return err
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

// tiers offers the tiers, the weakest wall first.
func tiers(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{string(carrel.Sim), string(carrel.NS), string(carrel.GVisor), string(carrel.MicroVM)}, cobra.ShellCompDirectiveNoFileComp
}

// ask asks the daemon. If no daemon answers, nothing is offered, because a shell can't show an
// error here.
func (a completions) ask(c *cobra.Command, fn func(context.Context, carrel.Service) error) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	_ = a.withService(ctx, func(svc carrel.Service) error { return fn(ctx, svc) })
}

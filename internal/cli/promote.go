package cli

import (
	"context"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// promoteCommand is "carrel promote".
func (a *app) promoteCommand() *cobra.Command {
	var opts carrel.PromoteOptions
	var tier string
	c := &cobra.Command{
		Use:   "promote ID",
		Short: "Move a sandbox to another tier that runs real programs",
		Long: `Moves a sandbox to another tier: a simulated one when it needs real programs, and any
other behind a stronger or a weaker wall. The files that it has changed come along, and its ID, tokens
and addresses stay. Commands that run in it end. Nothing can move to the tier sim. Prints the tier it
is in now.`,
		Args: cobra.ExactArgs(1),
		RunE: a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
			opts.Tier = carrel.Tier(tier)
			sb, err := svc.Promote(ctx, id, opts)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(sb)
			}
			fmt.Fprintln(a.out, sb.Tier)
			return nil
		}),
	}
	f := c.Flags()
	f.StringVar(&tier, "tier", "", "the new tier: gvisor, ns or microvm (a simulated sandbox's default: the daemon's)")
	f.StringVar(&opts.Template, "template", "", "what the files are put on top of (the sandbox's own; base for a simulated one)")
	return c
}

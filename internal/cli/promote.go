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
		Short: "Move a simulated sandbox to a tier that runs real programs",
		Long: `Moves a simulated sandbox to a tier that runs real programs, when it needs one:
the files that it has changed come along, and its ID, tokens and addresses stay.
Commands that run in it end. Prints the tier it is in now.`,
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
	f.StringVar(&tier, "tier", "", "the new tier: gvisor, ns or microvm (the daemon's default)")
	f.StringVar(&opts.Template, "template", "", "what the files are put on top of (base)")
	return c
}

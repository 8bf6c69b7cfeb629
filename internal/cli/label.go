package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/spf13/cobra"
)

// labelCommands are the commands about labels.
type labelCommands struct{ *app }

// labelCommand is "carrel label".
func (a labelCommands) labelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "label ID [KEY=VALUE | KEY-]…",
		Short: "Show or change a sandbox's labels",
		Long: `Shows a sandbox's labels, which are its metadata. KEY=VALUE sets one and KEY- takes
one away first; the others stay. It may be paused. What it used before is counted
under the old labels.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			change, err := labelChange(args[1:])
			if err != nil {
				return err
			}
			return a.onSandbox(func(ctx context.Context, svc carrel.Service, id carrel.ID) error {
				sb, err := labelled(ctx, svc, id, change)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(sb)
				}
				rows := [][]string{}
				for _, k := range slices.Sorted(maps.Keys(sb.Metadata)) {
					rows = append(rows, []string{k, sb.Metadata[k]})
				}
				return a.table([]string{"LABEL", "VALUE"}, rows)
			})(c, args)
		},
	}
}

// labelled changes labels, if there is a change.
func labelled(ctx context.Context, svc carrel.Service, id carrel.ID, change carrel.MetadataChange) (carrel.Sandbox, error) {
	if len(change.Set)+len(change.Remove) == 0 {
		return svc.Get(ctx, id)
	}
	return svc.SetMetadata(ctx, id, change)
}

// labelChange reads KEY=VALUE and KEY-.
func labelChange(args []string) (c carrel.MetadataChange, err error) {
	var set []string
	for _, arg := range args {
		switch key, gone := strings.CutSuffix(arg, "-"); {
		case strings.Contains(arg, "="):
			set = append(set, arg)
		case gone && key != "":
			c.Remove = append(c.Remove, key)
		default:
			return c, &carrel.Error{Op: "label", Kind: carrel.Invalid, Err: fmt.Errorf("%q is neither KEY=VALUE nor KEY-", arg),
				Hint: "carrel label ID team=search old-"}
		}
	}
	c.Set, err = keyValues("label", set)
	return c, err
}

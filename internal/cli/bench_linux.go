package cli

import (
	"flag"
	"os"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/bench"
	"github.com/spf13/cobra"
)

// benchCommand is "carrel bench".
func (a *app) benchCommand() *cobra.Command {
	o := bench.Options{Out: a.out, Log: a.err}
	c := &cobra.Command{
		Use:   "bench [flags] [NAME…]",
		Short: "Measure this build on this machine, beside its peers",
		Long: `Starts a daemon of its own in a temporary directory and measures it as its users meet it,
in turns with the peers that are installed. Without a name it makes all measurements but the
soak, which takes some fifteen minutes, and the interpreter, whose template takes five to make; with
--quick three. The measurements:

` + bench.Help() + `
--json FILE keeps the results, and --compare FILE prints what changed since such a file and
whether that is more than chance. --smoke compares a few things, and fails when a ratio is far off.`,
		Example: `  carrel bench create exec
  carrel bench --json today.json --compare yesterday.json
  carrel bench density --idle 2000 --plots plots
  carrel bench soak --for 20m`,
		RunE: func(c *cobra.Command, names []string) error {
			// As for every command, --json needs no value; the results then go to stdout. If the
			// user wrote a blank before the file, the file became an argument.
			if o.JSON == "-" {
				if i := slices.IndexFunc(names, func(n string) bool { return strings.ContainsAny(n, "./") }); i >= 0 {
					o.JSON = names[i]
					names = slices.Delete(names, i, i+1)
				}
			}
			o.Names = names
			var err error
			if o.Carrel, err = os.Executable(); err != nil {
				return err
			}
			return bench.Run(c.Context(), o)
		},
	}
	var f flag.FlagSet
	o.Flags(&f)
	c.Flags().AddGoFlagSet(&f)
	c.Flags().Lookup("json").NoOptDefVal = "-"
	return c
}

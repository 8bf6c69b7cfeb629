package cli

import (
	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel/internal/run"
)

// runCommand is "carrel run". Most calls do not reach it, because cmd/carrel runs them at once
// (run.Quick).
func (a *app) runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG…]",
		Short: "Run a command, or a coding agent, in a box on this machine",
		Long: `Runs a command in a box on this machine, without a daemon and without root. It reads
what you can read but secrets, writes the working directory and a private /tmp, and reaches no
network, until you say otherwise. Streams, terminal, signals and exit status are the
command's; 125 means that Carrel could not run it. What was refused is said at the end,
with what would allow it.`,
		Example: `  carrel run -- npm test
  carrel run --allow registry.example.com -- npm install
  carrel run --profile claude-code -- claude
  carrel run --overlay --diff -- ./upgrade.sh`,
	}
	o := run.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := walls(); err != nil {
			return err
		}
		o.JSON = a.json
		code, err := run.Run(c.Context(), o, args, runDeps())
		if err != nil {
			return ownFailure{err}
		}
		a.code = code
		return nil
	}
	return c
}

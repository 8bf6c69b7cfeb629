package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
)

// podCommands are the commands for a Kubernetes pod.
type podCommands struct{ *app }

// podOptions are the settings of "carrel pod" beside those of the daemon.
type podOptions struct {
	listen, dir string
	opened      func(id carrel.ID, resumed bool)
}

// podCommand is "carrel pod".
func (a podCommands) podCommand() *cobra.Command {
	src := newSources()
	opts := podOptions{opened: a.tellSandbox}
	c := &cobra.Command{
		Use:   "pod [flags]",
		Short: "Keep one sandbox for the life of a Kubernetes pod",
		Long: `Runs a daemon with one sandbox, and serves the protocol of agent-sandbox's clients
for it. When it is told to stop, it pauses the sandbox with its memory. The next
"carrel pod" with the same data directory resumes it.

It takes the flags of carrel serve. --max-sandboxes, --warm, --warm-floor and
--blank-sentries have no effect. See docs/cluster.md.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.daemonConfig("carrel pod", src); err != nil {
				return err
			}
			return a.runPod(c.Context(), src.cfg, opts)
		},
	}
	c.Flags().AddFlagSet(src.flags)
	c.Flags().StringVar(&opts.listen, "protocol-listen", "127.0.0.1:8888", "address for agent-sandbox's protocol, which has no credentials")
	c.Flags().StringVar(&opts.dir, "dir", "", "directory inside the sandbox where that protocol's paths begin (default: the user's home)")
	return c
}

// tellSandbox says which sandbox the pod has.
func (a podCommands) tellSandbox(id carrel.ID, resumed bool) {
	how := "made"
	if resumed {
		how = "resumed"
	}
	if a.json {
		_ = a.printJSON(map[string]any{"sandbox": id, "resumed": resumed}) // there is nobody else to tell
		return
	}
	fmt.Fprintf(a.err, "carrel: %s sandbox %s\n", how, id)
}

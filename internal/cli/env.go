package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

// envCommand is "carrel env".
func (a *app) envCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print what E2B's clients need to know, for a shell to evaluate",
		Long: `Prints export lines with the daemon's address and the API key, in the variables that E2B's
SDKs and command line read:

  eval "$(carrel env)"`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				cl, ok := svc.(*client.Client)
				if !ok {
					return &carrel.Error{Op: "env", Kind: carrel.Unsupported, Err: fmt.Errorf("this service has no address")}
				}
				vars := [][2]string{{"E2B_API_URL", cl.URL()}, {"E2B_SANDBOX_URL", cl.URL()}, {"E2B_API_KEY", cl.Key()}}
				if a.json {
					all := map[string]string{}
					for _, v := range vars {
						all[v[0]] = v[1]
					}
					return a.printJSON(all)
				}
				for _, v := range vars {
					if _, err := fmt.Fprintf(a.out, "export %s='%s'\n", v[0], strings.ReplaceAll(v[1], "'", `'\''`)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

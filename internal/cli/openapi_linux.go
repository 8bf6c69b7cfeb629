package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/version"
)

// openapiCommand is "carrel openapi": it asks no daemon.
func openapiCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "openapi", Short: "Print the description of the daemon's API", Args: cobra.NoArgs,
		Long: `Prints an OpenAPI 3.1 document with every route of this version's daemon, its parameters and its
answers. A running daemon serves its own at /openapi.json, without a key.`,
		RunE: func(*cobra.Command, []string) error {
			raw, err := api.Document(version.Version)
			if err != nil {
				return &carrel.Error{Op: "openapi", Kind: carrel.Internal, Err: err}
			}
			_, err = fmt.Fprintln(a.out, string(raw))
			return err
		},
	}
}

//go:build !linux

package cli

import "github.com/spf13/cobra"

// openapiCommand is "carrel openapi". The document describes a daemon, and a daemon runs on Linux.
func openapiCommand(*app) *cobra.Command {
	return &cobra.Command{
		Use: "openapi", Short: "Print the description of the daemon's API (on Linux)", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return localDaemons("carrel openapi") },
	}
}

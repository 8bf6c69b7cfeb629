//go:build !linux

package cli

import "github.com/spf13/cobra"

// benchCommand is "carrel bench".
func (a *app) benchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "bench",
		Short: "Measure this build on this machine, beside its peers (on Linux)",
		Args:  cobra.ArbitraryArgs,
		RunE:  func(*cobra.Command, []string) error { return localDaemons("carrel bench") },
	}
}

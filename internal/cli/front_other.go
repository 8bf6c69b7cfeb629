//go:build !linux

package cli

import "github.com/spf13/cobra"

// frontCommand is "carrel front", which needs Linux.
func (a *app) frontCommand() *cobra.Command {
	return &cobra.Command{Use: "front", Short: "Run a front: one API over many nodes (on Linux)",
		RunE: func(*cobra.Command, []string) error { return localDaemons("carrel front") }}
}

//go:build !linux

package cli

import "github.com/spf13/cobra"

// backupCommands are the commands that copy a data directory.
type backupCommands struct{ *app }

// backupCommand is "carrel backup".
func (a backupCommands) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE|-", Short: "Write a data directory into one file (on Linux)", Args: cobra.ExactArgs(1),
		RunE: func(*cobra.Command, []string) error { return localDaemons("carrel backup") },
	}
}

// restoreCommand is "carrel restore".
func (a backupCommands) restoreCommand() *cobra.Command {
	return &cobra.Command{
		Use: "restore FILE|-", Short: "Make a data directory of a backup (on Linux)", Args: cobra.ExactArgs(1),
		RunE: func(*cobra.Command, []string) error { return localDaemons("carrel restore") },
	}
}

package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Commands returns the tree of all commands for the manual pages. It runs none.
func Commands() *cobra.Command {
	a := &app{in: os.Stdin, out: io.Discard, err: io.Discard}
	return a.root()
}

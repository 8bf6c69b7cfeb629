package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/notices"
)

// licensesCommand is "carrel licenses".
func (a *app) licensesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "licenses", Short: "Print the licenses of everything in this program", Args: cobra.NoArgs,
		Long: `Prints the licenses and notices of everything that this program carries: Go modules, the
Go standard library, and the interpreters for simulated sandboxes. Carrel itself is under
Apache-2.0.`,
		RunE: func(*cobra.Command, []string) error {
			all, err := notices.All()
			if err != nil {
				kind := carrel.Internal
				if errors.Is(err, notices.ErrMissing) {
					kind = carrel.Unsupported
				}
				return &carrel.Error{Op: "licenses", Kind: kind, Err: err}
			}
			if a.json {
				return a.printJSON(all)
			}
			for _, n := range all {
				if err := a.printNotice(n); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// printNotice prints a part of the program with its texts.
func (a *app) printNotice(n notices.Notice) error {
	names := strings.Join(n.Licenses, ", ")
	if _, err := fmt.Fprintf(a.out, "==== %s %s (%s)\n\n", n.Name, n.Version, names); err != nil {
		return err
	}
	for _, t := range n.Texts {
		text := strings.TrimRight(t.Text, "\n")
		if _, err := fmt.Fprintf(a.out, "---- %s\n\n%s\n\n", t.File, text); err != nil {
			return err
		}
	}
	return nil
}

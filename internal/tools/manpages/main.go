// Manpages writes a manual page for each command of carrel, from the command's own help.
//
//	manpages -o DIR
//
// SOURCE_DATE_EPOCH dates the pages, so that the same commit gives the same bytes.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel/internal/cli"
)

func main() {
	out := flag.String("o", "", "directory to write to")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	// A page must not contain defaults that depend on the user and the machine.
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	root := cli.Commands()
	root.DisableAutoGenTag = true
	plain(root)
	when := time.Unix(seconds, 0).UTC()
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Carrel", Manual: "Carrel", Date: &when}, dir)
}

// plain removes defaults that are paths of this machine from a command and all its subcommands.
func plain(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.DefValue) > 1 && f.DefValue[0] == '/' {
			f.DefValue = ""
		}
	})
	for _, sub := range c.Commands() {
		plain(sub)
	}
}

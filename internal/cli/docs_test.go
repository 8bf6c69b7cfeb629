package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// tableOfCommands returns the first column of the table of commands in docs/cli.md, row by row.
func tableOfCommands(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for row := range strings.Lines(table) {
		row = strings.ReplaceAll(row, `\|`, "\x00") // a bar within a cell
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			t.Fatalf("no row: %s", row)
		}
		rows = append(rows, strings.ReplaceAll(cells[1], "\x00", "|"))
	}
	return rows
}

// TestTableOfCommands compares the table in docs/cli.md with the real commands. Each command must
// be in the table, and each flag in the table must belong to a command of its row.
func TestTableOfCommands(t *testing.T) {
	root := (&app{}).root()
	code := regexp.MustCompile("`([^`]+)`")
	command, flag := regexp.MustCompile(`carrel ([a-z][a-z-]*)`), regexp.MustCompile(`(?:^|[\s\[(|])(--?[a-z][a-z-]*)`)
	named, flags := map[string]bool{}, 0
	for _, row := range tableOfCommands(t) {
		var of []*cobra.Command
		for _, m := range command.FindAllStringSubmatch(row, -1) {
			c, _, err := root.Find([]string{m[1]})
			if err != nil || c == root {
				t.Errorf("docs/cli.md: there is no command %s", m[1])
				continue
			}
			named[c.Name()] = true
			of = append(append(of, c), c.Commands()...)
		}
		for _, span := range code.FindAllStringSubmatch(row, -1) {
			for _, m := range flag.FindAllStringSubmatch(span[1], -1) {
				if flags++; !hasFlag(of, m[1]) {
					t.Errorf("docs/cli.md: no command has the flag %s in the row %s", m[1], row)
				}
			}
		}
	}
	for _, c := range root.Commands() {
		if !c.Hidden && !named[c.Name()] && c.Name() != "help" && c.Name() != "ssh-proxy" { // ssh starts that one
			t.Errorf("docs/cli.md has no row for carrel %s", c.Name())
		}
	}
	if flags < 80 {
		t.Errorf("only %d flags are found", flags)
	}
}

// hasFlag reports whether one of the commands has a flag, given as "--name" or "-n".
func hasFlag(commands []*cobra.Command, text string) bool {
	for _, c := range commands {
		c.InitDefaultHelpFlag()
		if name, long := strings.CutPrefix(text, "--"); long && (c.Flag(name) != nil || c.InheritedFlags().Lookup(name) != nil) {
			return true
		}
		if short := strings.TrimPrefix(text, "-"); len(short) == 1 && (c.Flags().ShorthandLookup(short) != nil || c.InheritedFlags().ShorthandLookup(short) != nil) {
			return true
		}
	}
	return false
}

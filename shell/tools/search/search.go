// Package search has the programs that search with regular expressions, and edit with them: grep,
// rg and sed. The expressions are those of package regex. Neither package calls the operating
// system.
package search

import "github.com/carrel-dev/carrel/shell/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{"grep": grepMain, "egrep": grepMain, "fgrep": grepMain, "rg": rgMain, "sed": sedMain}
}

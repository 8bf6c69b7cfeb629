// Package calc has the calculators bc and dc, with numbers of any length.
//
// Their programs are hostile. Nesting, depth of calls and number of digits are limited. Each
// operation pays by the size of its numbers, and each variable by its bytes.
package calc

import (
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return usage.Commands(map[string]usage.Program{
		"bc": {Run: bc, Args: "[options] [file ...]", What: "Calculates what lines of numbers and operators say, with as many digits as they need."},
		"dc": {Run: dc, Args: "[OPTION] [file ...]", What: "Calculates on a stack: numbers first, their operator after them."},
	})
}

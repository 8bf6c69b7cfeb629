// Package script has JavaScript and Python, as interpreters without a system below
package script

import "github.com/carrel-dev/carrel/internal/sh/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{}
}

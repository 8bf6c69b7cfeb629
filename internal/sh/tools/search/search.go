// Package search has regular expressions and what searches and edits with them: grep, rg, sed, …
package search

import "github.com/carrel-dev/carrel/internal/sh/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{}
}

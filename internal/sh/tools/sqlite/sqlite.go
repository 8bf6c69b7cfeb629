// Package sqlite has sqlite3, with databases on the machine's disk
package sqlite

import "github.com/carrel-dev/carrel/internal/sh/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{}
}

// Package system has programs about the machine, its processes, time and numbers: ps, date, env, timeout, bc, …
package system

import "github.com/carrel-dev/carrel/internal/sh/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{}
}

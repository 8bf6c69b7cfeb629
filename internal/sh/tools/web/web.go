// Package web has curl and wget, through the sandbox's policy
package web

import "github.com/carrel-dev/carrel/internal/sh/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{}
}

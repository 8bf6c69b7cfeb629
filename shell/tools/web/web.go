// Package web has curl and wget.
//
// They have no socket. Each request, and each hop of a redirect, goes to tool.HTTP, which judges it
// by the sandbox's policy. Credentials, and headers with credentials, are not sent to another host.
package web

import "github.com/carrel-dev/carrel/shell/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{"curl": runCurl, "wget": runWget}
}

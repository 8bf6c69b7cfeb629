// Package data has programs for structured data: jq, yq, xan and html-to-markdown.
//
// Nothing here reaches the host: gojq only parses, and the HTML converter gets a text and returns a
// text.
package data

import "github.com/carrel-dev/carrel/shell/tool"

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{
		"jq": runJQ, "yq": runYQ, "xan": runXan, "html-to-markdown": runHTML,
	}
}

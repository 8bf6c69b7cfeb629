//go:build js || wasip1

package tools

import "github.com/carrel-dev/carrel/shell/tool"

// native are programs that a WebAssembly module does not have.
var native []func() map[string]tool.Command

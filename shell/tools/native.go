//go:build !js && !wasip1

package tools

import (
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/git"
	"github.com/carrel-dev/carrel/shell/tools/script"
	"github.com/carrel-dev/carrel/shell/tools/sqlite"
)

// native are programs that can't be part of a WebAssembly module or would make it too large.
var native = []func() map[string]tool.Command{git.Commands, script.Commands, sqlite.Commands}

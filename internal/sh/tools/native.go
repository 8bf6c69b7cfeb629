//go:build !js && !wasip1

package tools

import (
	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/tools/git"
	"github.com/carrel-dev/carrel/internal/sh/tools/script"
	"github.com/carrel-dev/carrel/internal/sh/tools/sqlite"
)

// native are programs that can't be part of a WebAssembly module, or would make it too large.
var native = []func() map[string]tool.Command{git.Commands, script.Commands, sqlite.Commands}

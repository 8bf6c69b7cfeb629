// Package tools is the set of programs that a simulated machine has besides what the shell has itself.
package tools

import (
	"maps"
	"slices"
	"sync"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/tools/archive"
	"github.com/carrel-dev/carrel/internal/sh/tools/awk"
	"github.com/carrel-dev/carrel/internal/sh/tools/data"
	"github.com/carrel-dev/carrel/internal/sh/tools/files"
	"github.com/carrel-dev/carrel/internal/sh/tools/search"
	"github.com/carrel-dev/carrel/internal/sh/tools/system"
	"github.com/carrel-dev/carrel/internal/sh/tools/text"
	"github.com/carrel-dev/carrel/internal/sh/tools/web"
)

// All returns every program by name. The table is shared: it must not be changed.
var All = sync.OnceValue(func() map[string]tool.Command {
	all := map[string]tool.Command{}
	for _, part := range append([]func() map[string]tool.Command{
		archive.Commands,
		awk.Commands,
		data.Commands,
		files.Commands,
		search.Commands,
		system.Commands,
		text.Commands,
		web.Commands,
	}, native...) {
		maps.Copy(all, part())
	}
	return all
})

// Names returns the names of all programs, sorted.
func Names() []string { return slices.Sorted(maps.Keys(All())) }

// Package tools is the set of programs that a simulated machine has in addition to the programs of
// package interp.
package tools

import (
	"maps"
	"slices"
	"sync"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/archive"
	"github.com/carrel-dev/carrel/shell/tools/awk"
	"github.com/carrel-dev/carrel/shell/tools/data"
	"github.com/carrel-dev/carrel/shell/tools/files"
	"github.com/carrel-dev/carrel/shell/tools/search"
	"github.com/carrel-dev/carrel/shell/tools/system"
	"github.com/carrel-dev/carrel/shell/tools/text"
	"github.com/carrel-dev/carrel/shell/tools/web"
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

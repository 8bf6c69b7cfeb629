package shell_test

import (
	"go/ast"
	"path"
	"slices"
	"testing"
)

// maxLines is the longest allowed function: a screen and a half.
const maxLines = 80

// dispatch lists the functions that may be longer, with the reason. Each is one table in the form
// of a switch: its cases share nothing, and each case is a few lines.
var dispatch = map[string]string{
	"regex.run": "one case for each instruction of the backtracker, in its innermost loop",

	"tools/archive.option": "one case for each of tar's options",
	"tools/data/jq.init":   "one entry for each of jq's special forms",
	"tools/script.init":    "one entry for each function of node's host",
	"tools/sqlite.init":    "one entry for each of the shell's dot commands",
	"tools/web.option":     "one case for each of wget's options",
	"tools/web.options":    "one line for each of curl's options",
	"tools/web.variable":   "one case for each variable of curl's --write-out",
}

// TestFunctionsAreShort fails for a function of more than maxLines lines. It also fails for an
// exception that is no longer needed.
func TestFunctionsAreShort(t *testing.T) {
	var long []string
	for name, file := range sources(t) {
		if ast.IsGenerated(file) {
			continue
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := fileSet.Position(f.End()).Line - fileSet.Position(f.Pos()).Line + 1
			if lines <= maxLines {
				continue
			}
			id := path.Dir(name) + "." + f.Name.Name
			long = append(long, id)
			if dispatch[id] == "" && !slices.Contains(owed, id) {
				t.Errorf("%s: %s has %d lines; at most %d are read at once", name, id, lines, maxLines)
			}
		}
	}
	for id := range dispatch {
		if !slices.Contains(long, id) {
			t.Errorf("%s is short, or gone: it needs no exception", id)
		}
	}
	for _, id := range owed {
		if !slices.Contains(long, id) {
			t.Errorf("%s is short, or gone: take it off owed", id)
		}
	}
}

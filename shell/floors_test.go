package shell_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// house is the import path of this directory.
const house = "github.com/carrel-dev/carrel/shell"

// floors lists the layers of packages from the bottom up; README.md draws them. A package may
// import packages of lower layers. Packages of one tree (tools/git, tools/script, …) may import
// each other. The longest prefix of a package's path decides its layer.
var floors = []struct {
	number   int
	prefixes []string
}{
	{0, []string{"vfs", "regex"}},
	{1, []string{"tool"}},
	{2, []string{"interp", "hostfs", "outside", "codemode", "tools/"}},
	{3, []string{"tools"}},
	{4, []string{"."}},
	{5, []string{"internal", "test"}},
}

// siblings are the allowed imports between trees of one layer.
var siblings = map[string][]string{
	"codemode":     {"tools/script/quickjs"}, // the scripts run in it
	"tools/script": {"codemode"},             // node calls granted tools
	// date's formats and the messages of the numfmt family serve both trees.
	"tools/text":   {"tools/system/gnudate"},
	"tools/system": {"tools/text/usage"},
}

// hostDoors are the packages of the standard library that reach the host, with the packages that
// may import them.
var hostDoors = map[string][]string{
	"os":       {"hostfs", "internal", "test", "tools/system/gnudate", "tools/sqlite", "tools/git"},
	"os/exec":  {"internal", "test"},
	"net":      {"outside", "internal", "test"},
	"net/http": {"outside", "internal", "test", "tools/git"},
	"plugin":   nil,
}

// TestFloors fails when a package imports a package of a higher layer, another tree of its own
// layer, a package that reaches the host, or a package of Carrel outside this directory.
func TestFloors(t *testing.T) {
	n := 0
	for name, file := range sources(t) {
		n++
		for _, s := range file.Imports {
			if err := checkImport(path.Dir(name), strings.Trim(s.Path.Value, `"`)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d files: the house was not found", n)
	}
}

// TestFloorsCanFail checks that forbidden imports are reported.
func TestFloorsCanFail(t *testing.T) {
	for _, c := range []struct{ from, imp string }{
		{"vfs", house + "/tool"},              // up
		{"vfs", house + "/regex"},             // a sibling
		{"regex", house + "/interp"},          // far up
		{"tool", house + "/interp"},           // the contract imports its implementation
		{"interp", house + "/tools"},          // the machine imports its programs
		{"interp", house + "/tools/files"},    // or one of them
		{"tools/git", house + "/tools/web"},   // a program knows another
		{"tools/files", house + "/interp"},    // a program knows the machine
		{"tools/files", house + "/tools"},     // a program knows the table
		{"tools", house},                      // the table of programs imports the main package
		{"codemode", house},                   // as does a part
		{"hostfs", house + "/interp"},         // a part knows another
		{"interp", "os"},                      // the machine opens the host's files
		{"tools/files", "net"},                // a program opens a connection
		{".", "os/exec"},                      // the main package starts processes
		{".", "github.com/carrel-dev/carrel"}, // Carrel's words
		{"tools/git", "github.com/carrel-dev/carrel/internal/cleanup"},
		{"nowhere", "fmt"}, // on no floor
	} {
		if checkImport(c.from, c.imp) == nil {
			t.Errorf("%s importing %s is not refused", c.from, c.imp)
		}
	}
	for _, c := range []struct{ from, imp string }{
		{".", house + "/tools"}, {"tools", house + "/tools/git"}, {"tools/data", house + "/tools/data/jq"}, {"tools/data/jq", house + "/regex"},
		{"interp", house + "/tool"}, {"codemode", house + "/tools/script/quickjs"}, {"outside", "net/http"}, {"hostfs", house + "/vfs"},
	} {
		if err := checkImport(c.from, c.imp); err != nil {
			t.Error(err)
		}
	}
}

// checkImport returns an error if the package in dir, relative to this directory, may not import
// imp.
func checkImport(dir, imp string) error {
	from, ok := floorOf(dir)
	if !ok {
		return fmt.Errorf("%s is on no floor: add it to floors", dir)
	}
	if allowed, is := hostDoors[imp]; is && !slices.ContainsFunc(allowed, func(a string) bool { return within(dir, a) }) {
		return fmt.Errorf("%s imports %s, which only %v may", dir, imp, allowed)
	}
	carrel := path.Dir(house)
	if !within(imp, carrel) {
		return nil
	}
	if !within(imp, house) {
		return fmt.Errorf("%s imports %s: this house knows nothing of Carrel's", dir, imp)
	}
	target := path.Clean(strings.TrimPrefix(strings.TrimPrefix(imp, house), "/"))
	to, ok := floorOf(target)
	switch {
	case !ok:
		return fmt.Errorf("%s is on no floor: add it to floors", target)
	case to > from:
		return fmt.Errorf("%s (floor %d) imports %s (floor %d), which is above it", dir, from, target, to)
	case to == from && tree(dir) != tree(target) && !slices.ContainsFunc(siblings[tree(dir)], func(s string) bool { return within(target, s) }):
		return fmt.Errorf("%s imports its neighbour %s", dir, target)
	}
	return nil
}

// floorOf finds a directory's layer. A prefix that ends with a slash matches only directories below
// it.
func floorOf(dir string) (int, bool) {
	best, floor := -1, 0
	for _, f := range floors {
		for _, p := range f.prefixes {
			fits := p == dir
			if below, only := strings.CutSuffix(p, "/"); p != "." && p != "tools" {
				fits = within(dir, below) && !(only && dir == below)
			}
			if fits && len(p) > best {
				best, floor = len(p), f.number
			}
		}
	}
	return floor, best >= 0
}

// tree is the family of a package: tools/NAME, or its first folder.
func tree(dir string) string {
	parts := strings.Split(dir, "/")
	if parts[0] == "tools" && len(parts) > 1 {
		return strings.Join(parts[:2], "/")
	}
	return parts[0]
}

// within reports whether a path is prefix or below it.
func within(p, prefix string) bool { return p == prefix || strings.HasPrefix(p, prefix+"/") }

// fileSet is that of sources.
var fileSet = token.NewFileSet()

// sources parses all files below this directory except tests, and returns them by name.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	out := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(fileSet, name, nil, parser.SkipObjectResolution|parser.ParseComments)
		out[filepath.ToSlash(name)] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

package interp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoWayOut checks the threat model of this package and of vfs. They must not import a package
// that can make a system call, and may use package syscall only for its error numbers.
func TestNoWayOut(t *testing.T) {
	allowed := map[string]bool{}
	for _, p := range strings.Fields(`bufio bytes cmp context crypto/md5 crypto/rand crypto/sha1 crypto/sha256 crypto/sha512 encoding/binary math/rand/v2
		encoding/base64 encoding/hex errors fmt hash io io/fs iter maps math math/bits path regexp runtime slices sort strconv strings
		sync sync/atomic syscall time unicode unicode/utf8 golang.org/x/text/width mvdan.cc/sh/v3/syntax github.com/carrel-dev/carrel/shell/vfs
		github.com/carrel-dev/carrel/shell/tool github.com/carrel-dev/carrel/shell/regex`) {
		allowed[p] = true
	}
	for _, dir := range []string{".", "../vfs", "../tool", "../regex"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, imp := range f.Imports {
				if p := strings.Trim(imp.Path.Value, `"`); !allowed[p] {
					t.Errorf("%s imports %s", name, p)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "syscall" && sel.Sel.Name != "Errno" &&
					(!strings.HasPrefix(sel.Sel.Name, "E") || sel.Sel.Name != strings.ToUpper(sel.Sel.Name)) {
					t.Errorf("%s uses syscall.%s", name, sel.Sel.Name)
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "runtime" && sel.Sel.Name != "Callers" {
					t.Errorf("%s uses runtime.%s", name, sel.Sel.Name)
				}
				return true
			})
		}
	}
}

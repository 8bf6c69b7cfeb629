package carrel_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// mostMethods is the most methods that a type outside shell/ may have. A type with more has several
// concerns: give each a type of its own, and the state that it guards.
const mostMethods = 80

// TestTypesAreSmall fails for a type with too many methods of its own in hand-written code.
func TestTypesAreSmall(t *testing.T) {
	looked, largest, of := 0, 0, ""
	eachPackage(t, ".", func(dir string, names []string) {
		if within(dir, "shell") {
			return
		}
		for typ, n := range methodsOf(t, names) {
			looked++
			if n > largest {
				largest, of = n, dir+"."+typ
			}
			if n > mostMethods {
				t.Errorf("%s: type %s has %d methods, at most %d may be", dir, typ, n, mostMethods)
			}
		}
	})
	if looked == 0 {
		t.Error("no type was looked at")
	}
	t.Logf("the largest of %d types is %s with %d methods", looked, of, largest)
}

// methodsOf counts the methods of each type of a package, by the name of the type. Files for
// different systems may declare the same method: it counts once.
func methodsOf(t *testing.T, names []string) map[string]int {
	t.Helper()
	seen, out := map[string]bool{}, map[string]int{}
	for _, name := range names {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains("\n"+string(src), "\n// Code generated ") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			typ := receiverType(f.Recv.List[0].Type)
			if key := typ + "." + f.Name.Name; !seen[key] {
				seen[key] = true
				out[typ]++
			}
		}
	}
	return out
}

// receiverType returns the type name of a method's receiver, without star and type parameters.
func receiverType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverType(e.X)
	case *ast.IndexExpr:
		return receiverType(e.X)
	case *ast.IndexListExpr:
		return receiverType(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

package resolve_test

import (
	"errors"
	"testing"

	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// resolved parses a program and resolves its names.
func resolved(t *testing.T, text string) (*resolve.Program, error) {
	t.Helper()
	tree, err := syntax.Parse([]syntax.Unit{{Text: text}}, syntax.Options{})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return resolve.Resolve(tree, nil)
}

// TestErrors checks the messages about wrongly used names.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		program string
		line    int
		msg     string
	}{
		{"BEGIN {\n f(1) }", 2, "fatal: function `f' not defined"},
		{"function f() { }\nfunction f() { }", 2, "error: function name `f' previously defined"},
		{"function NR() { }", 1, "error: function name `NR' previously defined"},
		{"function f(a, b, a) { }", 1, "error: function `f': parameter #3, `a', duplicates parameter #1"},
		{"function f(f) { }", 1, "error: function `f': cannot use function name as parameter name"},
		{"function f(NF) { }", 1, "error: function `f': cannot use special variable `NF' as a function parameter"},
		{"function f() { }\nBEGIN { f = 1 }", 2, "error: function `f' called with space between name and `(',\nor used as a variable or an array"},
	} {
		_, err := resolved(t, c.program)
		var bad *syntax.Error
		if !errors.As(err, &bad) || bad.Line != c.line || bad.Msg != c.msg {
			t.Errorf("%q: %+v, want line %d: %s", c.program, err, c.line, c.msg)
		}
	}
}

// TestSlots checks that special variables have their numbers, that other variables follow them, and
// that parameters hide them.
func TestSlots(t *testing.T) {
	prog, err := resolved(t, "function f(x, y) { return x + y + z + NF } BEGIN { x = f(1, 2); NR = 3 }")
	if err != nil {
		t.Fatal(err)
	}
	for n, name := range resolve.Specials {
		if prog.Slots[name] != n || prog.Globals[n] != name {
			t.Errorf("%s has slot %d, want %d", name, prog.Slots[name], n)
		}
	}
	for _, name := range []string{"x", "z"} {
		if slot, ok := prog.Slots[name]; !ok || slot < int(resolve.NumSpecials) || prog.Globals[slot] != name {
			t.Errorf("%s has slot %d (%v)", name, slot, ok)
		}
	}
	if _, ok := prog.Slots["y"]; ok {
		t.Error("y, a parameter only, has a slot")
	}
	sum := prog.Program.Funcs[0].Body[0].(*syntax.Return).X.(*syntax.Binary)
	if nf := sum.R.(*syntax.Name); nf.Scope != syntax.Global || nf.Slot != int(resolve.NF) {
		t.Errorf("NF in a function is %+v", nf)
	}
	first := sum.L.(*syntax.Binary).L.(*syntax.Binary)
	if x := first.L.(*syntax.Name); x.Scope != syntax.Local || x.Slot != 0 {
		t.Errorf("the first parameter is %+v", x)
	}
	if y := first.R.(*syntax.Name); y.Scope != syntax.Local || y.Slot != 1 {
		t.Errorf("the second parameter is %+v", y)
	}
	if call := prog.Program.Rules[0].Body[0].(*syntax.ExprStmt).X.(*syntax.Assign).R.(*syntax.Call); call.Func != prog.Funcs["f"] {
		t.Errorf("the call is of function %d", call.Func)
	}
	if !prog.Uses["NR"] || !prog.Uses["z"] || prog.Uses["FS"] {
		t.Errorf("uses %v", prog.Uses)
	}
}

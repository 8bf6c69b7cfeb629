package kernel

import (
	"strings"
	"testing"
)

// TestVariables gives cells of other languages their environment: what one cell gets is gone in the
// next, and what the sandbox or the process had is back.
func TestVariables(t *testing.T) {
	v := variablesOf("R")
	v.start([]string{"PATH=/bin", "LANG=C"})
	sandbox := map[string]string{"FOO": "sandbox"}
	for _, c := range []struct {
		cell Cell
		want []string // lines of code, shortened to what is set
	}{
		{Cell{Base: sandbox}, []string{"FOO=sandbox"}},
		{Cell{Base: sandbox}, nil},
		{Cell{Base: sandbox, Env: map[string]string{"FOO": "cell", "ONE": "1", "PATH": "/x"}},
			[]string{"FOO=cell", "ONE=1", "PATH=/x"}},
		{Cell{Base: sandbox}, []string{"-ONE", "PATH=/bin", "FOO=sandbox"}},
		{Cell{Env: map[string]string{"": "x"}}, []string{"-FOO"}},
	} {
		var want strings.Builder
		for _, line := range c.want {
			if name, ok := strings.CutPrefix(line, "-"); ok {
				want.WriteString(v.unset(name))
			} else {
				name, value, _ := strings.Cut(line, "=")
				want.WriteString(v.set(name, value))
			}
		}
		if got := v.change(c.cell); got != want.String() {
			t.Errorf("%+v:\n%swant\n%s", c.cell, got, want.String())
		}
	}
	if v := variablesOf("cobol"); v != nil {
		t.Error("code for a language that we do not know")
	}
}

// TestQuoting writes strings that could end a literal early or mean something else in it.
func TestQuoting(t *testing.T) {
	for _, c := range []struct{ in, r, java string }{
		{"plain", `"plain"`, `"plain"`},
		{`a"); quit(); ("`, `"a\"); quit(); (\""`, `"a\"); quit(); (\""`},
		{`\u0022`, `"\\u0022"`, `"\\u0022"`},
		{"line\nend\x7f", `"line\U0000000aend\U0000007f"`, `"line\012end\177"`},
		{"é😀", `"\U000000e9\U0001f600"`, `"\u00e9\ud83d\ude00"`},
	} {
		if got := quoteR(c.in); got != c.r {
			t.Errorf("R: %q is %s, want %s", c.in, got, c.r)
		}
		if got := quoteJava(c.in); got != c.java {
			t.Errorf("Java: %q is %s, want %s", c.in, got, c.java)
		}
	}
}

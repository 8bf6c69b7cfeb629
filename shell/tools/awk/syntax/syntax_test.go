package syntax_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// parse reads a program of one unit.
func parse(text string) (*syntax.Program, error) {
	return syntax.Parse([]syntax.Unit{{Text: text}}, syntax.Options{})
}

// TestErrors checks the messages about wrong programs and their positions: the line, and the byte
// in the line.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		program      string
		line, column int // the column is -1 if the message has no position in the line
		msg          string
	}{
		{"BEGIN { print 1", 1, 15, "unexpected newline or end of string"},
		{"BEGIN { print (1 }", 1, 17, "syntax error"},
		{"BEGIN {\n x = 1\n y = = 2\n}", 3, 5, "syntax error"},
		{"{ x = }", 1, 6, "syntax error"},
		{"BEGIN { print \"abc }", 1, 14, "unterminated string"},
		{"BEGIN { x = /abc }", 1, 13, "unterminated regexp"},
		{"BEGIN { x ~ /[/ }", 1, 13, "unterminated regexp"},
		{"BEGIN { getline < }", 1, 18, "syntax error"},
		{"BEGIN { print 1,, 2 }", 1, 16, "syntax error"},
		{"BEGIN { print > }", 1, 16, "syntax error"},
		{"BEGIN { 1 = 2 }", 1, 10, "syntax error"},
		{"BEGIN { $ }", 1, 10, "syntax error"},
		{"BEGIN { delete }", 1, 15, "syntax error"},
		{"BEGIN { if (x) }", 1, 15, "syntax error"},
		{"BEGIN { else }", 1, 8, "syntax error"},
		{"BEGIN { do x while (1) }", 1, 13, "syntax error"},
		{"BEGIN { for (;;;) x }", 1, 15, "syntax error"},
		{"function f() { return 1 == 1 == 1 }", 1, 29, "syntax error"},
		{"a b {", 1, 5, "unexpected newline or end of string"},
		{"` `", 1, 0, "invalid char '`' in expression"},
		{"\n\n}", 3, 0, "syntax error"},
		{"BEGIN { return }", 1, 8, "`return' used outside function context"},
		{"BEGIN { substr(1) }", 1, 16, "1 is invalid as number of arguments for substr"},
		{"BEGIN { length(1, 2) }", 1, 19, "2 is invalid as number of arguments for length"},
		{"function length() { }", 1, 9, "`length' is a built-in function, it cannot be redefined"},
		{"BEGIN", 1, -1, "BEGIN blocks must have an action part"},
		{"1\nEND\n", 2, -1, "END blocks must have an action part"},
		{"BEGIN { next }", 1, -1, "error: `next' used in BEGIN action"},
		{"BEGIN { break }", 1, -1, "error: `break' is not allowed outside a loop or switch"},
		{"BEGIN { switch (1) { case 1: continue } }", 1, -1, "error: `continue' is not allowed outside a loop"},
		{"BEGIN {\nswitch (1) {\ndefault: x\ndefault: y } }", 4, -1, "error: duplicate `default' detected in switch body"},
		{"@load \"x\"", 1, -1, "error: @load is not supported"},
		{"BEGIN { printf }", 1, -1, "fatal: printf: no arguments"},
		{"BEGIN {\n\nindex(x, /y/) }", 3, -1, "fatal: index: regexp constant as second argument is not allowed"},
	} {
		_, err := parse(c.program)
		var bad *syntax.Error
		if !errors.As(err, &bad) {
			t.Errorf("%q: error %v", c.program, err)
			continue
		}
		column := bad.Column
		if bad.Source == "" {
			column = -1
		}
		if bad.Line != c.line || column != c.column || bad.Msg != c.msg {
			t.Errorf("%q: line %d, column %d: %s; want line %d, column %d: %s", c.program, bad.Line, column, bad.Msg, c.line, c.column, c.msg)
		}
		if lines := strings.Split(c.program, "\n"); bad.Source != "" && bad.Source != lines[bad.Line-1] {
			t.Errorf("%q: shows the line %q", c.program, bad.Source)
		}
		if bad.Fatal != strings.HasPrefix(c.msg, "fatal: ") {
			t.Errorf("%q: fatal is %v", c.program, bad.Fatal)
		}
	}
}

// TestUnits checks that an error names its unit, and that a unit is included once.
func TestUnits(t *testing.T) {
	included := 0
	include := func(name string) (syntax.Unit, bool, error) {
		if name != "lib" {
			return syntax.Unit{}, false, errors.New("no " + name)
		}
		included++
		return syntax.Unit{Name: "lib.awk", Text: "function f() { return 1 }\n"}, included == 1, nil
	}
	units := []syntax.Unit{{Name: "one", Text: "@include \"lib\"\n@include \"lib\"\nBEGIN { f() }"}, {Name: "two", Text: "1\n}"}}
	_, err := syntax.Parse(units, syntax.Options{Include: include})
	var bad *syntax.Error
	if !errors.As(err, &bad) || bad.Unit != "two" || bad.Line != 2 {
		t.Errorf("error %+v, want one in line 2 of unit two", err)
	}
	prog, err := syntax.Parse(units[:1], syntax.Options{Include: include})
	if err != nil || len(prog.Funcs) != 0 || len(prog.Rules) != 1 {
		t.Errorf("a unit that was included before: %+v, %v", prog, err)
	}
	if _, err := syntax.Parse([]syntax.Unit{{Text: "@include \"none\""}}, syntax.Options{Include: include}); err == nil || err.Error() != "no none" {
		t.Errorf("error %v, want that of Include", err)
	}
}

// TestWarnings checks that escapes without a meaning give warnings.
func TestWarnings(t *testing.T) {
	var told []string
	warn := func(_ string, line int, msg string) { told = append(told, fmt.Sprint(line, ": ", msg)) }
	if _, err := syntax.Parse([]syntax.Unit{{Text: "BEGIN {\n x = \"a\\qb\" }"}}, syntax.Options{Warn: warn}); err != nil {
		t.Fatal(err)
	}
	if want := "2: escape sequence `\\q' treated as plain `q'"; len(told) != 1 || told[0] != want {
		t.Errorf("told %q, want %q", told, want)
	}
}

// TestSteps checks that parsing ends when Step returns false.
func TestSteps(t *testing.T) {
	left := 1000
	_, err := syntax.Parse([]syntax.Unit{{Text: "BEGIN { " + strings.Repeat("x = 1;\n", 10_000) + "}"}},
		syntax.Options{Step: func(n int) bool { left -= n; return left > 0 }})
	if err == nil || left < -1000 {
		t.Errorf("error %v with %d steps left", err, left)
	}
}

// TestPrecedence checks precedence and associativity. It compares expressions that are written with
// all their parentheses.
func TestPrecedence(t *testing.T) {
	for source, want := range map[string]string{
		"1 + 2 * 3 ^ 2":           "(1 + (2 * (3 ^ 2)))",
		"2 ^ 3 ^ 2":               "(2 ^ (3 ^ 2))",
		"2 ** 3":                  "(2 ^ 3)",
		"-2 ^ 2":                  "-((2 ^ 2))",
		"!x ~ y":                  "(!(x) ~ y)",
		"2 ^ -1":                  "(2 ^ -(1))",
		"8 - 3 - 2":               "((8 - 3) - 2)",
		"8 / 4 / 2 % 3":           "(((8 / 4) / 2) % 3)",
		"1 \" \" -1":              "[1 (\" \" - 1)]",
		"a b c":                   "[a b c]",
		"1 + 2 3 + 4":             "[(1 + 2) (3 + 4)]",
		"1 - -1":                  "(1 - -(1))",
		"a < b c":                 "(a < [b c])",
		"a == b && c || d":        "(((a == b) && c) || d)",
		"a || b && c":             "(a || (b && c))",
		"x ~ y ~ z":               "((x ~ y) ~ z)",
		"a ? b : c ? d : e":       "{a ? b : {c ? d : e}}",
		"a = b = c":               "(a = (b = c))",
		"a += b ? c : d":          "(a + = {b ? c : d})",
		"a ^= 2":                  "(a ^ = 2)",
		"$1 + 1":                  "($1 + 1)",
		"$i++":                    "post($i)",
		"$(i++)":                  "$(post(i))",
		"$++i":                    "$pre(i)",
		"$$0":                     "$$0",
		"-x++":                    "-(post(x))",
		"a in b":                  "(a in b)",
		"(a, b) in c":             "(a,b in c)",
		"!(a in b) && c in d":     "(!(((a in b))) && (c in d))",
		"a in b in c":             "((a in b) in c)",
		"\"cmd\" | getline":       "(\"cmd\" getline)",
		"\"cmd\" | getline x":     "(\"cmd\" getline x)",
		"\"a\" \"b\" | getline":   "([\"a\" \"b\"] getline)",
		"getline x < \"f\" \"g\"": "[(\"f\" getline x) \"g\"]",
		"getline < \"f\" + 1":     "((\"f\" getline) + 1)",
		"\"c\" |& getline":        "(\"c\" getline)",
		"while_ + length":         "(while_ + length())",
		"length + 1":              "(length() + 1)",
		"x = y ~ z":               "(x = (y ~ z))",
		"1 in a ? 2 : 3":          "{(1 in a) ? 2 : 3}",
		"f(x, y)(z)":              "[f(x,y) (z)]",
		"a[1, 2][3]":              "a[1,2][3]",
		"@f(x)":                   "@f(x)",
		"/x/ ~ @/y/":              "(/x/ ~ /y/)",
		"0x10 + 011 + 1e2":        "((16 + 9) + 100)",
		"\"\\x41\\101\\n\"":       "\"AA\\n\"",
	} {
		prog, err := parse("function _() { return " + source + "\n}")
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		x := prog.Funcs[0].Body[0].(*syntax.Return).X
		if got := show(x); got != want {
			t.Errorf("%s is read as %s, want %s", source, got, want)
		}
	}
}

var binaries = map[syntax.BinaryOp]string{syntax.OpAdd: "+", syntax.OpSub: "-", syntax.OpMul: "*", syntax.OpDiv: "/", syntax.OpMod: "%",
	syntax.OpPow: "^", syntax.OpLess: "<", syntax.OpLessEqual: "<=", syntax.OpEqual: "==", syntax.OpNotEqual: "!=", syntax.OpGreater: ">",
	syntax.OpGreaterEqual: ">=", syntax.OpMatch: "~", syntax.OpNoMatch: "!~", syntax.OpAnd: "&&", syntax.OpOr: "||"}

var unaries = map[syntax.UnaryOp]string{syntax.OpNot: "!", syntax.OpNegate: "-", syntax.OpPlus: "+"}

// show writes an expression with parentheses around each operator.
func show(x syntax.Expr) string {
	switch x := x.(type) {
	case nil:
		return ""
	case *syntax.Num:
		return fmt.Sprint(x.Value)
	case *syntax.Str:
		return fmt.Sprintf("%q", x.Value)
	case *syntax.Regex:
		return "/" + x.Source + "/"
	case *syntax.Name:
		return x.Ident
	case *syntax.Index:
		return show(x.Array) + "[" + showAll(x.Subs, ",") + "]"
	case *syntax.Field:
		return "$" + show(x.X)
	case *syntax.Group:
		return "(" + show(x.X) + ")"
	case *syntax.Unary:
		return unaries[x.Op] + "(" + show(x.X) + ")"
	case *syntax.Binary:
		return "(" + show(x.L) + " " + binaries[x.Op] + " " + show(x.R) + ")"
	case *syntax.Concat:
		return "[" + showAll(x.Parts, " ") + "]"
	case *syntax.Cond:
		return "{" + show(x.If) + " ? " + show(x.Then) + " : " + show(x.Else) + "}"
	case *syntax.In:
		return "(" + showAll(x.Subs, ",") + " in " + show(x.Array) + ")"
	case *syntax.Assign:
		return "(" + show(x.L) + " " + strings.TrimLeft(binaries[x.Op]+" = ", " ") + show(x.R) + ")"
	case *syntax.IncDec:
		if x.Post {
			return "post(" + show(x.L) + ")"
		}
		return "pre(" + show(x.L) + ")"
	case *syntax.Call:
		return x.Name + "(" + showAll(x.Args, ",") + ")"
	case *syntax.CallBuiltin:
		return x.Builtin.Name + "(" + showAll(x.Args, ",") + ")"
	case *syntax.Indirect:
		return "@" + x.Fn.Ident + "(" + showAll(x.Args, ",") + ")"
	case *syntax.Getline:
		return "(" + strings.TrimSpace(show(x.Source)+" getline "+show(x.Target)) + ")"
	}
	return fmt.Sprintf("%T", x)
}

func showAll(list []syntax.Expr, between string) string {
	var parts []string
	for _, x := range list {
		parts = append(parts, show(x))
	}
	return strings.Join(parts, between)
}

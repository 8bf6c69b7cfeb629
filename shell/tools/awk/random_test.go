package awk_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// author writes random awk programs. They end, and use no file and no clock. If the language leaves
// a result open, such as the order of an array, they do not print it.
type author struct {
	*rand.Rand
	loops      int    // each has a counter of its own
	paragraphs bool   // RS is ""
	calls      string // the functions that may be called, so that none calls itself
}

// pick returns one of several texts.
func (w *author) pick(list ...string) string { return list[w.IntN(len(list))] }

// program returns a program: functions, then rules.
func (w *author) program() string {
	var b strings.Builder
	b.WriteString("BEGIN { PROCINFO[\"sorted_in\"] = \"@ind_str_asc\"")
	w.paragraphs = false
	if w.IntN(4) == 0 {
		first := w.pick(`OFS = "-"`, `CONVFMT = "%.3g"`, `OFMT = "%.2f"`, `SUBSEP = ":"`,
			`IGNORECASE = 1`, `FS = ","`, `FS = "[a1]+"`, `FPAT = "[a-z]+|[0-9]+"`, `FIELDWIDTHS = "2 1 3"`,
			`RS = ""`, `RS = "[0-9]b?"`, `RS = ";"`, `FS = "\t"`, `FS = ""`)
		b.WriteString("; " + first)
		w.paragraphs = first == `RS = ""`
	}
	b.WriteString(" }\n")
	w.calls = ""
	if w.IntN(2) == 0 {
		fmt.Fprintf(&b, "function f(p, q) { %s; return %s }\n", w.statement(1), w.expression(2))
		w.calls = "f"
	}
	if w.IntN(3) == 0 {
		fmt.Fprintf(&b, "function g(t, k) { t[k] = %s; delete t[%s]; return length(t) }\n",
			w.expression(1), w.expression(1))
		w.calls += "g"
	}
	for range 1 + w.IntN(3) {
		switch w.IntN(6) {
		case 0:
			fmt.Fprintf(&b, "BEGIN { %s }\n", w.statement(2))
		case 1:
			fmt.Fprintf(&b, "%s { %s }\n", w.expression(2), w.statement(2))
		case 2:
			fmt.Fprintf(&b, "%s, %s { %s }\n", w.expression(1), w.expression(1), w.statement(1))
		case 3:
			b.WriteString(w.expression(2) + "\n")
		default:
			fmt.Fprintf(&b, "{ %s; %s }\n", w.statement(2), w.statement(2))
		}
	}
	if w.IntN(2) == 0 {
		fmt.Fprintf(&b, "END { %s; print NR, x, y; for (k in a) print k, a[k] }\n", w.statement(2))
	}
	return b.String()
}

// statement returns one statement. depth limits its nesting.
func (w *author) statement(depth int) string {
	if depth <= 0 {
		return "print " + w.expression(1)
	}
	switch w.IntN(16) {
	case 0:
		return fmt.Sprintf("if (%s) { %s } else { %s }", w.expression(2), w.statement(depth-1), w.statement(depth-1))
	case 1:
		w.loops++
		number := w.loops // before there are loops within
		return fmt.Sprintf("for (i%d = 0; i%[1]d < %d; i%[1]d++) { %[3]s; if (%[4]s) %[5]s }", number, 1+w.IntN(3),
			w.statement(depth-1), w.expression(1), w.pick("break", "continue"))
	case 2:
		return fmt.Sprintf("for (k in a) { %s }", w.statement(depth-1))
	case 3:
		return fmt.Sprintf("delete a[%s]", w.expression(1))
	case 4:
		return fmt.Sprintf("printf(%s, %s, %s); print \"\"", w.format(), w.expression(1), w.expression(1))
	case 5:
		return fmt.Sprintf("n = split(%s, s, %s); print n, s[1], s[n]", w.expression(1), w.separator())
	case 6:
		return fmt.Sprintf("%s; print NF, $0", w.pick("$2 = ", "$1 = ", "$(NF+1) = ", "$0 = ", "NF = 2 + !")+"("+w.expression(1)+")")
	case 7:
		return fmt.Sprintf("%s = %s; print (%s)", w.pick("x", "y", "a[1]", "a[x]"), w.expression(2), w.expression(1))
	case 8:
		return fmt.Sprintf("switch (%s) { case 1: print \"one\"; case \"a\": print \"A\"; break; case /b/: print \"B\"; break; default: %s }",
			w.expression(1), w.statement(depth-1))
	case 9:
		// A new element is text in gawk and has no value elsewhere. So give it a value.
		return fmt.Sprintf("a[1] = a[1] \"\"; n = %s(/%s/, %s, %s); print n, %[4]s", w.pick("sub", "gsub"), w.regex(),
			w.replacement(), w.pick("x", "$0", "$2", "a[1]"))
	case 10:
		return fmt.Sprintf("print match(%s, /%s/, s), RSTART, RLENGTH, s[0], s[1]", w.expression(1), w.regex())
	case 12:
		return fmt.Sprintf("n = %s(a, s); print n, s[1], s[n]", w.pick("asort", "asorti"))
	case 11:
		// After a field, gawk treats the rest as a separate text: ^ and \< match at its start. The
		// manual does not say this, and FPAT works differently.
		return fmt.Sprintf("n = patsplit(%s, s, /%s/, p); print n, s[1], p[0], p[n]", w.expression(1),
			w.pick("a", "[a-c]+", "[0-9]*", "a|b1", ".", "(ab)+", "[^ ]+"))
	}
	return fmt.Sprintf("print %s, (%s), %s", w.operand(1), w.expression(depth), w.operand(1))
}

// expression returns an expression. Some have parentheses that show the precedence, others have
// none.
func (w *author) expression(depth int) string {
	if depth <= 0 {
		return w.leaf()
	}
	one, other := w.operand(depth-1), w.operand(depth-1)
	switch w.IntN(14) {
	case 0, 1:
		return fmt.Sprintf("%s %s %s", one, w.pick("+", "-", "*", "/", "%"), other)
	case 2:
		return fmt.Sprintf("%s %s %s", one, w.pick("==", "!=", "<", "<=", ">="), other)
	case 3:
		return fmt.Sprintf("(%s %s %s)", one, w.pick("==", "<", ">"), other)
	case 4, 5:
		return one + " " + other
	case 6:
		return fmt.Sprintf("%s ? %s : %s", one, other, w.operand(depth-1))
	case 7:
		return fmt.Sprintf("%s %s %s", one, w.pick("&&", "||"), other)
	case 8:
		return fmt.Sprintf("%s %s /%s/", one, w.pick("~", "!~"), w.regex())
	case 9:
		return fmt.Sprintf("(%s) in a", one)
	case 10:
		return w.pick("!", "-", "+") + one
	case 11:
		return fmt.Sprintf("(%s %s %s)", w.pick("x", "y", "a[2]", "$1"), w.pick("=", "+=", "-=", "*=", "%="), other)
	}
	return w.call(one, other)
}

// operand returns an expression that may stand next to an operator.
func (w *author) operand(depth int) string {
	if depth > 0 || w.IntN(3) == 0 {
		return "(" + w.expression(depth) + ")"
	}
	return w.leaf()
}

// leaf returns an expression without parts. It makes an array element text or a number, because
// gawk 5.2 treats an element without a value as text after it was printed.
func (w *author) leaf() string {
	return w.pick("0", "1", "2", "-1", "10", "0.1", "1e3", "3.0", "100000", "1e6", "123456789", "0x11", "011", "1e300",
		`""`, `"a"`, `"abc"`, `"10"`, `"3x"`, `" 4 "`, `"+5"`, `"0x1A"`, `".5."`, `"a b  c"`, `"é1"`, `"\t"`, `"a,b"`, `"aXbX"`,
		"x", "y", "u", `(a[1] "")`, "(a[x] + 0)", `(a["k"] "")`, "$0", "$1", "$2", "$NF", "$(1)", "NF", "NR", "FNR", "x++", "--y", "length", "/a/", "RT")
}

// call is a call of a function.
func (w *author) call(one, other string) string {
	if w.calls != "" && w.IntN(3) == 0 {
		// A variable without a value could become an array in the function, and gawk then confuses
		// the two.
		if name := w.calls[w.IntN(len(w.calls))]; name == 'f' {
			return fmt.Sprintf("f(%s \"\", %s + 0)", one, other)
		}
		return fmt.Sprintf("g(a, %s \"\")", one)
	}
	switch w.IntN(16) {
	case 0:
		return fmt.Sprintf("length(%s)", one)
	case 1:
		return fmt.Sprintf("substr(%s, %s)", one, other)
	case 2:
		return fmt.Sprintf("substr(%s, %s, %s)", one, other, w.leaf())
	case 3:
		return fmt.Sprintf("index(%s, %s)", one, other)
	case 4:
		return fmt.Sprintf("%s(%s)", w.pick("toupper", "tolower"), one)
	case 5:
		return fmt.Sprintf("int(%s)", one)
	case 6:
		return fmt.Sprintf("sprintf(%s, %s, %s)", w.format(), one, other)
	case 7:
		// Make the target text, because gawk would return a number that it has freed.
		return fmt.Sprintf("gensub(/%s/, %s, %s, %s \"\")", w.regex(), w.replacement(), w.pick(`"g"`, "1", "2"), one)
	case 8:
		return fmt.Sprintf("strtonum(%s)", one)
	case 9:
		return fmt.Sprintf("typeof(%s)", w.pick("x", "u", "$1", "1", `"a"`, "a", "@/a/"))
	case 10:
		return fmt.Sprintf("%s(%s, %s)", w.pick("and", "or", "xor"), w.pick("5", "12", "x*x"), w.pick("3", "6", "255"))
	case 11:
		return fmt.Sprintf("%s(%s %% 8, 2)", w.pick("lshift", "rshift"), w.pick("5", "13", "NR"))
	case 12:
		return fmt.Sprintf("match(%s, /%s/)", one, w.regex())
	case 13:
		return fmt.Sprintf("split(%s, s, %s)", one, w.separator())
	case 14:
		return fmt.Sprintf("sprintf(\"%%.4f\", %s(%s %% 7))", w.pick("sin", "cos", "exp"), one)
	}
	return fmt.Sprintf("toupper(substr(%s, 2))", one)
}

// format returns a format with two values.
func (w *author) format() string {
	var b strings.Builder
	b.WriteByte('"')
	for range 2 {
		b.WriteString(w.pick("", "<", "%%") + "%" + w.pick("", "", "-", "0", "+", " ", "#") + w.pick("", "", "5", "8", "12") +
			w.pick("", "", ".0", ".2", ".5") + w.pick("d", "i", "s", "f", "g", "e", "x", "o", "c", "u", "X", "G") + w.pick("", ">", "|"))
	}
	b.WriteByte('"')
	return b.String()
}

// separator returns the third argument of split.
func (w *author) separator() string {
	if w.paragraphs {
		return w.pick(`" "`, `","`, `""`) // gawk drops an empty last field after an expression, but not always
	}
	return w.pick(`" "`, `","`, `""`, `/[ab]/`, `"b"`, `"."`, `/ /`, `"[0-9]"`, `/a*/`, `"|"`)
}

// regex returns a regular expression.
func (w *author) regex() string {
	atom := func() string {
		return w.pick("a", "b", "1", ".", "[a-c]", "[^a]", "[[:digit:]]", "(a|b)", "(ab)", `\.`, "x", "[]a]", `\y`, `\w`, `\<a`)
	}
	s := w.pick("", "", "", "^") + atom()
	for range w.IntN(3) {
		s += w.pick("", "*", "+", "?", "{1,2}") + w.pick("", "|") + atom()
	}
	return s + w.pick("", "", "*", "+", "$")
}

// replacement returns the second argument of sub.
func (w *author) replacement() string {
	return w.pick(`"<&>"`, `"X"`, `""`, `"\\&"`, `"&&"`, `"[\\0]"`, `"\\\\&"`, "x", "$2")
}

// text returns an input.
func (w *author) text() string {
	var b strings.Builder
	for range 1 + w.IntN(5) {
		for i := range w.IntN(5) {
			if i > 0 {
				b.WriteString(w.pick(" ", " ", "  ", "\t", ",", ";"))
			}
			b.WriteString(w.pick("a", "b", "ab", "aab", "Abc", "1", "10", "2.50", "-3", "+4", "1e2", "0x1F", "007", "nan", "inf", "é",
				"a.b", "", "1x", "foo", "100000000", ".5"))
		}
		b.WriteString(w.pick("\n", "\n", "\n", "\n\n", " \n"))
	}
	return b.String()
}

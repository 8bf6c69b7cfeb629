package interp

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Arithmetic is evaluated from text, as in bash. The value of each $… is put into the expression
// before it is parsed, so that after x='1+2', $x*2 is five. The syntax tree of the shell's parser
// is used only to find the expansions; see arithTemplate.

// maxArith is the deepest allowed nesting of an expression, including variables that hold
// expressions.
const maxArith = 1024

// arithError is a message for the user.
type arithError struct{ text string }

func (e arithError) Error() string { return e.text }

// arith evaluates an expression of $((…)), a subscript or a slice. When it returns false, it has
// written a message.
func (r *runner) arith(x syntax.ArithmExpr) (int64, bool) { return r.arithNamed("", x) }

// arithNamed is arith for a command. Messages begin with the command's name.
func (r *runner) arithNamed(name string, x syntax.ArithmExpr) (int64, bool) {
	s, ok := r.arithSource(x, name == "let")
	if !ok {
		return 0, false
	}
	return r.evalText(name, s)
}

// arithText evaluates an expression given as text.
func (r *runner) arithText(s string) (int64, bool) { return r.evalText("", s) }

func (r *runner) evalText(name, s string) (int64, bool) {
	if n, ok := plainNumber(s); ok {
		return n, true
	}
	n, err := r.evalExpr(s, 0)
	if err == nil {
		return n, true
	}
	if ae, ok := err.(arithError); ok && r.flow == flowNone {
		if name != "" {
			name += ": "
		}
		r.errorf("%s%s", name, ae.text)
	}
	return 0, false
}

// plainNumber reads a decimal number without a leading zero.
func plainNumber(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	i, neg := 0, false
	if s[0] == '-' {
		if i, neg = 1, true; len(s) == 1 {
			return 0, false
		}
	}
	if s[i] == '0' && len(s) > i+1 {
		return 0, false
	}
	n := int64(0)
	for ; i < len(s); i++ {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	if neg {
		n = -n
	}
	return n, true
}

// The tokens of an expression: single characters stand for themselves.
const (
	tokEnd = 0
	tokNum = 256 + iota
	tokStr
	tokEqEq
	tokNeq
	tokLeq
	tokGeq
	tokLand
	tokLor
	tokShl
	tokShr
	tokPower
	tokPreInc
	tokPreDec
	tokPostInc
	tokPostDec
	tokOpAssign
)

// expression is an evaluation in progress.
type expression struct {
	r     *runner
	s     string
	pos   int
	tok   int
	last  int // the token before
	start int // where tok begins
	op    int // the operator of tokOpAssign
	num   int64
	name  string // the variable or element of tokStr
	noop  int    // > 0 where values are not needed
	depth int
	nest  int
}

// errFlow is returned when the shell must stop. A message has been written.
var errFlow = arithError{"interrupted"}

// evalExpr evaluates text.
func (r *runner) evalExpr(s string, depth int) (n int64, err error) {
	if n, ok := plainNumber(s); ok {
		return n, nil
	}
	e := expression{r: r, s: s, depth: depth}
	if depth > maxArith {
		return 0, e.fail("expression recursion level exceeded")
	}
	if !r.step() {
		return 0, errFlow
	}
	if err = e.next(); err != nil {
		return 0, err
	}
	if e.tok == tokEnd {
		return 0, nil
	}
	if n, err = e.comma(); err != nil {
		return 0, err
	}
	if e.tok != tokEnd {
		return 0, e.fail("syntax error in expression")
	}
	return n, nil
}

func (e *expression) fail(msg string) error {
	token := ""
	if e.start < len(e.s) {
		token = e.s[e.start:]
	}
	return arithError{strings.TrimLeft(e.s, " \t") + ": " + msg + ` (error token is "` + token + `")`}
}

func isIdentStart(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// next reads a token.
func (e *expression) next() error {
	e.last = e.tok
	s, i := e.s, e.pos
	for i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r') {
		i++
	}
	e.start = i
	if i >= len(s) {
		e.pos, e.tok = i, tokEnd
		return nil
	}
	c := s[i]
	c1 := byte(0)
	if i+1 < len(s) {
		c1 = s[i+1]
	}
	switch {
	case isIdentStart(c):
		return e.nameToken(i)
	case isDigit(c):
		return e.numberToken(i)
	}
	if taken, err := e.longOperator(c, c1, i); taken || err != nil {
		return err
	}
	if strings.IndexByte("=><+-*/%!()&|^~?:,", c) < 0 {
		if e.tok == tokEnd || e.tok < 256 && e.tok != ')' || e.tok >= tokEqEq && e.tok != tokPostInc && e.tok != tokPostDec {
			return e.fail("syntax error: operand expected")
		}
		return e.fail("syntax error: invalid arithmetic operator")
	}
	e.tok, e.pos = int(c), i+1
	return nil
}

// nameToken reads a variable's name at i, with its subscript.
func (e *expression) nameToken(i int) error {
	s := e.s
	for i < len(s) && (isIdentStart(s[i]) || isDigit(s[i])) {
		i++
	}
	if i < len(s) && s[i] == '[' {
		end := skipSubscript(s, i)
		if end < 0 {
			return e.fail("bad array subscript")
		}
		i = end
	}
	e.name, e.tok, e.pos = s[e.start:i], tokStr, i
	return nil
}

// numberToken reads a number at i.
func (e *expression) numberToken(i int) error {
	s := e.s
	for i < len(s) && (isIdentStart(s[i]) || isDigit(s[i]) || s[i] == '#' || s[i] == '@') {
		i++
	}
	e.pos, e.tok = i, tokNum
	n, msg := parseNumber(s[e.start:i])
	if msg != "" {
		return e.fail(msg)
	}
	e.num = n
	return nil
}

// longOperator reads an operator of two characters, c and c1, or of three characters at i. taken is
// false when there is no such operator.
func (e *expression) longOperator(c, c1 byte, i int) (taken bool, err error) {
	s, two := e.s, 0
	switch string([]byte{c, c1}) {
	case "==":
		two = tokEqEq
	case "!=":
		two = tokNeq
	case "<=":
		two = tokLeq
	case ">=":
		two = tokGeq
	case "&&":
		two = tokLand
	case "||":
		two = tokLor
	case "<<", ">>":
		if i+2 < len(s) && s[i+2] == '=' {
			e.tok, e.op, e.pos = tokOpAssign, tokShl, i+3
			if c == '>' {
				e.op = tokShr
			}
			return true, nil
		}
		if two = tokShl; c == '>' {
			two = tokShr
		}
	case "**":
		two = tokPower
	case "++", "--":
		inc := c == '+'
		switch {
		case e.tok == tokStr:
			if two = tokPostDec; inc {
				two = tokPostInc
			}
		case e.tok == tokNum && (e.last == tokPreInc || e.last == tokPreDec):
			return false, e.fail(string([]byte{c, c1}) + ": assignment requires lvalue")
		default:
			j := i + 2
			for j < len(s) && (s[j] == ' ' || s[j] == '\t' || s[j] == '\n') {
				j++
			}
			if j < len(s) && isIdentStart(s[j]) {
				if two = tokPreDec; inc {
					two = tokPreInc
				}
			}
		}
	default:
		if c1 == '=' && strings.IndexByte("*/%+-&^|", c) >= 0 {
			e.tok, e.op, e.pos = tokOpAssign, int(c), i+2
			return true, nil
		}
	}
	if two == 0 {
		return false, nil
	}
	e.tok, e.pos = two, i+2
	return true, nil
}

// skipSubscript returns the end of the subscript that begins at i, or -1 when it does not end.
func skipSubscript(s string, i int) int {
	depth := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '\'', '"':
			if j := strings.IndexByte(s[i+1:], s[i]); j >= 0 {
				i += j + 1
			}
		case '[':
			depth++
		case ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// deeper limits the depth of recursion of this evaluator.
func (e *expression) deeper() error {
	if e.nest++; e.nest > 4*maxArith || !e.r.step() {
		return e.fail("expression recursion level exceeded")
	}
	return nil
}

func (e *expression) comma() (int64, error) {
	for {
		n, err := e.assign()
		if err != nil || e.tok != ',' {
			return n, err
		}
		if err := e.next(); err != nil {
			return 0, err
		}
	}
}

func (e *expression) assign() (int64, error) {
	if err := e.deeper(); err != nil {
		return 0, err
	}
	defer func() { e.nest-- }()
	n, err := e.cond()
	if err != nil || e.tok != '=' && e.tok != tokOpAssign {
		return n, err
	}
	if e.last != tokStr {
		return 0, e.fail("attempted assignment to non-variable")
	}
	tok, op, name := e.tok, e.op, e.name
	at := e.start
	if err := e.next(); err != nil {
		return 0, err
	}
	if e.tok == tokEnd {
		e.start = at
		return 0, e.fail("syntax error: operand expected")
	}
	rhs, err := e.assign()
	if err != nil {
		return 0, err
	}
	if tok == tokOpAssign {
		if (op == '/' || op == '%') && rhs == 0 {
			if e.noop > 0 {
				rhs = 1
			} else {
				e.start = min(at+2, len(e.s))
				for e.start < len(e.s) && e.s[e.start] == ' ' {
					e.start++
				}
				return 0, e.fail("division by 0")
			}
		}
		if rhs, err = e.compute(op, n, rhs); err != nil {
			return 0, err
		}
	}
	if e.noop == 0 {
		if err := e.bind(name, rhs); err != nil {
			return 0, err
		}
	}
	e.last = tokNum
	return rhs, nil
}

func (e *expression) cond() (int64, error) {
	c, err := e.binary(1)
	if err != nil || e.tok != '?' {
		return c, err
	}
	if err := e.deeper(); err != nil {
		return 0, err
	}
	defer func() { e.nest-- }()
	if err := e.next(); err != nil {
		return 0, err
	}
	if e.tok == tokEnd || e.tok == ':' {
		return 0, e.fail("expression expected")
	}
	if c == 0 {
		e.noop++
	}
	a, err := e.comma()
	if c == 0 {
		e.noop--
	}
	if err != nil {
		return 0, err
	}
	if e.tok != ':' {
		return 0, e.fail("`:' expected for conditional expression")
	}
	if err := e.next(); err != nil {
		return 0, err
	}
	if e.tok == tokEnd {
		return 0, e.fail("expression expected")
	}
	if c != 0 {
		e.noop++
	}
	b, err := e.cond()
	if c != 0 {
		e.noop--
	}
	if err != nil {
		return 0, err
	}
	e.last = ':' // a?b:c=d is no assignment
	if c != 0 {
		return a, nil
	}
	return b, nil
}

func precedence(tok int) int {
	switch tok {
	case tokLor:
		return 1
	case tokLand:
		return 2
	case '|':
		return 3
	case '^':
		return 4
	case '&':
		return 5
	case tokEqEq, tokNeq:
		return 6
	case '<', '>', tokLeq, tokGeq:
		return 7
	case tokShl, tokShr:
		return 8
	case '+', '-':
		return 9
	case '*', '/', '%':
		return 10
	case tokPower:
		return 11
	}
	return 0
}

// binary reads operators with at least the precedence least.
func (e *expression) binary(least int) (int64, error) {
	a, err := e.unary()
	if err != nil {
		return 0, err
	}
	for {
		op := e.tok
		p := precedence(op)
		if p < least || p == 0 {
			return a, nil
		}
		if err := e.next(); err != nil {
			return 0, err
		}
		skip := op == tokLand && a == 0 || op == tokLor && a != 0
		if skip {
			e.noop++
		}
		nextLeast := p + 1
		if op == tokPower {
			nextLeast = p
		}
		if err := e.deeper(); err != nil {
			return 0, err
		}
		at := e.start
		b, err := e.binary(nextLeast)
		e.nest--
		if skip {
			e.noop--
		}
		if err != nil {
			return 0, err
		}
		if (op == '/' || op == '%') && b == 0 {
			if e.noop == 0 {
				e.start = at
				return 0, e.fail("division by 0")
			}
			b = 1
		}
		if a, err = e.compute(op, a, b); err != nil {
			return 0, err
		}
		if e.last == tokStr {
			e.last = tokNum
		}
	}
}

func (e *expression) unary() (int64, error) {
	switch op := e.tok; op {
	case '!', '~', '-', '+':
		if err := e.next(); err != nil {
			return 0, err
		}
		if err := e.deeper(); err != nil {
			return 0, err
		}
		n, err := e.unary()
		e.nest--
		if err != nil {
			return 0, err
		}
		switch op {
		case '!':
			n = truth(n == 0)
		case '~':
			n = ^n
		case '-':
			n = -n
		}
		e.last = tokNum
		return n, nil
	}
	return e.primary()
}

func (e *expression) primary() (int64, error) {
	switch e.tok {
	case tokPreInc, tokPreDec:
		step := int64(1)
		if e.tok == tokPreDec {
			step = -1
		}
		if err := e.next(); err != nil {
			return 0, err
		}
		if e.tok != tokStr {
			return 0, e.fail("identifier expected after pre-increment or pre-decrement")
		}
		name := e.name
		n, err := e.value(name)
		if err != nil {
			return 0, err
		}
		n += step
		if e.noop == 0 {
			if err := e.bind(name, n); err != nil {
				return 0, err
			}
		}
		e.tok = tokNum // not assignable, and a ++ after it is not allowed
		return n, e.next()
	case '(':
		if err := e.next(); err != nil {
			return 0, err
		}
		n, err := e.comma()
		if err != nil {
			return 0, err
		}
		if e.tok != ')' {
			return 0, e.fail("missing `)'")
		}
		return n, e.next()
	case tokNum:
		n := e.num
		return n, e.next()
	case tokStr:
		name, at := e.name, e.start
		if err := e.next(); err != nil {
			return 0, err
		}
		if e.tok == '=' {
			e.name = name
			return 0, nil
		}
		tok, start := e.tok, e.start
		e.start = at
		n, err := e.value(name)
		if err != nil {
			return 0, err
		}
		e.start = start
		e.name = name
		if tok == tokPostInc || tok == tokPostDec {
			next := n + 1
			if tok == tokPostDec {
				next = n - 1
			}
			if e.noop == 0 {
				if err := e.bind(name, next); err != nil {
					return 0, err
				}
			}
			e.tok = tokNum
			return n, e.next()
		}
		return n, nil
	}
	return 0, e.fail("syntax error: operand expected")
}

// value evaluates a variable or an element.
func (e *expression) value(name string) (int64, error) {
	if e.noop > 0 {
		return 0, nil
	}
	r := e.r
	base, sub, isElem := cutSubscript(name)
	var s string
	var ok bool
	if isElem {
		if sub == "@" || sub == "*" {
			if v := r.lookup(base); v == nil || v.assoc == nil {
				l := v.list()
				s, ok = strings.Join(l, " "), true
				return r.evalExpr(s, e.depth+1)
			}
		}
		s, ok = r.arithElement(base, sub)
		if r.flow != flowNone {
			return 0, errFlow
		}
	} else {
		s, ok = r.get(name)
	}
	if !ok {
		if r.opts.nounset {
			r.errorf("%s: unbound variable", name)
			r.abortExpansion()
			return 0, errFlow
		}
		return 0, nil
	}
	if n, plain := plainNumber(s); plain {
		return n, nil
	}
	return r.evalExpr(s, e.depth+1)
}

// arithElement returns the value of an array element in an expression.
func (r *runner) arithElement(base, sub string) (string, bool) {
	v := r.lookup(base)
	if v != nil && v.assoc != nil {
		return v.assoc.get(r.expandSubscript(sub))
	}
	return r.elementOf(base, v, sub)
}

// expandSubscript expands the key of an associative array, where the key comes from an expression
// or from a name given to a builtin.
func (r *runner) expandSubscript(sub string) string {
	if !strings.ContainsAny(sub, "$`\"'\\") {
		return sub
	}
	return r.expandString(sub)
}

// bind assigns the result of an expression.
func (e *expression) bind(name string, n int64) error {
	base, sub, isElem := cutSubscript(name)
	ok := false
	if isElem {
		if v := e.r.lookup(base); v != nil && v.assoc != nil {
			sub = e.r.expandSubscript(sub)
		}
		ok = e.r.setElem(base, sub, itoa64(n), false)
	} else {
		ok = e.r.set(name, itoa64(n))
	}
	if !ok {
		return errSilent
	}
	return nil
}

// errSilent is a failure whose message has already been written.
var errSilent error = silentError{}

type silentError struct{}

func (silentError) Error() string { return "failed" }

// compute applies an operator.
func (e *expression) compute(op int, a, b int64) (int64, error) {
	switch op {
	case '+':
		return a + b, nil
	case '-':
		return a - b, nil
	case '*':
		return a * b, nil
	case '/', '%':
		if b == -1 { // the negation of the smallest number overflows
			if op == '%' {
				return 0, nil
			}
			return -a, nil
		}
		if op == '/' {
			return a / b, nil
		}
		return a % b, nil
	case tokPower:
		if b < 0 {
			if e.noop > 0 {
				return 0, nil
			}
			return 0, e.fail("exponent less than 0")
		}
		return power(a, b), nil
	case '&':
		return a & b, nil
	case '|':
		return a | b, nil
	case '^':
		return a ^ b, nil
	case tokShl:
		return a << (uint64(b) & 63), nil
	case tokShr:
		return a >> (uint64(b) & 63), nil
	case tokEqEq:
		return truth(a == b), nil
	case tokNeq:
		return truth(a != b), nil
	case '<':
		return truth(a < b), nil
	case '>':
		return truth(a > b), nil
	case tokLeq:
		return truth(a <= b), nil
	case tokGeq:
		return truth(a >= b), nil
	case tokLand:
		return truth(a != 0 && b != 0), nil
	case tokLor:
		return truth(a != 0 || b != 0), nil
	}
	return 0, e.fail("bug: bad expassign token")
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// power computes a power. It wraps around, as in bash.
func power(a, b int64) int64 {
	out := int64(1)
	for ; b > 0; b >>= 1 {
		if b&1 != 0 {
			out *= a
		}
		a *= a
	}
	return out
}

// parseNumber reads 10, 0x1f, 017 and 2#101. It wraps around as in bash. msg says what is wrong.
func parseNumber(s string) (n int64, msg string) {
	base := int64(10)
	if s != "" && s[0] == '0' {
		if len(s) == 1 {
			return 0, ""
		}
		if s[1] == 'x' || s[1] == 'X' {
			base, s = 16, s[2:]
			if s == "" {
				return 0, ""
			}
		} else {
			base, s = 8, s[1:]
		}
	}
	found := false
	for i := range len(s) {
		c := s[i]
		if c == '#' {
			if n < 2 || n > 64 || found || base != 10 {
				if base == 10 && !found {
					return 0, "invalid arithmetic base"
				}
				return 0, "invalid number"
			}
			base, n, found = n, 0, true
			if i+1 == len(s) {
				return 0, "invalid integer constant"
			}
			continue
		}
		d := digit(c, int(base))
		if d < 0 {
			break
		}
		if int64(d) >= base {
			return 0, "value too great for base"
		}
		n = n*base + int64(d)
	}
	return n, ""
}

func digit(c byte, base int) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'z':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'Z':
		if base <= 36 {
			return int(c-'A') + 10
		}
		return int(c-'A') + 36
	case c == '@':
		return 62
	case c == '_':
		return 63
	}
	return -1
}

func itoa64(n int64) string { return strconv.FormatInt(n, 10) }

package sh

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxArith is how deep an expression may be nested, variables that hold
// expressions included.
const maxArith = 1024

// arithError is a message for the user.
type arithError struct{ text string }

func (e arithError) Error() string { return e.text }

// arith evaluates an expression. On failure a message was written.
func (r *runner) arith(x syntax.ArithmExpr) (int64, bool) {
	n, err := r.eval(x, 0)
	if err != nil {
		if r.flow == flowNone {
			r.errorf("%s", err)
		}
		return 0, false
	}
	return n, true
}

// arithText evaluates an expression given as text.
func (r *runner) arithText(s string) (int64, bool) {
	n, err := r.evalText(s, 0)
	if err != nil {
		r.errorf("%s", err)
		return 0, false
	}
	return n, true
}

func (r *runner) evalText(s string, depth int) (int64, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, nil
	}
	if n, err := parseNumber(s); err == nil {
		return n, nil
	}
	if depth > maxArith {
		return 0, arithError{s + ": expression recursion level exceeded"}
	}
	x, err := parseArith(s)
	if errors.Is(err, errTooDeep) || errors.Is(err, errTooLong) {
		return 0, arithError{err.Error()}
	}
	if err != nil {
		return 0, arithError{fmt.Sprintf("%s: syntax error in expression (error token is \"%s\")", s, s)}
	}
	if x == nil {
		return 0, nil
	}
	return r.eval(x, depth+1)
}

// parseNumber reads 10, 0x1f, 017 and 2#101.
func parseNumber(s string) (int64, error) {
	base, digits, has := strings.Cut(s, "#")
	if !has {
		if s != "" && (s[0] < '0' || s[0] > '9') {
			return 0, strconv.ErrSyntax
		}
		if strings.ContainsAny(s, "_bBoO") && !strings.HasPrefix(s, "0x") && !strings.HasPrefix(s, "0X") {
			return 0, strconv.ErrSyntax
		}
		n, err := strconv.ParseInt(s, 0, 64)
		if errors.Is(err, strconv.ErrRange) {
			u, uerr := strconv.ParseUint(s, 0, 64)
			return int64(u), uerr
		}
		return n, err
	}
	b, err := strconv.Atoi(base)
	if err != nil || b < 2 || b > 64 || digits == "" {
		return 0, strconv.ErrSyntax
	}
	var n int64
	for _, c := range digits {
		d := digit(c, b)
		if d < 0 || d >= b {
			return 0, strconv.ErrSyntax
		}
		n = n*int64(b) + int64(d)
	}
	return n, nil
}

func digit(c rune, base int) int {
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

// eval evaluates a parsed expression.
func (r *runner) eval(x syntax.ArithmExpr, depth int) (int64, error) {
	if depth > maxArith {
		return 0, arithError{"expression recursion level exceeded"}
	}
	if !r.step() {
		return 0, arithError{"interrupted"}
	}
	switch x := x.(type) {
	case nil:
		return 0, nil
	case *syntax.Word:
		return r.evalWord(x, depth)
	case *syntax.ParenArithm:
		return r.eval(x.X, depth+1)
	case *syntax.UnaryArithm:
		return r.evalUnary(x, depth)
	case *syntax.BinaryArithm:
		return r.evalBinary(x, depth)
	}
	return 0, arithError{"this kind of expression is not supported"}
}

// evalWord evaluates a number, a variable or an expansion.
func (r *runner) evalWord(w *syntax.Word, depth int) (int64, error) {
	if l := w.Lit(); l != "" {
		if isName(l) {
			s, ok := r.get(l)
			if !ok && r.opts.nounset {
				r.errorf("%s: unbound variable", l)
				r.abortExpansion()
				return 0, arithError{"unbound variable"}
			}
			return r.evalText(s, depth+1)
		}
		n, err := parseNumber(l)
		if err == nil {
			return n, nil
		}
		return 0, arithError{numberError(l)}
	}
	if len(w.Parts) == 1 {
		if pe, ok := w.Parts[0].(*syntax.ParamExp); ok && !pe.Dollar.IsValid() && pe.Index != nil {
			v := r.paramValue(pe.Param.Value, pe.Index)
			return r.evalText(v.s, depth+1)
		}
	}
	s := r.text(w)
	if r.flow != flowNone {
		return 0, arithError{"expansion failed"}
	}
	return r.evalText(s, depth+1)
}

func numberError(l string) string {
	switch {
	case strings.HasPrefix(l, "0") && !strings.HasPrefix(l, "0x") && strings.Trim(l, "0123456789") == "":
		return fmt.Sprintf("%s: value too great for base (error token is \"%s\")", l, l)
	case l != "" && l[0] >= '0' && l[0] <= '9':
		return fmt.Sprintf("%s: value too great for base (error token is \"%s\")", l, l)
	}
	return fmt.Sprintf("%s: syntax error: operand expected (error token is \"%s\")", l, l)
}

func (r *runner) evalUnary(x *syntax.UnaryArithm, depth int) (int64, error) {
	if x.Op == syntax.Inc || x.Op == syntax.Dec {
		old, err := r.eval(x.X, depth+1)
		if err != nil {
			return 0, err
		}
		next := old + 1
		if x.Op == syntax.Dec {
			next = old - 1
		}
		if err := r.evalAssign(x.X, next); err != nil {
			return 0, err
		}
		if x.Post {
			return old, nil
		}
		return next, nil
	}
	n, err := r.eval(x.X, depth+1)
	if err != nil {
		return 0, err
	}
	switch x.Op {
	case syntax.Not:
		return truth(n == 0), nil
	case syntax.BitNegation:
		return ^n, nil
	case syntax.Minus:
		return -n, nil
	}
	return n, nil
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// evalAssign stores a value in the variable or element that x names.
func (r *runner) evalAssign(x syntax.ArithmExpr, n int64) error {
	w, ok := x.(*syntax.Word)
	if ok {
		if l := w.Lit(); isName(l) {
			if !r.set(l, itoa64(n)) {
				return arithError{"assignment failed"}
			}
			return nil
		}
		if len(w.Parts) == 1 {
			if pe, ok := w.Parts[0].(*syntax.ParamExp); ok && pe.Index != nil && !pe.Dollar.IsValid() {
				name := pe.Param.Value
				if !r.setElem(name, r.index(name, pe.Index), itoa64(n), false) {
					return arithError{"assignment failed"}
				}
				return nil
			}
		}
	}
	return arithError{"attempted assignment to non-variable"}
}

// assignOps are the operators that assign, and what they compute first.
var assignOps = map[syntax.BinAritOperator]syntax.BinAritOperator{
	syntax.AddAssgn: syntax.Add, syntax.SubAssgn: syntax.Sub, syntax.MulAssgn: syntax.Mul, syntax.QuoAssgn: syntax.Quo,
	syntax.RemAssgn: syntax.Rem, syntax.AndAssgn: syntax.And, syntax.OrAssgn: syntax.Or, syntax.XorAssgn: syntax.Xor,
	syntax.ShlAssgn: syntax.Shl, syntax.ShrAssgn: syntax.Shr,
}

func (r *runner) evalBinary(x *syntax.BinaryArithm, depth int) (int64, error) {
	if x.Op == syntax.Assgn || assignOps[x.Op] != 0 {
		y, err := r.eval(x.Y, depth+1)
		if err != nil {
			return 0, err
		}
		if op := assignOps[x.Op]; op != 0 {
			old, err := r.eval(x.X, depth+1)
			if err != nil {
				return 0, err
			}
			if y, err = compute(op, old, y); err != nil {
				return 0, err
			}
		}
		return y, r.evalAssign(x.X, y)
	}
	a, err := r.eval(x.X, depth+1)
	if err != nil {
		return 0, err
	}
	switch x.Op {
	case syntax.AndArit, syntax.OrArit:
		if (a != 0) == (x.Op == syntax.OrArit) {
			return truth(a != 0), nil
		}
		b, err := r.eval(x.Y, depth+1)
		return truth(b != 0), err
	case syntax.TernQuest:
		arms, ok := x.Y.(*syntax.BinaryArithm)
		if !ok {
			return 0, arithError{"`:' expected for conditional expression"}
		}
		if a != 0 {
			return r.eval(arms.X, depth+1)
		}
		return r.eval(arms.Y, depth+1)
	}
	b, err := r.eval(x.Y, depth+1)
	if err != nil {
		return 0, err
	}
	return compute(x.Op, a, b)
}

// compute applies a plain operator.
func compute(op syntax.BinAritOperator, a, b int64) (int64, error) {
	switch op {
	case syntax.Add:
		return a + b, nil
	case syntax.Sub:
		return a - b, nil
	case syntax.Mul:
		return a * b, nil
	case syntax.Quo, syntax.Rem:
		if b == 0 {
			return 0, arithError{`division by 0 (error token is "0")`}
		}
		if b == -1 { // the smallest number has no opposite
			if op == syntax.Rem {
				return 0, nil
			}
			return -a, nil
		}
		if op == syntax.Quo {
			return a / b, nil
		}
		return a % b, nil
	case syntax.Pow:
		if b < 0 {
			return 0, arithError{"exponent less than 0"}
		}
		return power(a, b), nil
	case syntax.And:
		return a & b, nil
	case syntax.Or:
		return a | b, nil
	case syntax.Xor:
		return a ^ b, nil
	case syntax.Shl:
		return a << (uint64(b) & 63), nil
	case syntax.Shr:
		return a >> (uint64(b) & 63), nil
	case syntax.Eql:
		return truth(a == b), nil
	case syntax.Neq:
		return truth(a != b), nil
	case syntax.Lss:
		return truth(a < b), nil
	case syntax.Gtr:
		return truth(a > b), nil
	case syntax.Leq:
		return truth(a <= b), nil
	case syntax.Geq:
		return truth(a >= b), nil
	case syntax.Comma:
		return b, nil
	}
	return 0, arithError{op.String() + ": operator not supported"}
}

// power multiplies with the wrap-around that bash has.
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

func itoa(n int) string     { return strconv.Itoa(n) }
func itoa64(n int64) string { return strconv.FormatInt(n, 10) }

package eval

import (
	"math"
	"strings"

	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// unary compiles ! - and +.
func (c *compiler) unary(x *syntax.Unary) code {
	operand := c.expr(x.X)
	switch x.Op {
	case syntax.OpNot:
		return ofCond(func(m *machine) bool { return !operand.cond(m) })
	case syntax.OpNegate:
		if n, ok := x.X.(*syntax.Num); ok {
			return constant(number(-n.Value))
		}
		return ofNum(func(m *machine) float64 { return -operand.num(m) })
	}
	return ofNum(operand.num)
}

// comparisons say, for each operator, for which orders it is true.
var comparisons = map[syntax.BinaryOp]func(order int) bool{
	syntax.OpLess:         func(o int) bool { return o == -1 },
	syntax.OpLessEqual:    func(o int) bool { return o == -1 || o == 0 },
	syntax.OpEqual:        func(o int) bool { return o == 0 },
	syntax.OpNotEqual:     func(o int) bool { return o != 0 },
	syntax.OpGreater:      func(o int) bool { return o == 1 },
	syntax.OpGreaterEqual: func(o int) bool { return o == 1 || o == 0 },
}

// unordered is the order of a comparison with NaN.
const unordered = 2

func orderNumbers(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	}
	return unordered
}

// order compares two values. It compares them as numbers if both are numbers or look like numbers,
// otherwise as strings.
func (m *machine) order(a, b value) int {
	if a.k == kindNumber && b.k == kindNumber {
		return orderNumbers(a.n, b.n)
	}
	a, b = a.settled(), b.settled()
	if a.numeric() && b.numeric() {
		return orderNumbers(a.n, b.n)
	}
	s, t := m.str(a), m.str(b)
	if m.ignoreCase {
		return foldOrder(s, t)
	}
	return strings.Compare(s, t)
}

// foldOrder compares texts without regard to case.
func foldOrder(s, t string) int {
	if strings.EqualFold(s, t) {
		return 0
	}
	return strings.Compare(strings.ToLower(s), strings.ToLower(t))
}

// binary compiles an operator between two operands.
func (c *compiler) binary(x *syntax.Binary) code {
	switch x.Op {
	case syntax.OpMatch, syntax.OpNoMatch:
		return c.match(x)
	}
	l, r := c.expr(x.L), c.expr(x.R)
	switch x.Op {
	case syntax.OpAnd:
		return ofCond(func(m *machine) bool { return l.cond(m) && r.cond(m) })
	case syntax.OpOr:
		return ofCond(func(m *machine) bool { return l.cond(m) || r.cond(m) })
	}
	if test := comparisons[x.Op]; test != nil {
		return compare(x.Op, test, l, r)
	}
	return arithmetic(x.Op, l, r)
}

// compare compiles a comparison.
func compare(op syntax.BinaryOp, test func(int) bool, l, r code) code {
	if l.isNum && r.isNum {
		switch op {
		case syntax.OpLess:
			return ofCond(func(m *machine) bool { a := l.num(m); return a < r.num(m) })
		case syntax.OpEqual:
			return ofCond(func(m *machine) bool { a := l.num(m); return a == r.num(m) })
		}
	}
	return ofCond(func(m *machine) bool {
		a := l.val(m)
		b := r.val(m)
		return test(m.order(a, b))
	})
}

// arithmetic compiles + - * / % and ^.
func arithmetic(op syntax.BinaryOp, l, r code) code {
	switch op {
	case syntax.OpAdd:
		return ofNum(func(m *machine) float64 { a := l.num(m); return a + r.num(m) })
	case syntax.OpSub:
		return ofNum(func(m *machine) float64 { a := l.num(m); return a - r.num(m) })
	case syntax.OpMul:
		return ofNum(func(m *machine) float64 { a := l.num(m); return a * r.num(m) })
	}
	return ofNum(func(m *machine) float64 {
		a := l.num(m)
		return m.calculate(op, a, r.num(m))
	})
}

// calculate does arithmetic on two numbers.
func (m *machine) calculate(op syntax.BinaryOp, a, b float64) float64 {
	switch op {
	case syntax.OpAdd:
		return a + b
	case syntax.OpSub:
		return a - b
	case syntax.OpMul:
		return a * b
	case syntax.OpDiv:
		if b == 0 {
			m.fatal("division by zero attempted")
		}
		return a / b
	case syntax.OpMod:
		if b == 0 {
			m.fatal("division by zero attempted in `%%'")
		}
		return remainder(a, b)
	}
	return power(a, b)
}

// remainder returns the remainder of a/b with the sign of a. It has a fast way for whole numbers.
func remainder(a, b float64) float64 {
	if x, y := int64(a), int64(b); float64(x) == a && float64(y) == b && y != 0 &&
		x > -maxExact && y > -maxExact {
		return math.Copysign(float64(x%y), a)
	}
	return math.Mod(a, b)
}

// power computes a power. For small whole exponents it multiplies, which is exact as long as the
// result fits.
func power(a, b float64) float64 {
	if b < 0 || b > 1024 || b != math.Trunc(b) {
		return math.Pow(a, b)
	}
	result := 1.0
	for n := int(b); n > 0; n >>= 1 {
		if n&1 == 1 {
			result *= a
		}
		a *= a
	}
	return result
}

// match compiles ~ and !~.
func (c *compiler) match(x *syntax.Binary) code {
	s := c.expr(x.L).str
	p := c.pattern(x.R)
	want := x.Op == syntax.OpMatch
	return ofCond(func(m *machine) bool {
		t := s(m)
		return m.matches(p.get(m), t) == want
	})
}

// cond compiles a choice.
func (c *compiler) cond(x *syntax.Cond) code {
	test, then, other := c.expr(x.If).cond, c.expr(x.Then), c.expr(x.Else)
	if then.isNum && other.isNum {
		return ofNum(func(m *machine) float64 {
			if test(m) {
				return then.num(m)
			}
			return other.num(m)
		})
	}
	return ofVal(func(m *machine) value {
		if test(m) {
			return then.val(m)
		}
		return other.val(m)
	})
}

// concat compiles concatenation.
func (c *compiler) concat(x *syntax.Concat) code {
	parts := c.exprs(x.Parts)
	if len(parts) == 2 {
		a, b := parts[0], parts[1]
		return ofStr(func(m *machine) string {
			v := a.val(m)
			w := b.val(m)
			return m.join(v, w)
		})
	}
	return ofStr(func(m *machine) string {
		from := len(m.values)
		for i := range parts {
			v := parts[i].val(m)
			m.values = append(m.values, v)
		}
		s := m.joinAll(m.values[from:])
		m.values = m.values[:from]
		return s
	})
}

// join concatenates two strings.
func (m *machine) join(v, w value) string {
	if v.k != kindNumber && w.k != kindNumber && len(v.s)+len(w.s) < bigText {
		return v.s + w.s
	}
	if v.k != kindNumber && len(v.s) >= bigText {
		return m.growText(v.s, w)
	}
	var room [96]byte
	b := m.appendText(room[:0], v)
	if w.k != kindNumber {
		m.room(len(b) + len(w.s))
	}
	return string(m.appendText(b, w))
}

func (m *machine) joinAll(list []value) string {
	if v := list[0]; v.k != kindNumber && len(v.s) >= bigText {
		var rest []byte
		for _, w := range list[1:] {
			rest = m.appendText(rest, w)
		}
		return m.growText(v.s, text(stringOf(rest)))
	}
	var room [128]byte
	b := room[:0]
	for i, v := range list {
		if v.k != kindNumber && len(v.s) >= bigText {
			m.room(len(b) + len(v.s))
		}
		b = m.appendText(b, list[i])
	}
	return string(b)
}

// growth remembers the last long texts with spare capacity after them. So a loop that appends to a
// string need not copy it each time. Texts are never overwritten, only extended.
type growth struct {
	list [4][]byte
	next int
}

// growText returns s followed by w.
func (m *machine) growText(s string, w value) string {
	g := &m.grown
	tail := m.str(w)
	n := len(s) + len(tail)
	m.room(len(tail))
	if n > maxText {
		m.fatal("string is too long: %d bytes", n)
	}
	b := bytesOf(s)
	for i, have := range g.list {
		if len(have) == len(b) && &have[0] == &b[0] {
			if cap(have) < n {
				m.room(n) // it moves
			}
			g.list[i] = append(have, tail...)
			m.owe(int64(cap(g.list[i]) - cap(have)))
			return stringOf(g.list[i])
		}
	}
	m.room(n)
	m.owe(int64(n + n/2 - cap(g.list[g.next])))
	next := make([]byte, 0, n+n/2)
	next = append(append(next, s...), tail...)
	g.list[g.next] = next
	g.next = (g.next + 1) % len(g.list)
	return stringOf(next)
}

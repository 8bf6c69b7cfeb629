package jq

import (
	"fmt"
	"math"
	"strings"

	"github.com/itchyny/gojq"
)

// errorf makes an error that a program can catch.
func errorf(format string, args ...any) error {
	s := fmt.Sprintf(format, args...)
	return &ValueError{Value: s}
}

// clip returns a value as JSON, shortened for a message.
func clip(v any) string {
	s := string((&writer{max: 64}).value(nil, v, 0))
	if len(s) > 14 {
		cut := 11
		for cut > 0 && s[cut]&0xc0 == 0x80 {
			cut--
		}
		s = s[:cut] + "..."
	}
	return s
}

// described returns a value's description for a message: "number (1)".
func described(v any) string { return TypeName(v) + " (" + clip(v) + ")" }

func negate(v any) (any, error) {
	if n, ok := v.(Number); ok {
		if s, neg := strings.CutPrefix(string(n), "-"); neg {
			return Number(s), nil
		}
		return "-" + n, nil
	}
	f, ok := v.(float64)
	if !ok {
		return nil, errorf("%s cannot be negated", described(v))
	}
	return -f, nil
}

// operator returns the function of an arithmetic operator or a comparison.
func (m *vm) operator(op gojq.Operator) func(a, b any) (any, error) {
	switch op {
	case gojq.OpAdd:
		return m.add
	case gojq.OpSub:
		return m.sub
	case gojq.OpMul:
		return m.mul
	case gojq.OpDiv:
		return m.div
	case gojq.OpMod:
		return mod
	case gojq.OpEq:
		return m.comparison(func(c int) bool { return c == 0 })
	case gojq.OpNe:
		return m.comparison(func(c int) bool { return c != 0 })
	case gojq.OpLt:
		return m.comparison(func(c int) bool { return c < 0 })
	case gojq.OpLe:
		return m.comparison(func(c int) bool { return c <= 0 })
	case gojq.OpGt:
		return m.comparison(func(c int) bool { return c > 0 })
	case gojq.OpGe:
		return m.comparison(func(c int) bool { return c >= 0 })
	}
	return nil
}

func (m *vm) comparison(f func(int) bool) func(a, b any) (any, error) {
	return func(a, b any) (any, error) { return f(m.cmp(a, b)), nil }
}

func (m *vm) add(a, b any) (any, error) {
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return x + y, nil
		}
	}
	switch {
	case a == nil:
		return b, nil
	case b == nil:
		return a, nil
	}
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return m.str(a + b)
		}
	case []any:
		if b, ok := b.([]any); ok {
			if err := m.step((len(a) + len(b)) >> 5); err != nil {
				return nil, err
			}
			out := append(append(make([]any, 0, len(a)+len(b)), a...), b...)
			return out, m.value(out)
		}
	case *Object:
		if b, ok := b.(*Object); ok {
			if err := m.step((len(a.keys) + len(b.keys)) >> 3); err != nil {
				return nil, err
			}
			o := a.clone()
			for i, k := range b.keys {
				o.Set(k, b.vals[i])
			}
			return o, m.value(o)
		}
	}
	return nil, errorf("%s and %s cannot be added", described(a), described(b))
}

func (m *vm) sub(a, b any) (any, error) {
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return x - y, nil
		}
	}
	if a, ok := a.([]any); ok {
		if b, ok := b.([]any); ok {
			out := []any{}
			for _, x := range a {
				if err := m.step(1 + len(b)>>3); err != nil {
					return nil, err
				}
				found := false
				for _, y := range b {
					if found = m.cmp(x, y) == 0; found {
						break
					}
				}
				if !found {
					out = append(out, x)
				}
			}
			return out, m.value(out)
		}
	}
	return nil, errorf("%s and %s cannot be subtracted", described(a), described(b))
}

const maxString = 512 << 20

func (m *vm) mul(a, b any) (any, error) {
	x, okx := number(a)
	y, oky := number(b)
	if okx && oky {
		return x * y, nil
	}
	if _, ok := b.(string); ok && okx {
		a, b, y, oky = b, a, x, true
	}
	if s, ok := a.(string); ok && oky {
		if y < 0 || math.IsNaN(y) {
			return nil, nil
		}
		n := math.Floor(y)
		if n*float64(len(s)) > maxString {
			return nil, errorf("Repeat string result too long")
		}
		if err := m.pay(int64(n) * int64(len(s))); err != nil {
			return nil, err
		}
		out := strings.Repeat(s, int(n))
		_ = m.pay(-int64(len(out)))
		return m.str(out)
	}
	if p, ok := a.(*Object); ok {
		if q, ok := b.(*Object); ok {
			return m.merge(p, q, 0)
		}
	}
	return nil, errorf("%s and %s cannot be multiplied", described(a), described(b))
}

func (m *vm) merge(a, b *Object, depth int) (any, error) {
	if err := m.step(1 + len(a.keys)>>3 + len(b.keys)); err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errDepth
	}
	o := a.clone()
	for i, k := range b.keys {
		y := b.vals[i]
		x, _ := o.Get(k)
		p, ok1 := x.(*Object)
		q, ok2 := y.(*Object)
		if ok1 && ok2 {
			var err error
			if y, err = m.merge(p, q, depth+1); err != nil {
				return nil, err
			}
		}
		o.Set(k, y)
	}
	return o, m.value(o)
}

func (m *vm) div(a, b any) (any, error) {
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			if y == 0 {
				return nil, errorf("%s and %s cannot be divided because the divisor is zero", described(a), described(b))
			}
			return x / y, nil
		}
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return m.split(x, y)
		}
	}
	return nil, errorf("%s and %s cannot be divided", described(a), described(b))
}

// split splits a string. The empty string has no parts.
func (m *vm) split(s, sep string) (any, error) {
	out := []any{}
	if s == "" {
		return out, nil
	}
	if err := m.step(1 + len(s)>>3); err != nil {
		return nil, err
	}
	for _, part := range strings.Split(s, sep) {
		out = append(out, part)
	}
	return out, m.value(out)
}

func toInt(f float64) int64 {
	switch {
	case math.IsNaN(f):
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	}
	return int64(f)
}

func mod(a, b any) (any, error) {
	x, ok1 := number(a)
	y, ok2 := number(b)
	if !ok1 || !ok2 {
		return nil, errorf("%s and %s cannot be divided", described(a), described(b))
	}
	if math.IsNaN(x) || math.IsNaN(y) {
		return math.NaN(), nil
	}
	p, q := toInt(x), toInt(y)
	if q == 0 {
		return nil, errorf("%s and %s cannot be divided (remainder) because the divisor is zero", described(a), described(b))
	}
	if q == -1 {
		return 0.0, nil
	}
	if q == math.MinInt64 {
		q = math.MaxInt64
	}
	r := p % q
	return float64(r), nil
}

package eval

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// wholeRecord is code of $0.
func wholeRecord() code { return ofVal(func(m *machine) value { return m.field(0) }) }

// length compiles length of an array or a text.
func (c *compiler) length(x *syntax.CallBuiltin) code {
	if len(x.Args) == 0 {
		return ofNum(func(m *machine) float64 { return float64(m.length(m.field(0).s)) })
	}
	if is := c.isArrayNow(x.Args[0]); is != nil {
		s, arr := c.expr(x.Args[0]).str, c.arrayRef(ungroup(x.Args[0]))
		return ofNum(func(m *machine) float64 {
			if is(m) {
				return float64(arr(m).len())
			}
			return float64(m.length(s(m)))
		})
	}
	s := c.expr(x.Args[0]).str
	return ofNum(func(m *machine) float64 { return float64(m.length(s(m))) })
}

func ungroup(x syntax.Expr) syntax.Expr {
	for {
		g, ok := x.(*syntax.Group)
		if !ok {
			return x
		}
		x = g.X
	}
}

// isArrayNow compiles the test whether an operand is an array at run time. It returns nil when the
// operand can't be one.
func (c *compiler) isArrayNow(x syntax.Expr) func(m *machine) bool {
	switch x := ungroup(x).(type) {
	case *syntax.Name:
		if x.Scope == syntax.Global {
			g := &c.m.globals[x.Slot]
			return func(*machine) bool { return g.arr != nil }
		}
		slot := x.Slot
		return func(m *machine) bool {
			l := &m.frame[slot]
			return l.arr != nil || m.tiedToArray(l)
		}
	case *syntax.Index:
		arr, key := c.arrayRef(x.Array), c.key(x.Subs)
		return func(m *machine) bool {
			a := arr(m)
			k := key(m)
			return m.element(a, k.s, k.part).sub != nil
		}
	}
	return nil
}

// tiedToArray reports whether the origin of an unset parameter has become an array.
func (m *machine) tiedToArray(l *local) bool {
	for ; l != nil; l = l.up {
		switch {
		case l.v.k != kindUnset:
			return false
		case l.arr != nil || l.global != nil && l.global.arr != nil:
			return true
		case l.from != nil:
			c := l.from.get(l.key)
			return c != nil && c.sub != nil
		}
	}
	return false
}

func (c *compiler) isArray(x *syntax.CallBuiltin) code {
	is := c.isArrayNow(x.Args[0])
	if is == nil {
		val := c.expr(x.Args[0]).val
		return ofCond(func(m *machine) bool { val(m); return false })
	}
	return ofCond(is)
}

// typeNames are the results of typeof.
var typeNames = map[kind]string{kindUnset: "unassigned", kindNumber: "number",
	kindString: "string", kindStrnum: "strnum", kindRegex: "regexp",
	kindNoField: "unassigned"}

func (c *compiler) typeof(x *syntax.CallBuiltin) code {
	is := c.isArrayNow(x.Args[0])
	arg := ungroup(x.Args[0])
	if _, field := arg.(*syntax.Field); is == nil || field {
		val := c.expr(arg).val
		return ofStr(func(m *machine) string { return typeNames[val(m).settled().k] })
	}
	val := c.expr(arg).val
	if name, ok := arg.(*syntax.Name); ok {
		val = c.look(name)
	}
	return ofStr(func(m *machine) string {
		if is(m) {
			return "array"
		}
		v := val(m).settled()
		if v.k == kindUnset && !v.part {
			return "untyped"
		}
		return typeNames[v.k]
	})
}

// look reads a variable without marking it as used.
func (c *compiler) look(x *syntax.Name) func(m *machine) value {
	slot := x.Slot
	switch {
	case x.Scope == syntax.Local:
		return func(m *machine) value { return m.frame[slot].v }
	case slot < int(resolve.NumSpecials):
		return func(m *machine) value { return m.getGlobal(slot) }
	}
	g := &c.m.globals[slot]
	return func(*machine) value { return g.v }
}

// substr compiles substr. Positions count characters.
func (c *compiler) substr(x *syntax.CallBuiltin) code {
	s, from := c.expr(x.Args[0]).val, c.expr(x.Args[1]).num
	size := func(*machine) float64 { return math.Inf(1) }
	if len(x.Args) > 2 {
		size = c.expr(x.Args[2]).num
	}
	return ofVal(func(m *machine) value {
		v := s(m)
		at := from(m)
		n := size(m)
		part := v.k != kindNumber
		return value{s: m.substring(m.str(v), at, n), k: kindString, part: part}
	})
}

// substring returns n characters of a text from position at, which counts from 1. As in gawk,
// fractions are cut off, and a position before the first one means the first.
func (m *machine) substring(s string, at, n float64) string {
	if !(at >= 1) {
		at = 1
	}
	at, n = math.Trunc(at), math.Trunc(n)
	if !(n >= 1) || at > float64(len(s)) {
		return ""
	}
	end := min(at-1+n, float64(len(s)))
	if m.bytes || isASCII(s) {
		return s[int(at)-1 : int(end)]
	}
	first := m.advance(s, 0, int(at)-1)
	if n >= float64(len(s)) {
		return s[first:]
	}
	return s[first:m.advance(s, first, int(n))]
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// indexOf compiles index: the position of one text in another.
func (c *compiler) indexOf(x *syntax.CallBuiltin) code {
	s, t := c.expr(x.Args[0]).str, c.expr(x.Args[1]).str
	return ofNum(func(m *machine) float64 {
		text := s(m)
		want := t(m)
		if m.ignoreCase {
			text, want = strings.ToLower(text), strings.ToLower(want)
		}
		m.step(len(text) >> 9)
		i := strings.Index(text, want)
		if i < 0 {
			return 0
		}
		return float64(m.length(text[:i]) + 1)
	})
}

func mapText(f func(m *machine, s string) string) builder {
	return func(c *compiler, x *syntax.CallBuiltin) code {
		s := c.expr(x.Args[0]).str
		return ofStr(func(m *machine) string {
			t := s(m)
			m.room(len(t))
			return f(m, t)
		})
	}
}

func lower(m *machine, s string) string { return mapRunes(m, s, 'A', 'Z', unicode.ToLower) }
func upper(m *machine, s string) string { return mapRunes(m, s, 'a', 'z', unicode.ToUpper) }

// mapRunes changes the case of letters. It does not change bytes that are not characters. first to
// last are the ASCII letters that change.
func mapRunes(m *machine, s string, first, last byte, f func(rune) rune) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c >= first && c <= last:
			b = append(b, c^0x20)
			i++
		case c < utf8.RuneSelf || m.bytes:
			b = append(b, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(b, c)
			} else {
				b = utf8.AppendRune(b, f(r))
			}
			i += n
		}
	}
	return stringOf(b)
}

func (c *compiler) sprintf(x *syntax.CallBuiltin) code {
	format, args := c.expr(x.Args[0]).str, c.exprs(x.Args[1:])
	return ofStr(func(m *machine) string {
		f := format(m)
		from := len(m.values)
		for i := range args {
			v := args[i].val(m)
			m.values = append(m.values, v)
		}
		var room [128]byte
		b := m.appendf(room[:0], f, m.values[from:])
		m.values = m.values[:from]
		m.room(len(b))
		return string(b)
	})
}

// target compiles the operand that sub and gsub change. An operand that can't be assigned is only
// searched.
func (c *compiler) target(args []syntax.Expr, at int) place {
	if len(args) <= at {
		return c.place(&syntax.Field{X: &syntax.Num{Value: 0}})
	}
	x := ungroup(args[at])
	switch x.(type) {
	case *syntax.Name, *syntax.Index, *syntax.Field:
		return c.place(x)
	}
	val := c.expr(x).val
	return place{update: func(m *machine, f changer) { f(m, val(m)) }}
}

// sub compiles sub and gsub.
func (c *compiler) sub(x *syntax.CallBuiltin) code {
	p, with := c.pattern(x.Args[0]), c.expr(x.Args[1]).str
	target := c.target(x.Args, 2)
	which := firstMatch
	if x.Builtin.Name == "gsub" {
		which = everyMatch
	}
	// The pieces of a replacement are made again only when the replacement changes.
	var last string
	var pieces []piece
	return ofNum(func(m *machine) float64 {
		re := p.get(m)
		if s := with(m); pieces == nil || s != last {
			last, pieces = strings.Clone(s), replacement(s)
		}
		use, n := pieces, 0
		target.update(m, func(m *machine, old value) (value, bool) {
			var out string
			out, n = m.substitute(re, m.str(old), use, which)
			return text(out), n > 0
		})
		return float64(n)
	})
}

// gensub compiles gensub(r, replacement, how, s).
func (c *compiler) gensub(x *syntax.CallBuiltin) code {
	p, with, how := c.pattern(x.Args[0]), c.expr(x.Args[1]).str, c.expr(x.Args[2]).val
	source := wholeRecord()
	if len(x.Args) > 3 {
		source = c.expr(x.Args[3])
	}
	return ofVal(func(m *machine) value {
		re := p.get(m)
		pieces := numberedReplacement(with(m))
		which := m.whichMatch(how(m))
		v := source.val(m)
		out, n := m.substitute(re, m.str(v), pieces, which)
		if n == 0 && v.k != kindNumber {
			return v // even if it is input that looks like a number
		}
		return text(out)
	})
}

// whichMatch reads the third argument of gensub.
func (m *machine) whichMatch(v value) int {
	if s := m.str(v); s != "" && (s[0] == 'g' || s[0] == 'G') {
		return everyMatch
	}
	n := v.num()
	if !(n >= 1) {
		m.warn("gensub: third argument `%s' treated as 1", m.str(v))
		return firstMatch
	}
	return int(min(n, maxExact))
}

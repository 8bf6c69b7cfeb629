package eval

import (
	"strconv"

	"github.com/carrel-dev/carrel/shell/regex"
	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// numbered returns the subscript of a position in a list.
func numbered(i int) string {
	if i >= 0 && i < smallIntCount {
		return smallInts()[i]
	}
	return strconv.Itoa(i)
}

// put stores a part of a text in an array.
func (m *machine) put(a *array, i int, v value) {
	m.setElement(a, numbered(i), m.keep(v))
}

// arrays compiles an argument that is an array. It returns nil for a missing argument.
func (c *compiler) arrays(args []syntax.Expr, at int) func(m *machine) *array {
	if len(args) <= at {
		return func(*machine) *array { return nil }
	}
	return c.mustArray(args[at])
}

// mustArray compiles an argument that must be an array.
func (c *compiler) mustArray(x syntax.Expr) func(m *machine) *array {
	x = ungroup(x)
	switch x.(type) {
	case *syntax.Name, *syntax.Index:
		return c.arrayRef(x)
	}
	return func(m *machine) *array {
		m.fatal("argument is not an array")
		return nil
	}
}

// split compiles split(s, a, fs, seps).
func (c *compiler) split(x *syntax.CallBuiltin) code {
	s := c.expr(x.Args[0]).str
	arr, seps := c.mustArray(x.Args[1]), c.arrays(x.Args, 3)
	by := func(m *machine) separator {
		if m.csv {
			return csvFields{}
		}
		if m.fieldsBy != resolve.FS {
			return m.separatorFor(m.str(m.special(resolve.FS).v), false)
		}
		if m.rsMode == toParagraph { // which adds the newline for records alone
			return m.separatorFor(m.str(m.special(resolve.FS).v), false)
		}
		if m.separator == nil {
			m.separator = m.fieldSeparator()
		}
		return m.separator
	}
	if len(x.Args) > 2 {
		by = c.separator(x.Args[2])
	}
	return ofNum(func(m *machine) float64 {
		t := s(m)
		sep := by(m)
		a, gaps := arr(m), seps(m)
		if a == gaps {
			m.fatal("split: cannot use the same array for second and fourth args")
		}
		return float64(m.splitInto(t, sep, a, gaps))
	})
}

// separator compiles the third argument of split, which is an expression or a text as for FS.
func (c *compiler) separator(x syntax.Expr) func(m *machine) separator {
	if re, ok := ungroup(x).(*syntax.Regex); ok {
		sep := splitBy(c.constantPattern(re))
		return func(*machine) separator { return sep }
	}
	val := c.expr(x).val
	var last string
	var sep separator
	fold := false
	return func(m *machine) separator {
		v := val(m)
		if v.k == kindRegex {
			return splitBy(&pattern{source: v.s})
		}
		if s := m.str(v); sep == nil || s != last || fold != m.ignoreCase {
			last, sep, fold = s, m.separatorFor(s, false), m.ignoreCase
		}
		return sep
	}
}

// splitBy separates by an expression. The empty one separates every two characters, as an empty
// text does.
func splitBy(p *pattern) separator {
	if p.source == "" {
		return each{}
	}
	return byExpression{p}
}

// splitInto puts the fields of a text into an array, and the texts between them into another, which
// may be nil.
func (m *machine) splitInto(s string, sep separator, a, gaps *array) int {
	m.clearArray(a)
	if gaps != nil {
		m.clearArray(gaps)
	}
	if s == "" {
		return 0
	}
	_, outside := sep.(blanks)
	n, last := 0, 0
	for pos := 0; pos >= 0; {
		start, end, after, ok := sep.next(m, s, pos)
		if !ok {
			break
		}
		if gaps != nil && (n > 0 || outside && start > 0) {
			m.put(gaps, n, value{s: s[last:start], k: kindString, part: true})
		}
		n++
		v := input(s[start:end])
		if m.csv {
			v.s = unquote(v.s)
		}
		m.put(a, n, v)
		m.step(1)
		last, pos = end, after
	}
	if gaps != nil && outside && last < len(s) {
		m.put(gaps, n, value{s: s[last:], k: kindString, part: true})
	}
	return n
}

// patsplit compiles patsplit(s, a, pattern, seps).
func (c *compiler) patsplit(x *syntax.CallBuiltin) code {
	s := c.expr(x.Args[0]).str
	arr, seps := c.mustArray(x.Args[1]), c.arrays(x.Args, 3)
	source := func(m *machine) *pattern {
		return &pattern{source: m.str(m.special(resolve.FPAT).v)}
	}
	if len(x.Args) > 2 {
		if re, ok := ungroup(x.Args[2]).(*syntax.Regex); ok {
			p := c.constantPattern(re)
			source = func(*machine) *pattern { return p }
		} else {
			str := c.expr(x.Args[2]).str
			source = func(m *machine) *pattern { return &pattern{source: str(m)} }
		}
	}
	return ofNum(func(m *machine) float64 {
		t := s(m)
		sep := byContents{source(m)}
		a, gaps := arr(m), seps(m)
		if a == gaps {
			m.fatal("patsplit: cannot use the same array for second and fourth args")
		}
		m.clearArray(a)
		if gaps == nil {
			gaps = &array{index: map[string]*cell{}}
		}
		m.clearArray(gaps)
		n, last := 0, 0
		for pos := 0; t != "" && pos >= 0; {
			start, end, after, ok := sep.next(m, t, pos)
			if !ok {
				break
			}
			m.put(gaps, n, value{s: t[last:start], k: kindString, part: true})
			n++
			m.put(a, n, input(t[start:end]))
			m.step(1)
			last, pos = end, after
		}
		if n > 0 || t != "" {
			m.put(gaps, n, value{s: t[last:], k: kindString, part: true})
		}
		return float64(n)
	})
}

// matchCall compiles match(s, r, a).
func (c *compiler) matchCall(x *syntax.CallBuiltin) code {
	s, p := c.expr(x.Args[0]).str, c.pattern(x.Args[1])
	arr := c.arrays(x.Args, 2)
	return ofNum(func(m *machine) float64 {
		t := s(m)
		re := p.get(m)
		a := arr(m)
		start, end := m.find(re, t, 0)
		place, size := 0, -1
		if start >= 0 {
			place, size = m.length(t[:start])+1, m.length(t[start:end])
		}
		m.special(resolve.RSTART).v = number(float64(place))
		m.special(resolve.RLENGTH).v = number(float64(size))
		if a != nil {
			m.clearArray(a)
			if start >= 0 {
				m.putGroups(a, re, t)
			}
		}
		return float64(place)
	})
}

// putGroups stores a match and its groups with their positions.
func (m *machine) putGroups(a *array, re *regex.Regexp, s string) {
	loc := re.FindSubmatchIndex(bytesOf(s), 0)
	m.checkRegex(re)
	for i := 0; 2*i+1 < len(loc); i++ {
		from, to := loc[2*i], loc[2*i+1]
		if from < 0 {
			continue
		}
		n := numbered(i)
		m.put(a, i, input(s[from:to]))
		m.setElement(a, n+m.subsep+"start", number(float64(m.length(s[:from])+1)))
		m.setElement(a, n+m.subsep+"length", number(float64(m.length(s[from:to]))))
	}
}

// asort compiles asort and asorti.
func (c *compiler) asort(x *syntax.CallBuiltin) code {
	byKey := x.Builtin.Name == "asorti"
	source, dest := c.mustArray(x.Args[0]), c.arrays(x.Args, 1)
	how := func(*machine) string { return "" }
	if len(x.Args) > 2 {
		how = c.expr(x.Args[2]).str
	}
	return ofNum(func(m *machine) float64 {
		from := source(m)
		to := dest(m)
		if to == nil {
			to = from
		}
		by := m.byType
		if byKey {
			by = m.byIndex
		}
		if name := how(m); name != "" {
			by = m.orderNamed(name)
		}
		return float64(m.sortInto(from, to, by, byKey))
	})
}

// sortInto sorts the elements of an array, or its subscripts, and stores them in an array.
func (m *machine) sortInto(from, to *array, by byFunc, keys bool) int {
	list := m.sorted(from, by)
	out := make([]cell, len(list))
	const copyCost = 80
	m.owe(int64(len(list)) * copyCost)
	m.settle()
	for i, c := range list {
		out[i] = *c
		if keys {
			out[i].v, out[i].sub = text(c.key), nil
		} else if c.sub != nil {
			if from == to {
				c.sub = nil // it moves
			} else {
				out[i].sub = m.copyArray(c.sub, 0)
			}
		}
	}
	m.clearArray(to)
	for i := range out {
		c := m.element(to, numbered(i+1), false)
		if c.sub = out[i].sub; c.sub == nil {
			to.store(m, c, out[i].v)
		}
	}
	m.owe(-int64(len(list)) * copyCost)
	return len(list)
}

// maxCopyDepth is the deepest nesting of arrays that can be copied.
const maxCopyDepth = 1000

// copyArray copies an array and the arrays in it.
func (m *machine) copyArray(a *array, depth int) *array {
	if depth > maxCopyDepth {
		m.fatal("arrays are nested too deeply")
	}
	out := m.newArray(a.name)
	for _, c := range a.order {
		if !c.live {
			continue
		}
		m.step(1)
		e := m.element(out, c.key, false)
		if c.sub != nil {
			e.sub = m.copyArray(c.sub, depth+1)
		} else {
			out.store(m, e, c.v)
		}
	}
	return out
}

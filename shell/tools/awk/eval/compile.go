package eval

import (
	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// compiler makes closures from a program. Global variables are elements of the machine's list. The
// list never moves, so closures hold pointers to its elements.
type compiler struct {
	m     *machine
	fn    *syntax.Func // the function being compiled, for its parameters' names
	depth int          // current depth in the tree
	most  int          // greatest depth since the last reset
}

// frameCost is the approximate goroutine stack that one level of the tree needs at run time.
const frameCost = 256

// compile compiles the whole program.
func (m *machine) compile() {
	c := &compiler{m: m}
	for _, f := range m.prog.Program.Funcs {
		m.funcs = append(m.funcs, &function{name: f.Name, params: f.Params})
	}
	for i, f := range m.prog.Program.Funcs {
		c.fn, c.most = f, 0
		m.funcs[i].body = c.block(f.Body)
		m.funcs[i].cost = frameCost * (c.most + 4)
	}
	c.fn = nil
	lists := map[syntax.RuleKind]*[]action{syntax.RuleBegin: &m.rules.begin,
		syntax.RuleEnd: &m.rules.end, syntax.RuleBeginFile: &m.rules.beginFile,
		syntax.RuleEndFile: &m.rules.endFile}
	for _, r := range m.prog.Rules {
		body := c.block(r.Body)
		if r.Print {
			body = c.printRecord(r.Pos)
		}
		if list := lists[r.Kind]; list != nil {
			*list = append(*list, body)
			continue
		}
		m.rules.main = append(m.rules.main, mainRule{body: body,
			pattern: c.rulePattern(r.Pattern, r.Pos), until: c.rulePattern(r.Until, r.Pos)})
	}
}

// rulePattern compiles the pattern of a rule, which may be missing.
func (c *compiler) rulePattern(x syntax.Expr, pos syntax.Pos) func(m *machine) bool {
	if x == nil {
		return nil
	}
	cond := c.expr(x).cond
	return func(m *machine) bool {
		m.at = pos
		return cond(m)
	}
}

// enter goes one level down in the tree. The returned function goes up again.
func (c *compiler) enter() func() {
	c.depth++
	c.most = max(c.most, c.depth)
	return func() { c.depth-- }
}

// exprs compiles a list.
func (c *compiler) exprs(list []syntax.Expr) []code {
	out := make([]code, len(list))
	for i, x := range list {
		out[i] = c.expr(x)
	}
	return out
}

// expr compiles an expression.
func (c *compiler) expr(x syntax.Expr) code {
	defer c.enter()()
	switch x := x.(type) {
	case *syntax.Num:
		return constant(number(x.Value))
	case *syntax.Str:
		return constant(text(x.Value))
	case *syntax.Regex:
		return c.regexExpr(x)
	case *syntax.Name:
		return c.name(x)
	case *syntax.Index:
		return c.index(x)
	case *syntax.Field:
		return c.fieldExpr(x)
	case *syntax.Group:
		return c.expr(x.X)
	case *syntax.Unary:
		return c.unary(x)
	case *syntax.Binary:
		return c.binary(x)
	case *syntax.Concat:
		return c.concat(x)
	case *syntax.Cond:
		return c.cond(x)
	case *syntax.In:
		return c.in(x)
	case *syntax.Assign:
		return c.assign(x)
	case *syntax.IncDec:
		return c.incDec(x)
	case *syntax.Call:
		return c.call(x)
	case *syntax.CallBuiltin:
		return c.builtin(x)
	case *syntax.Indirect:
		return c.indirect(x)
	case *syntax.Getline:
		return c.getline(x)
	}
	panic("awk: an expression that the compiler does not know")
}

// constant returns code for a known value.
func constant(v value) code {
	n, truth := v.num(), v.truth()
	s := v.s
	c := code{isNum: v.k == kindNumber, isStr: v.k == kindString,
		val:  func(*machine) value { return v },
		num:  func(*machine) float64 { return n },
		str:  func(*machine) string { return s },
		cond: func(*machine) bool { return truth }}
	if v.k == kindNumber {
		c.str = func(m *machine) string { return m.numberText(n) }
	}
	return c
}

// regexExpr compiles a regular expression that stands alone. It is matched with the record.
func (c *compiler) regexExpr(x *syntax.Regex) code {
	if x.Strong {
		return constant(value{s: x.Source, k: kindRegex})
	}
	p := c.constantPattern(x)
	return ofCond(func(m *machine) bool { return m.matches(p.get(m), m.field(0).s) })
}

// constantPattern compiles a constant regular expression, to report errors early.
func (c *compiler) constantPattern(x *syntax.Regex) *pattern {
	c.m.at = x.Pos
	p := &pattern{source: x.Source}
	p.get(c.m)
	c.m.at = syntax.Pos{}
	return p
}

// pattern compiles an operand that is used as a regular expression: a constant or a text.
func (c *compiler) pattern(x syntax.Expr) *pattern {
	for {
		g, ok := x.(*syntax.Group)
		if !ok {
			break
		}
		x = g.X
	}
	if re, ok := x.(*syntax.Regex); ok {
		return c.constantPattern(re)
	}
	return &pattern{text: c.expr(x).str}
}

// name compiles the reading of a variable.
func (c *compiler) name(x *syntax.Name) code {
	slot, ident := x.Slot, x.Ident
	if x.Scope == syntax.Local {
		return ofVal(func(m *machine) value {
			l := &m.frame[slot]
			if l.arr != nil {
				m.fatal("attempt to use array `%s' in a scalar context", l.describe(ident))
			}
			if l.v.k == kindUnset {
				l.v.part = true
			}
			return l.v
		})
	}
	switch resolve.Special(slot) {
	case resolve.NF:
		return ofNum(func(m *machine) float64 { return float64(m.splitAll()) })
	case resolve.NR:
		return ofNum(func(m *machine) float64 { return m.nr })
	case resolve.FNR:
		return ofNum(func(m *machine) float64 { return m.fnr })
	}
	if _, ok := c.m.prog.Funcs[ident]; ok {
		return ofVal(func(m *machine) value {
			m.fatal("function `%s' called with space between name and `('", ident)
			return value{}
		})
	}
	g := &c.m.globals[slot]
	x1 := ofVal(func(m *machine) value {
		if g.arr != nil {
			m.fatal("attempt to use array `%s' in a scalar context", ident)
		}
		if g.v.k == kindUnset {
			g.v.part = true
		}
		return g.v
	})
	x1.num = func(m *machine) float64 {
		if g.v.k == kindNumber {
			return g.v.n
		}
		return x1.val(m).num()
	}
	return x1
}

// describe returns the name of a parameter that is an array, with its origin.
func (l *local) describe(ident string) string {
	if l.name != "" && l.name != ident {
		return ident + " (from " + l.name + ")"
	}
	return ident
}

// fieldExpr compiles the reading of a field.
func (c *compiler) fieldExpr(x *syntax.Field) code {
	if n, ok := x.X.(*syntax.Num); ok && n.Value >= 0 && n.Value < 1000 {
		i := int(n.Value)
		return ofVal(func(m *machine) value { return m.field(i) })
	}
	index := c.expr(x.X).num
	return ofVal(func(m *machine) value { return m.field(m.fieldIndex(index(m))) })
}

// arrayRef compiles an operand that must be an array.
func (c *compiler) arrayRef(x syntax.Expr) func(m *machine) *array {
	defer c.enter()()
	switch x := x.(type) {
	case *syntax.Name:
		return c.arrayName(x)
	case *syntax.Index:
		outer := c.arrayRef(x.Array)
		key := c.key(x.Subs)
		return func(m *machine) *array {
			a := outer(m)
			k := key(m)
			return m.subArray(a, m.element(a, k.s, k.part))
		}
	}
	panic("awk: an array that is no name")
}

func (c *compiler) arrayName(x *syntax.Name) func(m *machine) *array {
	slot, ident := x.Slot, x.Ident
	if x.Scope == syntax.Local {
		return func(m *machine) *array {
			l := &m.frame[slot]
			if l.arr != nil {
				return l.arr
			}
			return m.bind(l, ident)
		}
	}
	g := &c.m.globals[slot]
	return func(m *machine) *array {
		if g.arr != nil {
			return g.arr
		}
		return m.bindGlobal(g, ident)
	}
}

// key is a subscript. part says that its text will be overwritten or is part of a larger text.
type key struct {
	s    string
	part bool
}

// key compiles subscripts. SUBSEP joins several of them. The text is valid only until the next key
// is made, so use it at once.
func (c *compiler) key(subs []syntax.Expr) func(m *machine) key {
	if len(subs) > 1 {
		return c.joinedKey(subs)
	}
	x := c.expr(subs[0])
	switch {
	case x.isNum:
		return func(m *machine) key { return m.numberKey(x.num(m)) }
	case x.isStr:
		return func(m *machine) key { return key{s: x.str(m)} }
	}
	return func(m *machine) key {
		v := x.val(m)
		if v.k == kindNumber {
			return m.numberKey(v.n)
		}
		return key{s: v.s, part: v.part}
	}
}

// numberKey returns the subscript for a number.
func (m *machine) numberKey(n float64) key {
	if n >= 0 && n < smallIntCount && n == float64(int(n)) {
		return key{s: smallInts()[int(n)]}
	}
	if !isInteger(n) {
		return key{s: m.numberText(n)}
	}
	m.keyRoom = m.appendNumber(m.keyRoom[:0], n, "")
	return key{s: stringOf(m.keyRoom), part: true}
}

func (c *compiler) joinedKey(subs []syntax.Expr) func(m *machine) key {
	list := c.exprs(subs)
	return func(m *machine) key {
		from := len(m.values)
		for i := range list {
			v := list[i].val(m)
			m.values = append(m.values, v)
		}
		b := m.keyRoom[:0]
		for i, v := range m.values[from:] {
			if i > 0 {
				b = append(b, m.subsep...)
			}
			b = m.appendText(b, v)
		}
		m.values = m.values[:from]
		m.keyRoom = b
		m.room(len(b))
		if cap(b) > chunkSize {
			m.keyRoom = nil
		}
		return key{s: stringOf(b), part: true}
	}
}

// index compiles the reading of an element. Reading makes a missing element.
func (c *compiler) index(x *syntax.Index) code {
	arr := c.arrayRef(x.Array)
	key := c.key(x.Subs)
	return ofVal(func(m *machine) value {
		a := arr(m)
		k := key(m)
		e := a.index[k.s]
		if e == nil {
			e = m.newElement(a, k.s, k.part)
		}
		if e.sub != nil {
			return m.scalar(a, e)
		}
		return e.v
	})
}

// in compiles the test whether an element exists.
func (c *compiler) in(x *syntax.In) code {
	key := c.key(x.Subs)
	arr := c.arrayRef(x.Array)
	return ofCond(func(m *machine) bool {
		a := arr(m)
		return a.index[key(m).s] != nil
	})
}

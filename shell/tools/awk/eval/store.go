package eval

import (
	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// place is the target of an assignment. Its parts are evaluated when the place is used, which is
// after the right side of the assignment, as in gawk.
type place struct {
	// set stores a value.
	set func(m *machine, v value)
	// update replaces the value with f's result for the old one, unless f reports no change.
	update func(m *machine, f changer)
	// add adds to the stored number, and returns the sum. It is a faster update for the usual case.
	add func(m *machine, n float64) float64
}

// changer makes a new value from an old one.
type changer func(m *machine, old value) (v value, changed bool)

// place compiles the target of an assignment.
func (c *compiler) place(x syntax.Expr) place {
	defer c.enter()()
	switch x := x.(type) {
	case *syntax.Group:
		return c.place(x.X)
	case *syntax.Name:
		if x.Scope == syntax.Local {
			return localPlace(x)
		}
		if x.Slot < int(resolve.NumSpecials) {
			return specialPlace(x)
		}
		return c.globalPlace(x)
	case *syntax.Index:
		return c.elementPlace(x)
	case *syntax.Field:
		return c.fieldPlace(x)
	}
	panic("awk: an assignment to what is no place")
}

func (c *compiler) globalPlace(x *syntax.Name) place {
	g, ident := &c.m.globals[x.Slot], x.Ident
	check := func(m *machine) {
		if g.arr != nil {
			m.fatal("attempt to use array `%s' in a scalar context", ident)
		}
	}
	return place{
		set: func(m *machine, v value) { check(m); m.assign(g, v) },
		update: func(m *machine, f changer) {
			check(m)
			if v, changed := f(m, g.v); changed {
				m.assign(g, v)
			} else if g.v.k == kindUnset {
				g.v.part = true
			}
		},
		add: func(m *machine, n float64) float64 {
			check(m)
			n += g.v.num()
			m.assign(g, number(n))
			return n
		},
	}
}

func localPlace(x *syntax.Name) place {
	slot, ident := x.Slot, x.Ident
	at := func(m *machine) *local {
		l := &m.frame[slot]
		if l.arr != nil {
			m.fatal("attempt to use array `%s' in a scalar context", l.describe(ident))
		}
		return l
	}
	return place{
		set: func(m *machine, v value) { m.assign(&at(m).variable, v) },
		update: func(m *machine, f changer) {
			l := at(m)
			if v, changed := f(m, l.v); changed {
				m.assign(&l.variable, v)
			}
		},
		add: func(m *machine, n float64) float64 {
			l := at(m)
			n += l.v.num()
			m.assign(&l.variable, number(n))
			return n
		},
	}
}

func specialPlace(x *syntax.Name) place {
	slot := x.Slot
	p := place{
		set: func(m *machine, v value) {
			m.getGlobal(slot) // an array is no place
			m.setGlobal(slot, v)
		},
		update: func(m *machine, f changer) {
			if v, changed := f(m, m.getGlobal(slot)); changed {
				m.setGlobal(slot, v)
			}
		},
	}
	p.add = func(m *machine, n float64) float64 {
		n += m.getGlobal(slot).num()
		m.setGlobal(slot, number(n))
		return n
	}
	return p
}

func (c *compiler) elementPlace(x *syntax.Index) place {
	arr := c.arrayRef(x.Array)
	key := c.key(x.Subs)
	at := func(m *machine) (*array, *cell) {
		a := arr(m)
		k := key(m)
		e := a.index[k.s]
		if e == nil {
			e = m.newElement(a, k.s, k.part)
		} else if e.sub != nil {
			m.scalar(a, e)
		}
		return a, e
	}
	return place{
		set: func(m *machine, v value) {
			a, e := at(m)
			a.store(m, e, m.keep(v))
		},
		update: func(m *machine, f changer) {
			a, e := at(m)
			if v, changed := f(m, e.v); changed {
				a.store(m, e, m.keep(v))
			}
		},
		add: func(m *machine, n float64) float64 {
			a, e := at(m)
			n += e.v.num()
			a.store(m, e, number(n))
			return n
		},
	}
}

func (c *compiler) fieldPlace(x *syntax.Field) place {
	index := c.expr(x.X).num
	at := func(m *machine) int { return m.fieldIndex(index(m)) }
	return place{
		set: func(m *machine, v value) { m.setField(at(m), v) },
		update: func(m *machine, f changer) {
			i := at(m)
			if i > m.splitAll() {
				m.grow(i) // also when nothing changes
			}
			if v, changed := f(m, m.field(i)); changed {
				m.setField(i, v)
			}
		},
		add: func(m *machine, n float64) float64 {
			i := at(m)
			n += m.field(i).num()
			m.setField(i, number(n))
			return n
		},
	}
}

// assign compiles = and the other assignment operators.
func (c *compiler) assign(x *syntax.Assign) code {
	r := c.expr(x.R)
	p := c.place(x.L)
	switch x.Op {
	case syntax.OpNone:
		if r.isNum {
			return ofNum(func(m *machine) float64 {
				n := r.num(m)
				p.set(m, number(n))
				return n
			})
		}
		return ofVal(func(m *machine) value {
			v := r.val(m)
			if v.k == kindInput {
				v = v.settled()
			}
			p.set(m, v)
			return v
		})
	case syntax.OpAdd:
		return ofNum(func(m *machine) float64 { return p.add(m, r.num(m)) })
	case syntax.OpSub:
		return ofNum(func(m *machine) float64 { return p.add(m, -r.num(m)) })
	}
	op := x.Op
	return ofNum(func(m *machine) float64 {
		n, result := r.num(m), 0.0
		p.update(m, func(m *machine, old value) (value, bool) {
			result = m.calculate(op, old.num(), n)
			return number(result), true
		})
		return result
	})
}

// incDec compiles ++ and --.
func (c *compiler) incDec(x *syntax.IncDec) code {
	p, delta := c.place(x.L), x.Delta
	if x.Post {
		return ofNum(func(m *machine) float64 {
			old := 0.0
			p.update(m, func(_ *machine, v value) (value, bool) {
				old = v.num()
				return number(old + delta), true
			})
			return old
		})
	}
	return ofNum(func(m *machine) float64 { return p.add(m, delta) })
}

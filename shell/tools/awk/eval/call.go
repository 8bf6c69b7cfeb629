package eval

import (
	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// function is a compiled function.
type function struct {
	name   string
	params []string
	body   action
	cost   int // estimated bytes of goroutine stack for one call
}

// localStack holds the parameters of all calls. Its segments never move, because parameters have
// pointers to each other.
type localStack struct {
	segments [][]local
	segment  int // in use
	top      int // of it
}

const segmentSize = 256

// take returns room for n parameters, and the values that cut needs to free it.
func (s *localStack) take(m *machine, n int) (room []local, segment, top int) {
	segment, top = s.segment, s.top
	for s.segment < len(s.segments) && s.top+n > len(s.segments[s.segment]) {
		s.segment, s.top = s.segment+1, 0
	}
	if s.segment == len(s.segments) {
		const localCost = 112
		size := max(segmentSize, n)
		m.owe(int64(size) * localCost)
		s.segments = append(s.segments, make([]local, size))
	}
	room = s.segments[s.segment][s.top : s.top+n : s.top+n]
	s.top += n
	return room, segment, top
}

// cut drops the parameters of calls that have ended.
func (s *localStack) cut(m *machine, segment, top int) {
	for i := segment; i <= s.segment && i < len(s.segments); i++ {
		from, to := 0, len(s.segments[i])
		if i == segment {
			from = min(top, to)
		}
		m.dropLocals(s.segments[i][from:to])
	}
	s.segment, s.top = segment, top
}

// argument passes a value to a parameter.
type argument func(m *machine, to *local)

// argument compiles one argument. A bare name may be an array, or may become one in the function.
func (c *compiler) argument(x syntax.Expr) argument {
	switch x := x.(type) {
	case *syntax.Name:
		return c.nameArgument(x)
	case *syntax.Index:
		return c.elementArgument(x)
	}
	v := c.expr(x).val
	return func(m *machine, to *local) { m.assign(&to.variable, v(m)) }
}

func (c *compiler) nameArgument(x *syntax.Name) argument {
	slot, ident := x.Slot, x.Ident
	if x.Scope == syntax.Local {
		return func(m *machine, to *local) {
			l := &m.frame[slot]
			to.name = ident
			switch {
			case l.arr != nil:
				to.arr = l.arr
			case l.v.k == kindUnset:
				to.up = l
			default:
				m.assign(&to.variable, l.v)
			}
		}
	}
	if slot < int(resolve.NumSpecials) && c.m.globals[slot].arr == nil {
		return func(m *machine, to *local) { m.assign(&to.variable, m.getGlobal(slot)) }
	}
	if _, ok := c.m.prog.Funcs[ident]; ok {
		v := c.name(x).val
		return func(m *machine, to *local) { v(m) }
	}
	g := &c.m.globals[slot]
	return func(m *machine, to *local) {
		to.name = ident
		switch {
		case g.arr != nil:
			to.arr = g.arr
		case g.v.k == kindUnset:
			to.global = g
		default:
			m.assign(&to.variable, g.v)
		}
	}
}

func (c *compiler) elementArgument(x *syntax.Index) argument {
	arr := c.arrayRef(x.Array)
	key := c.key(x.Subs)
	return func(m *machine, to *local) {
		a := arr(m)
		k := key(m)
		e := m.element(a, k.s, k.part)
		switch {
		case e.sub != nil:
			to.arr, to.name = e.sub, e.sub.name
		case e.v.k == kindUnset:
			to.from, to.key = a, e.key
		default:
			m.assign(&to.variable, e.v)
		}
	}
}

// call compiles a call of a function that the program defines.
func (c *compiler) call(x *syntax.Call) code {
	f := c.m.funcs[x.Func]
	args := c.arguments(x.Args)
	pos := x.Pos
	return ofVal(func(m *machine) value {
		v := m.invoke(f, args)
		m.at = pos
		return v
	})
}

func (c *compiler) arguments(list []syntax.Expr) []argument {
	out := make([]argument, len(list))
	for i, x := range list {
		out[i] = c.argument(x)
	}
	return out
}

// invoke calls a function.
func (m *machine) invoke(f *function, args []argument) value {
	m.step(2)
	if m.stack += f.cost; m.stack > maxStack {
		m.fatal("function `%s': calls are nested too deeply", f.name)
	}
	n := max(len(f.params), len(args))
	room, segment, top := m.locals.take(m, n)
	for i, a := range args {
		a(m, &room[i])
	}
	saved, base := m.frame, m.scratchBase
	m.frame, m.scratchBase = room, m.scratch
	flow := f.body(m)
	m.frame = saved
	v := m.result
	m.result = value{}
	m.dropLocals(room)
	m.locals.segment, m.locals.top = segment, top
	m.relax()
	m.scratchBase = base
	m.stack -= f.cost
	if flow != flowOn && flow != flowReturn {
		panic(unwinding{flow})
	}
	return v
}

// dropLocals gives back the memory of parameters.
func (m *machine) dropLocals(room []local) {
	for i := range room {
		l := &room[i]
		if l.own {
			m.release(l.arr)
		}
		if len(l.v.s) >= bigText {
			m.owe(-charge(l.v.s))
		}
		*l = local{}
	}
}

// indirect compiles @name(...).
func (c *compiler) indirect(x *syntax.Indirect) code {
	name := c.name(x.Fn).str
	if _, ok := c.m.prog.Funcs[x.Fn.Ident]; ok {
		ident := x.Fn.Ident
		name = func(*machine) string { return ident }
	}
	args := c.arguments(x.Args)
	builtins := map[string]code{}
	values := make([]syntax.Expr, len(x.Args))
	copy(values, x.Args)
	return ofVal(func(m *machine) value {
		s := name(m)
		if i, ok := m.prog.Funcs[s]; ok {
			return m.invoke(m.funcs[i], args)
		}
		b, ok := builtins[s]
		if !ok {
			if !syntax.IsBuiltin(s) {
				m.fatal("`%s' is not a function, so it cannot be called indirectly", s)
			}
			call := syntax.NewBuiltin(s, values, x.Pos)
			if call == nil {
				m.fatal("function `%s' cannot be called indirectly with %d arguments", s,
					len(values))
			}
			b = (&compiler{m: m}).builtin(call)
			builtins[s] = b
		}
		return b.val(m)
	})
}

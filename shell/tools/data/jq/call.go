package jq

import (
	"fmt"

	"github.com/itchyny/gojq"
)

// native is a function written in Go. Its arguments are values. It is called for all their
// combinations.
type native struct {
	arity int
	run   func(m *vm, v any, args []any) (any, error)
}

// call compiles a variable or a function call.
func (c *compiler) call(s *scope, f *gojq.Func) (fn, error) {
	if f.Name[0] == '$' {
		return c.variable(s, f.Name)
	}
	if hops, at, ok := s.lookup(f.Name, len(f.Args)); ok {
		if at.def == nil {
			return c.m.argument(hops), nil
		}
		return c.callDef(s, hops, at.def, f)
	}
	name := fmt.Sprintf("%s/%d", f.Name, len(f.Args))
	if d := c.mod.defs[name]; d != nil {
		return c.callDef(s, -1, d, f)
	}
	if run, ok, err := c.special(s, f); ok || err != nil {
		return run, err
	}
	if n, ok := natives()[name]; ok {
		return c.callNative(s, n, f.Args)
	}
	d, err := c.builtin(name)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, compileErrorf("%s is not defined", name)
	}
	return c.callDef(s, -1, d, f)
}

func (c *compiler) variable(s *scope, name string) (fn, error) {
	if hops, _, ok := s.lookup(name, -1); ok {
		return func(e *env, p *path, _ any, out out) error { return out(p.lost(), e.hop(hops).val) }, nil
	}
	if v, ok := c.mod.vars[name]; ok {
		return constant(v), nil
	}
	if v, ok := c.globals[name[1:]]; ok {
		return constant(v), nil
	}
	switch name {
	case "$ENV":
		m := c.m
		return func(_ *env, p *path, _ any, out out) error { return out(p.lost(), m.environ()) }, nil
	case "$__loc__":
		o := NewObject(2)
		o.Set("file", "<top-level>")
		o.Set("line", 1.0)
		return constant(o), nil
	}
	return nil, compileErrorf("%s is not defined", name)
}

// argument calls an argument of the enclosing function.
func (m *vm) argument(hops int) fn {
	return func(e *env, p *path, v any, out out) error {
		if err := m.enter(); err != nil {
			return err
		}
		defer m.leave()
		a := e.hop(hops)
		return a.run(a.at, p, v, out)
	}
}

// callDef calls a function written in jq. hops is -1 for a builtin, which sees no bindings around
// it.
func (c *compiler) callDef(s *scope, hops int, d *def, f *gojq.Func) (fn, error) {
	args := make([]fn, len(f.Args))
	for i, q := range f.Args {
		var err error
		if args[i], err = c.query(s, q); err != nil {
			return nil, err
		}
	}
	m := c.m
	return func(e *env, p *path, v any, out out) error {
		if err := m.enter(); err != nil {
			return err
		}
		defer m.leave()
		at := &env{}
		if hops >= 0 {
			at = e.hop(hops)
		}
		for _, a := range args {
			at = &env{up: at, run: a, at: e}
		}
		return d.body(at, p, v, out)
	}, nil
}

// callNative calls a function written in Go with all combinations of its arguments. The outer loop
// is over the last argument.
func (c *compiler) callNative(s *scope, n native, args []*gojq.Query) (fn, error) {
	m := c.m
	run := func(_ *env, v any, vals []any, out func(any) error) error {
		if err := m.step(1); err != nil {
			return err
		}
		x, err := n.run(m, v, vals)
		if err != nil {
			return err
		}
		return out(x)
	}
	for i, q := range args {
		arg, err := c.query(s, q)
		if err != nil {
			return nil, err
		}
		inner := run
		run = func(e *env, v any, vals []any, out func(any) error) error {
			return arg(e, nil, v, func(_ *path, x any) error {
				vals[i] = x
				return inner(e, v, vals, out)
			})
		}
	}
	return func(e *env, p *path, v any, out out) error {
		return run(e, v, make([]any, n.arity), func(x any) error { return out(p.lost(), x) })
	}, nil
}

// builtin compiles a function of the library. It returns nil when there is none.
func (c *compiler) builtin(name string) (*def, error) {
	if d, ok := c.defs[name]; ok {
		return d, nil
	}
	src, ok := library()[name]
	if !ok {
		return nil, nil
	}
	d := &def{src: src}
	d.in = &scope{nil, src.Name, len(src.Args), d}
	c.defs[name] = d
	defer func(m *module) { c.mod = m }(c.mod)
	c.mod = newModule("")
	return d, c.body(d)
}

// simple applies a function of one value to each result.
func (m *vm) simple(run fn, f func(v any) (any, error)) fn {
	return func(e *env, p *path, v any, out out) error {
		return run(e, nil, v, func(_ *path, x any) error {
			y, err := f(x)
			if err == nil {
				err = m.step(1)
			}
			if err == nil {
				if s, ok := y.(string); ok {
					_, err = m.str(s)
				}
			}
			if err != nil {
				return err
			}
			return out(p.lost(), y)
		})
	}
}

// args compiles the arguments of a special form.
func (c *compiler) args(s *scope, f *gojq.Func) ([]fn, error) {
	var out []fn
	for _, q := range f.Args {
		a, err := c.query(s, q)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

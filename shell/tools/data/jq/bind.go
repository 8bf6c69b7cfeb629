package jq

import (
	"slices"

	"github.com/itchyny/gojq"
)

// hop goes n bindings out.
func (e *env) hop(n int) *env {
	for range n {
		e = e.up
	}
	return e
}

// lookup finds a name. hops is the number of bindings between it and the innermost one.
func (s *scope) lookup(name string, arity int) (hops int, at *scope, ok bool) {
	for at = s; at != nil; at, hops = at.up, hops+1 {
		if at.name == name && (at.arity == arity || arity == 0 && at.def == nil && at.arity == 0) {
			return hops, at, true
		}
	}
	return 0, nil, false
}

// names lists the variables of a pattern.
func names(p *gojq.Pattern, out []string) []string {
	add := func(n string) {
		if n != "" && n[0] == '$' && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	add(p.Name)
	for _, a := range p.Array {
		out = names(a, out)
	}
	for _, o := range p.Object {
		add(o.Key)
		if o.Val != nil {
			out = names(o.Val, out)
		}
	}
	return out
}

// binder sets the variables of a pattern, which are the innermost bindings of e. It calls next for
// each possible match.
type binder func(e *env, v any, next func() error) error

// pattern compiles a pattern. s has its variables.
func (c *compiler) pattern(s *scope, p *gojq.Pattern) (binder, error) {
	if c.depth++; c.depth > maxNesting {
		return nil, &CompileError{"program is nested too deeply"}
	}
	defer func() { c.depth-- }()
	m := c.m
	if p.Name != "" {
		hops, _, _ := s.lookup(p.Name, -1)
		return func(e *env, v any, next func() error) error {
			e.hop(hops).val = v
			return next()
		}, nil
	}
	all := func(_ *env, _ any, next func() error) error { return next() }
	var parts []func(e *env, v any, next func() error) error
	for i, a := range p.Array {
		b, err := c.pattern(s, a)
		if err != nil {
			return nil, err
		}
		parts = append(parts, func(e *env, v any, next func() error) error {
			if v != nil {
				if _, ok := v.([]any); !ok {
					return errorf("Cannot index %s with number", TypeName(v))
				}
			}
			x, err := m.at(v, float64(i))
			if err != nil {
				return err
			}
			return b(e, x, next)
		})
	}
	for _, o := range p.Object {
		part, err := c.patternKey(s, o)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	for _, part := range slices.Backward(parts) {
		rest := all
		all = func(e *env, v any, next func() error) error {
			return part(e, v, func() error { return rest(e, v, next) })
		}
	}
	return all, nil
}

func (c *compiler) patternKey(s *scope, o *gojq.PatternObject) (binder, error) {
	var key fn
	var err error
	hops := -1
	switch {
	case o.Key != "" && o.Key[0] == '$':
		key = constant(o.Key[1:])
		hops, _, _ = s.lookup(o.Key, -1)
	case o.Key != "":
		key = constant(o.Key)
	case o.KeyString != nil:
		key, err = c.str(s, o.KeyString, toText)
	default:
		key, err = c.query(s, o.KeyQuery)
	}
	var inner binder
	if err == nil && o.Val != nil {
		inner, err = c.pattern(s, o.Val)
	}
	if err != nil {
		return nil, err
	}
	m := c.m
	return func(e *env, v any, next func() error) error {
		return key(e, nil, v, func(_ *path, k any) error {
			if _, ok := k.(string); !ok {
				return errorf("Cannot index %s with %s", TypeName(v), TypeName(k))
			}
			x, err := m.at(v, k)
			if err != nil {
				return err
			}
			if hops >= 0 {
				e.hop(hops).val = x
			}
			if inner == nil {
				return next()
			}
			return inner(e, x, next)
		})
	}, nil
}

// patterns compiles the alternatives of a binding and returns the scope with its variables.
func (c *compiler) patterns(s *scope, ps []*gojq.Pattern) (*scope, int, []binder, error) {
	var vars []string
	for _, p := range ps {
		vars = names(p, vars)
	}
	for _, n := range vars {
		s = &scope{s, n, -1, nil}
	}
	var out []binder
	for _, p := range ps {
		b, err := c.pattern(s, p)
		if err != nil {
			return nil, 0, nil, err
		}
		out = append(out, b)
	}
	return s, len(vars), out, nil
}

// push adds n bindings.
func push(e *env, n int) *env {
	for range n {
		e = &env{up: e}
	}
	return e
}

// bind compiles "source as patterns | body".
func (c *compiler) bind(s *scope, q *gojq.Query) (fn, error) {
	source, err := c.query(s, q.Left)
	if err != nil {
		return nil, err
	}
	inner, n, binders, err := c.patterns(s, q.Patterns)
	if err != nil {
		return nil, err
	}
	body, err := c.query(inner, q.Right)
	if err != nil {
		return nil, err
	}
	return func(e *env, p *path, v any, out out) error {
		return source(e, nil, v, func(_ *path, x any) error {
			var err error
			for i, b := range binders {
				at := push(e, n)
				emitted := false
				err = b(at, x, func() error {
					return body(at, p, v, func(p *path, v any) error {
						if err := out(p, v); err != nil {
							emitted = true
							return err
						}
						return nil
					})
				})
				if err == nil || emitted || fatal(err) || i == len(binders)-1 {
					return err
				}
			}
			return err
		})
	}, nil
}

// fold compiles reduce and foreach.
func (c *compiler) fold(s *scope, t *gojq.Term) (fn, error) {
	var q, start, update, extract *gojq.Query
	var ps []*gojq.Pattern
	if r := t.Reduce; r != nil {
		q, ps, start, update = r.Query, r.Patterns, r.Start, r.Update
	} else {
		f := t.Foreach
		q, ps, start, update, extract = f.Query, f.Patterns, f.Start, f.Update, f.Extract
	}
	source, err := c.query(s, q)
	if err != nil {
		return nil, err
	}
	init, err := c.query(s, start)
	if err != nil {
		return nil, err
	}
	inner, n, binders, err := c.patterns(s, ps)
	if err != nil {
		return nil, err
	}
	step, err := c.query(inner, update)
	if err != nil {
		return nil, err
	}
	show := fn(identity)
	if extract != nil {
		if show, err = c.query(inner, extract); err != nil {
			return nil, err
		}
	}
	each := t.Foreach != nil
	m := c.m
	return func(e *env, p *path, v any, out out) error {
		return init(e, p, v, func(p *path, state any) error {
			err := source(e, nil, v, func(_ *path, x any) error {
				if err := m.step(1); err != nil {
					return err
				}
				at := push(e, n)
				return binders[0](at, x, func() error {
					some := false
					before := state
					if !each {
						state = nil // so that nobody else holds it
					}
					err := step(at, p, before, func(q *path, s any) error {
						p, state, some = q, s, true
						if each {
							return show(at, q, s, out)
						}
						return nil
					})
					if !some && !each {
						p, state = p.lost(), nil
					}
					return err
				})
			})
			if err != nil || each {
				return err
			}
			return out(p, state)
		})
	}, nil
}

// recurse passes on a value and then, level by level, the results of f.
func (m *vm) recurse(f fn) fn {
	var run fn
	run = func(e *env, p *path, v any, out out) error {
		if err := m.enter(); err != nil {
			return err
		}
		defer m.leave()
		if err := out(p, v); err != nil {
			return err
		}
		return f(e, p, v, func(p *path, v any) error { return run(e, p, v, out) })
	}
	return run
}

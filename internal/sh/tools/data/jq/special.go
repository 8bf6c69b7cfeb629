package jq

import (
	"errors"
	"io"
	"slices"

	"github.com/itchyny/gojq"
)

// special compiles the builtins whose arguments are programs.
func (c *compiler) special(s *scope, f *gojq.Func) (fn, bool, error) {
	build := specials[f.Name]
	if build == nil {
		return nil, false, nil
	}
	if run := build(c.m, len(f.Args), nil); run == nil {
		return nil, false, nil
	}
	a, err := c.args(s, f)
	if err != nil {
		return nil, true, err
	}
	return build(c.m, len(a), a), true, nil
}

// specials make functions of their arguments. Asked with no arguments they say whether they take that many.
var specials map[string]func(m *vm, n int, a []fn) fn

// form is a special of a fixed number of arguments.
func form(arity int, build func(m *vm, a []fn) fn) func(m *vm, n int, a []fn) fn {
	return func(m *vm, n int, a []fn) fn {
		switch {
		case n != arity:
			return nil
		case a == nil && n > 0:
			return identity
		}
		return build(m, a)
	}
}

// errEnough ends a generator that has given enough.
type errEnough struct{ _ byte }

func (*errEnough) Error() string { return "enough" }

func init() {
	specials = map[string]func(m *vm, n int, a []fn) fn{
		"empty": form(0, func(*vm, []fn) fn { return func(*env, *path, any, out) error { return nil } }),
		"path":  form(1, pathForm),
		"select": form(1, func(m *vm, a []fn) fn {
			return func(e *env, p *path, v any, out out) error {
				return a[0](e, nil, v, func(_ *path, x any) error {
					if !Truthy(x) {
						return nil
					}
					return out(p, v)
				})
			}
		}),
		"recurse": func(m *vm, n int, a []fn) fn {
			switch {
			case n == 0:
				return m.recurse(m.try(m.iterate(identity), nil))
			case n > 2:
				return nil
			case a == nil:
				return identity
			case n == 1:
				return m.recurse(a[0])
			}
			return m.recurse(func(e *env, p *path, v any, out out) error {
				return a[0](e, p, v, func(p *path, v any) error {
					return a[1](e, nil, v, func(_ *path, x any) error {
						if !Truthy(x) {
							return nil
						}
						return out(p, v)
					})
				})
			})
		},
		"map": form(1, func(m *vm, a []fn) fn {
			each := m.iterate(identity)
			return func(e *env, p *path, v any, show out) error {
				all, err := m.collect(func(e *env, _ *path, v any, next out) error {
					return each(e, nil, v, func(_ *path, v any) error { return a[0](e, nil, v, next) })
				}, e, v)
				if err != nil {
					return err
				}
				return show(p.lost(), all)
			}
		}),
		"sub":      subForm(""),
		"gsub":     subForm("g"),
		"tostream": form(0, tostreamForm),
		"first":    form(1, func(m *vm, a []fn) fn { return m.limit(constant(1.0), a[0], false) }),
		"limit":    form(2, func(m *vm, a []fn) fn { return m.limit(a[0], a[1], false) }),
		"skip":     form(2, func(m *vm, a []fn) fn { return m.limit(a[0], a[1], true) }),
		"last":     form(1, lastForm),
		"isempty": form(1, func(m *vm, a []fn) fn {
			one := m.limit(constant(1.0), a[0], false)
			return func(e *env, p *path, v any, out out) error {
				empty := true
				if err := one(e, nil, v, func(*path, any) error { empty = false; return nil }); err != nil {
					return err
				}
				return out(p.lost(), empty)
			}
		}),
		"until":   form(2, untilForm),
		"while":   form(2, whileForm),
		"repeat":  form(1, func(m *vm, a []fn) fn { return m.recurse(a[0]) }),
		"range":   rangeForm,
		"input":   form(0, inputForm),
		"inputs":  form(0, inputsForm),
		"any":     quantifier(true),
		"all":     quantifier(false),
		"getpath": form(1, getpathForm),
		"del": form(1, func(m *vm, a []fn) fn {
			return func(e *env, p *path, v any, out out) error {
				x, err := m.del(a[0], e, v)
				if err != nil {
					return err
				}
				return out(p.lost(), x)
			}
		}),
		"sort_by":   form(1, keyed((*vm).sortBy)),
		"group_by":  form(1, keyed((*vm).groupBy)),
		"unique_by": form(1, keyed((*vm).uniqueBy)),
		"min_by":    form(1, keyed(func(m *vm, a []ranked) (any, error) { return m.extreme(a, -1), nil })),
		"max_by":    form(1, keyed(func(m *vm, a []ranked) (any, error) { return m.extreme(a, 1), nil })),
		"debug": func(m *vm, n int, a []fn) fn {
			if n > 1 {
				return nil
			}
			msg := fn(identity)
			if a != nil && n == 1 {
				msg = a[0]
			}
			return func(e *env, p *path, v any, out out) error {
				err := msg(e, nil, v, func(_ *path, x any) error {
					if m.opts.Debug == nil {
						return nil
					}
					return m.opts.Debug(x)
				})
				if err != nil {
					return err
				}
				return out(p, v)
			}
		},
		"stderr": form(0, func(m *vm, _ []fn) fn {
			return func(e *env, p *path, v any, out out) error {
				if m.opts.Stderr != nil {
					text, err := m.text(v)
					if err == nil {
						err = m.opts.Stderr(text)
					}
					if err != nil {
						return err
					}
				}
				return out(p, v)
			}
		}),
	}
}

func pathForm(m *vm, a []fn) fn {
	return func(e *env, p *path, v any, out out) error {
		return m.paths(a[0], e, v, func(list []any) error { return out(p.lost(), list) })
	}
}

// limit passes on the first n results, or all but them.
func (m *vm) limit(count, body fn, skip bool) fn {
	return func(e *env, p *path, v any, out out) error {
		return count(e, nil, v, func(_ *path, c any) error {
			n, ok := number(c)
			if !ok {
				return errorf("Invalid arguments")
			}
			if n <= 0 && !skip {
				return nil
			}
			enough := &errEnough{}
			err := body(e, p, v, func(p *path, v any) error {
				n--
				if skip {
					if n >= 0 {
						return nil
					}
					return out(p, v)
				}
				if err := out(p, v); err != nil {
					return err
				}
				if n <= 0 {
					return enough
				}
				return nil
			})
			if err == error(enough) {
				return nil
			}
			return err
		})
	}
}

func lastForm(m *vm, a []fn) fn {
	return func(e *env, p *path, v any, out out) error {
		var last any
		var at *path
		some := false
		err := a[0](e, p, v, func(p *path, v any) error { last, at, some = v, p, true; return nil })
		if err != nil || !some {
			return err
		}
		return out(at, last)
	}
}

// untilForm is until(cond; update), as a loop where update has one result.
func untilForm(m *vm, a []fn) fn {
	var run fn
	run = func(e *env, p *path, v any, out out) error {
		if err := m.enter(); err != nil {
			return err
		}
		defer m.leave()
		for {
			done, n := false, 0
			if err := a[0](e, nil, v, func(_ *path, x any) error { done = Truthy(x); n++; return nil }); err != nil || n == 0 {
				return err
			}
			if done {
				return out(p, v)
			}
			var next []any
			var at []*path
			if err := a[1](e, p, v, func(p *path, v any) error { next, at = append(next, v), append(at, p); return m.step(1) }); err != nil {
				return err
			}
			if len(next) == 0 {
				return nil
			}
			for i := range len(next) - 1 {
				if err := run(e, at[i], next[i], out); err != nil {
					return err
				}
			}
			p, v = at[len(at)-1], next[len(next)-1]
			if err := m.step(1); err != nil {
				return err
			}
		}
	}
	return run
}

func whileForm(m *vm, a []fn) fn {
	var run fn
	run = func(e *env, p *path, v any, out out) error {
		if err := m.enter(); err != nil {
			return err
		}
		defer m.leave()
		return a[0](e, nil, v, func(_ *path, x any) error {
			if !Truthy(x) {
				return nil
			}
			if err := out(p, v); err != nil {
				return err
			}
			return a[1](e, p, v, func(p *path, v any) error { return run(e, p, v, out) })
		})
	}
	return run
}

func rangeForm(m *vm, n int, a []fn) fn {
	switch {
	case n < 1 || n > 3:
		return nil
	case a == nil:
		return identity
	}
	from, to, by := fn(constant(0.0)), a[0], fn(constant(1.0))
	if n > 1 {
		from, to = a[0], a[1]
	}
	if n > 2 {
		by = a[2]
	}
	return func(e *env, p *path, v any, out out) error {
		return from(e, nil, v, func(_ *path, x any) error {
			return to(e, nil, v, func(_ *path, y any) error {
				return by(e, nil, v, func(_ *path, z any) error {
					i, ok1 := number(x)
					end, ok2 := number(y)
					step, ok3 := number(z)
					if !ok1 || !ok2 || !ok3 {
						return errorf("Range bounds must be numeric")
					}
					for step > 0 && i < end || step < 0 && i > end || step == 0 && i < end {
						if err := m.step(1); err != nil {
							return err
						}
						if err := out(p.lost(), i); err != nil {
							return err
						}
						i += step
					}
					return nil
				})
			})
		})
	}
}

func (m *vm) input() (any, error) {
	if m.opts.Input == nil {
		return nil, io.EOF
	}
	return m.opts.Input()
}

func inputForm(m *vm, _ []fn) fn {
	return func(e *env, p *path, _ any, out out) error {
		v, err := m.input()
		if err == io.EOF {
			return errorf("No more inputs")
		}
		if err != nil {
			return err
		}
		return out(p.lost(), v)
	}
}

func inputsForm(m *vm, _ []fn) fn {
	return func(e *env, p *path, _ any, out out) error {
		for {
			v, err := m.input()
			if err == io.EOF {
				return nil
			}
			if err == nil {
				err = out(p.lost(), v)
			}
			if err != nil {
				return err
			}
		}
	}
}

// quantifier is any or all: of the input, of a condition on its parts, or of a generator and a condition.
func quantifier(want bool) func(m *vm, n int, a []fn) fn {
	return func(m *vm, n int, a []fn) fn {
		if n > 2 {
			return nil
		}
		if a == nil && n > 0 {
			return identity
		}
		gen, cond := m.iterate(identity), fn(identity)
		switch n {
		case 1:
			cond = a[0]
		case 2:
			gen, cond = a[0], a[1]
		}
		return func(e *env, p *path, v any, out out) error {
			enough := &errEnough{}
			err := gen(e, nil, v, func(_ *path, v any) error {
				return cond(e, nil, v, func(_ *path, x any) error {
					if Truthy(x) == want {
						return enough
					}
					return nil
				})
			})
			if err == error(enough) {
				return out(p.lost(), want)
			}
			if err != nil {
				return err
			}
			return out(p.lost(), !want)
		}
	}
}

func getpathForm(m *vm, a []fn) fn {
	return func(e *env, p *path, v any, out out) error {
		return a[0](e, nil, v, func(_ *path, k any) error {
			list, ok := k.([]any)
			if !ok {
				return errorf("Path must be specified as an array")
			}
			x, err := m.getPath(v, list)
			if err != nil {
				return err
			}
			if p == noPath {
				return errorf("Invalid path expression with result %s", clip(v))
			}
			for _, k := range list {
				p = p.then(k)
			}
			return out(p, x)
		})
	}
}

// ranked is an element with the key that it is sorted by.
type ranked struct {
	key []any
	val any
}

// keyed gives a function the elements of its input with their keys.
func keyed(f func(m *vm, a []ranked) (any, error)) func(m *vm, a []fn) fn {
	return func(m *vm, a []fn) fn {
		return func(e *env, p *path, v any, out out) error {
			list, ok := v.([]any)
			if !ok {
				return errorf("Cannot index %s with number", TypeName(v))
			}
			all := make([]ranked, len(list))
			for i, x := range list {
				key, err := m.collect(a[0], e, x)
				if err != nil {
					return err
				}
				all[i] = ranked{key, x}
			}
			x, err := f(m, all)
			if err == nil {
				err = m.value(x)
			}
			if err != nil {
				return err
			}
			return out(p.lost(), x)
		}
	}
}

func (m *vm) sortRanked(a []ranked) error {
	var stop error
	slices.SortStableFunc(a, func(x, y ranked) int {
		if stop == nil {
			stop = m.step(1)
		}
		if stop != nil {
			return 0
		}
		return m.cmp(x.key, y.key)
	})
	return stop
}

func (m *vm) sortBy(a []ranked) (any, error) {
	err := m.sortRanked(a)
	out := make([]any, len(a))
	for i, r := range a {
		out[i] = r.val
	}
	return out, err
}

func (m *vm) groups(a []ranked) ([][]any, error) {
	if err := m.sortRanked(a); err != nil {
		return nil, err
	}
	var out [][]any
	for i, r := range a {
		if i == 0 || m.cmp(a[i-1].key, r.key) != 0 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r.val)
	}
	return out, nil
}

func (m *vm) groupBy(a []ranked) (any, error) {
	groups, err := m.groups(a)
	out := make([]any, len(groups))
	for i, g := range groups {
		out[i] = g
	}
	return out, err
}

func (m *vm) uniqueBy(a []ranked) (any, error) {
	groups, err := m.groups(a)
	out := make([]any, len(groups))
	for i, g := range groups {
		out[i] = g[0]
	}
	return out, err
}

// extreme returns the first least or the last greatest element.
func (m *vm) extreme(a []ranked, sign int) any {
	var best any
	for i, r := range a {
		if i == 0 {
			best = r.val
			continue
		}
		c := m.cmp(r.key, a[0].key)
		if sign < 0 && c < 0 || sign > 0 && c >= 0 {
			best, a[0] = r.val, r
		}
	}
	return best
}

// ValueError is an error that a program raised, with its value.
type ValueError struct {
	Value any
	text  string
}

// Error implements error.
func (e *ValueError) Error() string {
	if e.text != "" {
		return e.text
	}
	if s, ok := e.Value.(string); ok {
		return s
	}
	return Text(e.Value) + " (not a string)"
}

// Halt ends the program.
type Halt struct {
	Status int
	Value  any // to write on standard error
	Say    bool
}

// Error implements error.
func (*Halt) Error() string { return "halt" }

func errorValue(err error) any {
	var v *ValueError
	if errors.As(err, &v) {
		return v.Value
	}
	return err.Error()
}

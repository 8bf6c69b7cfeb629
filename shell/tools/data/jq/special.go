package jq

import (
	"errors"

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

// specials make functions from their arguments. Called without arguments, they report whether they
// accept n arguments.
var specials map[string]func(m *vm, n int, a []fn) fn

// form makes a special with a fixed number of arguments.
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

// errEnough ends a generator when no more results are needed.
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

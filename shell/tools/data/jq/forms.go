package jq

import "io"

func pathForm(m *vm, a []fn) fn {
	return func(e *env, p *path, v any, out out) error {
		return m.paths(a[0], e, v, func(list []any) error { return out(p.lost(), list) })
	}
}

// limit passes on the first n results, or with skip all others.
func (m *vm) limit(count, body fn, skip bool) fn {
	return func(e *env, p *path, v any, out out) error {
		return count(e, nil, v, func(_ *path, c any) error {
			n, ok := number(c)
			if !ok {
				return errorf("Invalid arguments")
			}
			switch {
			case n == 0 && !skip:
				return nil
			case n < 0 && !skip:
				return body(e, p, v, out)
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

// untilForm is until(cond; update). It is a loop where update has one result.
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
			return errorf("break")
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

// quantifier is any or all: for the input, for a condition on its parts, or for a generator and a
// condition.
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

package jq

import (
	"math"

	"github.com/itchyny/gojq"
)

// index compiles an access to a part of each result of run.
func (c *compiler) index(s *scope, run fn, x *gojq.Index) (fn, error) {
	if x.IsSlice {
		return c.slice(s, run, x)
	}
	var key fn
	var err error
	switch {
	case x.Name != "":
		key = nil
		name := x.Name
		m := c.m
		return func(e *env, p *path, v any, out out) error {
			return run(e, p, v, func(p *path, v any) error { return m.part(p, v, name, out) })
		}, nil
	case x.Str != nil:
		key, err = c.str(s, x.Str, toText)
	default:
		key, err = c.query(s, x.Start)
	}
	if err != nil {
		return nil, err
	}
	m := c.m
	return func(e *env, p *path, v any, out out) error {
		return key(e, nil, v, func(_ *path, k any) error {
			return run(e, p, v, func(p *path, v any) error { return m.part(p, v, k, out) })
		})
	}, nil
}

// part goes one step down.
func (m *vm) part(p *path, v, k any, out out) error {
	if err := m.step(1); err != nil {
		return err
	}
	if p == noPath {
		return lostPath(v, k)
	}
	x, err := m.at(v, k)
	if err != nil {
		return err
	}
	return out(p.then(k), x)
}

func lostPath(v, k any) error {
	return errorf("Invalid path expression near attempt to access element %s of %s", clip(k), clip(v))
}

func (c *compiler) slice(s *scope, run fn, x *gojq.Index) (fn, error) {
	from, to := fn(constant(nil)), fn(constant(nil))
	var err error
	if x.Start != nil {
		from, err = c.query(s, x.Start)
	}
	if err == nil && x.End != nil {
		to, err = c.query(s, x.End)
	}
	if err != nil {
		return nil, err
	}
	m := c.m
	return func(e *env, p *path, v any, out out) error {
		return to(e, nil, v, func(_ *path, b any) error {
			return from(e, nil, v, func(_ *path, a any) error {
				k := sliceKey(a, b)
				return run(e, p, v, func(p *path, v any) error { return m.part(p, v, k, out) })
			})
		})
	}, nil
}

func sliceKey(from, to any) *Object {
	k := NewObject(2)
	k.Set("start", from)
	k.Set("end", to)
	return k
}

// iterate passes on each part of each result of run.
func (m *vm) iterate(run fn) fn {
	return func(e *env, p *path, v any, out out) error {
		return run(e, p, v, func(p *path, v any) error {
			if p == noPath {
				return errorf("Invalid path expression near attempt to iterate through %s", clip(v))
			}
			switch v := v.(type) {
			case []any:
				for i, x := range v {
					if err := m.step(1); err != nil {
						return err
					}
					var key any
					if p != nil {
						key = float64(i)
					}
					if err := out(p.then(key), x); err != nil {
						return err
					}
				}
				return nil
			case *Object:
				for i, k := range v.keys {
					if err := m.step(1); err != nil {
						return err
					}
					if err := out(p.then(k), v.vals[i]); err != nil {
						return err
					}
				}
				return nil
			}
			return errorf("Cannot iterate over %s", described(v))
		})
	}
}

// at is v[k].
func (m *vm) at(v, k any) (any, error) {
	switch k := k.(type) {
	case string:
		switch v := v.(type) {
		case nil:
			return nil, nil
		case *Object:
			x, _ := v.Get(k)
			return x, nil
		}
		return nil, errorf(`Cannot index %s with string "%s"`, TypeName(v), k)
	case float64, Number:
		n, _ := number(k)
		switch v := v.(type) {
		case nil:
			return nil, nil
		case []any:
			if math.IsNaN(n) {
				return nil, nil
			}
			i := math.Floor(n)
			if i < 0 {
				i += float64(len(v))
			}
			if i < 0 || i >= float64(len(v)) {
				return nil, nil
			}
			return v[int(i)], nil
		}
		return nil, errorf("Cannot index %s with number", TypeName(v))
	case *Object:
		switch v := v.(type) {
		case nil:
			return nil, nil
		case []any:
			a, b, err := bounds(k, len(v))
			if err != nil {
				return nil, err
			}
			return v[a:b:b], nil
		case string:
			return sliceString(v, k)
		}
		if _, ok := k.Get("start"); ok || TypeName(v) != "object" {
			return nil, errorf("Cannot index %s with object", TypeName(v))
		}
	case []any:
		if v, ok := v.([]any); ok {
			return m.indices(v, k)
		}
		if v == nil {
			return nil, nil
		}
	}
	return nil, errorf("Cannot index %s with %s", TypeName(v), TypeName(k))
}

// bounds computes the limits of a slice for a length.
func bounds(k *Object, n int) (from, to int, err error) {
	one := func(name string, other float64, round func(float64) float64) (float64, error) {
		v, _ := k.Get(name)
		if v == nil {
			return other, nil
		}
		f, ok := number(v)
		if !ok {
			return 0, errorf("Start and end indices of an array slice must be numbers")
		}
		if math.IsNaN(f) {
			return other, nil
		}
		if f < 0 {
			f += float64(n)
		}
		return min(max(round(f), 0), float64(n)), nil
	}
	a, err := one("start", 0, math.Floor)
	if err != nil {
		return 0, 0, err
	}
	b, err := one("end", float64(n), math.Ceil)
	return int(a), max(int(b), int(a)), err
}

// sliceString returns a slice of a string, counted in characters.
func sliceString(s string, k *Object) (any, error) {
	n, ascii := 0, true
	for i := range s {
		n++
		ascii = ascii && s[i] < 0x80
	}
	a, b, err := bounds(k, n)
	if err != nil {
		return nil, err
	}
	if ascii {
		return s[a:b], nil
	}
	r := []rune(s)
	return string(r[a:b]), nil
}

// getPath follows a path.
func (m *vm) getPath(v any, path []any) (any, error) {
	for _, k := range path {
		if v == nil {
			return nil, nil
		}
		x, err := m.at(v, k)
		if err != nil {
			return nil, err
		}
		v = x
	}
	return v, m.step(len(path))
}

// paths calls fn with the path of each result of f.
func (m *vm) paths(f fn, e *env, v any, fn func(path []any) error) error {
	return f(e, rootPath, v, func(p *path, x any) error {
		if p == noPath {
			return errorf("Invalid path expression with result %s", clip(x))
		}
		list := p.list()
		if err := m.step(1 + len(list)); err != nil {
			return err
		}
		return fn(list)
	})
}

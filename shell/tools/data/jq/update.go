package jq

import (
	"math"
	"slices"
	"unsafe"
)

// assign is paths = values.
func (m *vm) assign(left, right fn) fn {
	return func(e *env, p *path, v any, out out) error {
		return right(e, nil, v, func(_ *path, r any) error {
			x, own := v, owned{}
			err := m.paths(left, e, v, func(path []any) error {
				var err error
				x, err = m.set(x, path, own, func(any) (any, error) { return r, nil })
				own.forget(r)
				return err
			})
			if err != nil {
				return err
			}
			return out(p.lost(), x)
		})
	}
}

// modify is paths |= f: each path gets the first result of f, or is deleted when there is none.
func (m *vm) modify(left, f fn) fn {
	return func(e *env, p *path, v any, out out) error {
		x, own := v, owned{}
		var gone []any
		err := m.paths(left, e, v, func(at []any) error {
			var err error
			none := false
			x, err = m.set(x, at, own, func(old any) (any, error) {
				own.forget(old)
				enough := &errEnough{}
				var got any
				none = true
				err := f(e, nil, old, func(_ *path, v any) error {
					got, none = v, false
					return enough
				})
				if err == error(enough) {
					err = nil
				}
				if none {
					got = old
				}
				return got, err
			})
			if none {
				gone = append(gone, at)
			}
			return err
		})
		if err == nil && len(gone) > 0 {
			x, err = m.delPaths(x, gone)
		}
		if err != nil {
			return err
		}
		return out(p.lost(), x)
	}
}

// update is paths op= values.
func (m *vm) update(left, right fn, op func(a, b any) (any, error)) fn {
	return func(e *env, p *path, v any, out out) error {
		return right(e, nil, v, func(_ *path, r any) error {
			x, own := v, owned{}
			err := m.paths(left, e, v, func(path []any) error {
				var err error
				x, err = m.set(x, path, own, func(old any) (any, error) {
					own.forget(old)
					return op(old, r)
				})
				own.forget(r)
				return err
			})
			if err != nil {
				return err
			}
			return out(p.lost(), x)
		})
	}
}

// owned are the arrays and objects that an update has made and no other code has seen. They are
// changed in place.
type owned map[unsafe.Pointer]struct{}

func place(v any) unsafe.Pointer {
	switch v := v.(type) {
	case []any:
		return unsafe.Pointer(unsafe.SliceData(v))
	case *Object:
		return unsafe.Pointer(v)
	}
	return nil
}

func (o owned) has(v any) bool {
	_, ok := o[place(v)]
	return ok
}

// forget removes a value that other code will see.
func (o owned) forget(v any) {
	if at := place(v); at != nil {
		if _, ok := o[at]; ok {
			clear(o)
		}
	}
}

const maxIndex = 1 << 29 // for an array that grows

// set returns v with the part at path replaced with the result of f.
func (m *vm) set(v any, path []any, own owned, f func(old any) (any, error)) (any, error) {
	if len(path) == 0 {
		return f(v)
	}
	if len(path) > maxDepth {
		return nil, errorf("Path too deep")
	}
	if err := m.step(1); err != nil {
		return nil, err
	}
	switch k := path[0].(type) {
	case string:
		o, ok := v.(*Object)
		switch {
		case v == nil:
			o = NewObject(1)
		case !ok:
			return nil, errorf(`Cannot index %s with string "%s"`, TypeName(v), k)
		}
		old, _ := o.Get(k)
		x, err := m.set(old, path[1:], own, f)
		if err != nil {
			return nil, err
		}
		if v == nil || !own.has(o) {
			if v != nil {
				if err := m.step(len(o.keys) >> 4); err != nil {
					return nil, err
				}
				o = o.clone()
			}
			own[place(o)] = struct{}{}
			o.Set(k, x)
			return o, m.value(o)
		}
		o.Set(k, x)
		return o, nil
	case float64, Number:
		return m.setIndex(v, k, path[1:], own, f)
	case *Object:
		return m.setSlice(v, k, path[1:], f)
	case []any:
		return nil, errorf("Cannot update field at array index of %s", TypeName(v))
	}
	return nil, errorf("Cannot index %s with %s", TypeName(v), TypeName(path[0]))
}

func (m *vm) setIndex(v, k any, rest []any, own owned, f func(old any) (any, error)) (any, error) {
	list, ok := v.([]any)
	if v != nil && !ok {
		return nil, errorf("Cannot index %s with number", TypeName(v))
	}
	n, _ := number(k)
	if math.IsNaN(n) {
		return nil, errorf("Cannot set array element at NaN index")
	}
	i := int(min(max(n, -maxIndex), maxIndex))
	if n < 0 {
		if i += len(list); i < 0 {
			return nil, errorf("Out of bounds negative array index")
		}
	}
	if i >= maxIndex {
		return nil, errorf("Array index too large")
	}
	var old any
	if i < len(list) {
		old = list[i]
	}
	x, err := m.set(old, rest, own, f)
	if err != nil {
		return nil, err
	}
	if i < len(list) && own.has(list) {
		list[i] = x
		return list, nil
	}
	size := max(len(list), i+1)
	if err := m.step(1 + size>>6); err != nil {
		return nil, err
	}
	if size > 1<<16 {
		if err := m.pay(int64(size) * refCost); err != nil {
			return nil, err
		}
		defer func() { _ = m.pay(-int64(size) * refCost) }()
	}
	out := make([]any, size)
	copy(out, list)
	out[i] = x
	own[place(out)] = struct{}{}
	return out, m.value(out)
}

func (m *vm) setSlice(v any, k *Object, rest []any, f func(old any) (any, error)) (any, error) {
	list, ok := v.([]any)
	if _, text := v.(string); text {
		return nil, errorf("Cannot update string slices")
	}
	if v != nil && !ok {
		return nil, errorf("Cannot update field at object index of %s", TypeName(v))
	}
	a, b, err := bounds(k, len(list))
	if err != nil {
		return nil, err
	}
	var old any
	if v != nil {
		old = list[a:b:b]
	}
	x, err := m.set(old, rest, owned{}, f)
	if err != nil {
		return nil, err
	}
	part, ok := x.([]any)
	if !ok {
		return nil, errorf("A slice of an array can only be assigned another array")
	}
	out := slices.Concat(list[:a], part, list[b:])
	if out == nil {
		out = []any{}
	}
	if err := m.step(1 + len(out)>>6); err != nil {
		return nil, err
	}
	return out, m.value(out)
}

// del removes what f leads to.
func (m *vm) del(f fn, e *env, v any) (any, error) {
	var all []any
	err := m.paths(f, e, v, func(path []any) error { all = append(all, path); return nil })
	if err != nil {
		return nil, err
	}
	return m.delPaths(v, all)
}

// delPaths removes parts. It removes the last ones first.
func (m *vm) delPaths(v any, paths []any) (any, error) {
	paths = slices.Clone(paths)
	slices.SortFunc(paths, Compare)
	// Remove the parts of one container together, so that it is copied once.
	for len(paths) > 0 {
		end := len(paths)
		last, ok := paths[end-1].([]any)
		if !ok {
			return nil, errorf("Path must be specified as an array")
		}
		if len(last) == 0 {
			return nil, nil
		}
		from := end - 1
		for from > 0 {
			p, ok := paths[from-1].([]any)
			if !ok || len(p) != len(last) || Compare(p[:len(p)-1], last[:len(p)-1]) != 0 {
				break
			}
			from--
		}
		var keys []any
		for _, p := range paths[from:end] {
			p := p.([]any)
			keys = append(keys, p[len(p)-1])
		}
		var err error
		if v, err = m.delAt(v, last[:len(last)-1], keys); err != nil {
			return nil, err
		}
		paths = paths[:from]
	}
	return v, nil
}

// delAt removes keys of the part at a path.
func (m *vm) delAt(v any, path, keys []any) (any, error) {
	if len(path) > 0 {
		old, err := m.getPath(v, path)
		if err != nil || old == nil {
			return v, err
		}
		return m.set(v, path, owned{}, func(old any) (any, error) { return m.delAt(old, nil, keys) })
	}
	if err := m.step(1 + len(keys)); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case *Object:
		gone := map[string]bool{}
		for _, k := range keys {
			s, ok := k.(string)
			if !ok {
				return nil, errorf("Cannot delete field at object index of %s", TypeName(k))
			}
			gone[s] = true
		}
		o := v.without(gone)
		return o, m.value(o)
	case []any:
		gone := map[int]bool{}
		for _, k := range keys {
			switch k := k.(type) {
			case float64, Number:
				f, _ := number(k)
				i := int(f)
				if i < 0 {
					i += len(v)
				}
				gone[i] = true
			case *Object:
				a, b, err := bounds(k, len(v))
				if err != nil {
					return nil, err
				}
				for i := a; i < b; i++ {
					gone[i] = true
				}
			default:
				return nil, errorf("Cannot delete field at array index of %s", TypeName(v))
			}
		}
		out := make([]any, 0, len(v))
		for i, x := range v {
			if !gone[i] {
				out = append(out, x)
			}
		}
		return out, m.value(out)
	}
	return nil, errorf("Cannot delete field at %s index of %s", map[bool]string{true: "object", false: "array"}[TypeName(keys[0]) == "string"], TypeName(v))
}

package jq

import (
	"slices"
	"strings"
)

func reverse(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return []any{}, nil
	case string:
		r := []rune(v)
		slices.Reverse(r)
		return string(r), nil
	case []any:
		out := append([]any{}, v...)
		slices.Reverse(out)
		return out, nil
	}
	return nil, errorf("Cannot reverse %s", described(v))
}

func transpose(v any) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errorf("Cannot iterate over %s", described(v))
	}
	width := 0
	for _, row := range list {
		r, ok := row.([]any)
		if !ok && row != nil {
			return nil, errorf("Cannot index %s with number", TypeName(row))
		}
		width = max(width, len(r))
	}
	if width*len(list) > 1<<24 {
		return nil, errorf("Array too large")
	}
	out := make([]any, width)
	for i := range out {
		col := make([]any, len(list))
		for j, row := range list {
			if r, _ := row.([]any); i < len(r) {
				col[j] = r[i]
			}
		}
		out[i] = col
	}
	return out, nil
}

func (m *vm) contains(v, w any, depth int) (bool, error) {
	if err := m.step(1); err != nil || depth > maxDepth {
		return false, err
	}
	switch v := v.(type) {
	case *Object:
		if w, ok := w.(*Object); ok {
			for i, k := range w.keys {
				x, has := v.Get(k)
				if !has {
					return false, nil
				}
				if in, err := m.contains(x, w.vals[i], depth+1); err != nil || !in {
					return false, err
				}
			}
			return true, nil
		}
	case []any:
		if w, ok := w.([]any); ok {
			for _, y := range w {
				found := false
				for _, x := range v {
					if TypeName(x) != TypeName(y) {
						continue
					}
					in, err := m.contains(x, y, depth+1)
					if err != nil {
						return false, err
					}
					if found = in; in {
						break
					}
				}
				if !found {
					return false, nil
				}
			}
			return true, nil
		}
	case string:
		if w, ok := w.(string); ok {
			return strings.Contains(v, w), nil
		}
	}
	if TypeName(v) == TypeName(w) {
		return m.cmp(v, w) == 0, nil
	}
	if depth > 0 {
		return false, nil
	}
	return false, errorf("%s and %s cannot have their containment checked", described(v), described(w))
}

// elements returns the results of .[] for an array or an object.
func elements(v any) ([]any, error) {
	switch v := v.(type) {
	case []any:
		return v, nil
	case *Object:
		return v.vals, nil
	}
	return nil, errorf("Cannot iterate over %s", described(v))
}

// sum is add.
func (m *vm) sum(v any, _ []any) (any, error) {
	list, err := elements(v)
	if err != nil {
		return nil, err
	}
	// Join strings and arrays in one operation.
	if n, ok := all[string](list); ok && n > 1 {
		var b strings.Builder
		for _, s := range list {
			b.WriteString(s.(string))
			if err := m.step(1); err != nil {
				return nil, err
			}
		}
		return m.str(b.String())
	}
	if n, ok := all[[]any](list); ok && n > 1 {
		out := []any{}
		for _, s := range list {
			out = append(out, s.([]any)...)
			if err := m.step(1 + len(s.([]any))>>5); err != nil {
				return nil, err
			}
		}
		return out, m.value(out)
	}
	var out any
	for _, x := range list {
		var err error
		if out, err = m.add(out, x); err == nil {
			err = m.step(1)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func all[T any](list []any) (int, bool) {
	for _, x := range list {
		if _, ok := x.(T); !ok {
			return 0, false
		}
	}
	return len(list), true
}

func sortable(v any, what string) ([]any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errorf("%s cannot be %s, as it is not an array", described(v), what)
	}
	return list, nil
}

func (m *vm) flatten(v any, depth float64) (any, error) {
	out := []any{}
	var walk func(v any, depth float64, level int) error
	walk = func(v any, depth float64, level int) error {
		list, ok := v.([]any)
		if o, is := v.(*Object); is && level == 0 {
			list, ok = o.vals, true
		}
		if !ok || level > maxDepth {
			return errorf("Cannot iterate over %s", described(v))
		}
		for _, x := range list {
			if err := m.step(1); err != nil {
				return err
			}
			if _, ok := x.([]any); ok && depth > 0 {
				if err := walk(x, depth-1, level+1); err != nil {
					return err
				}
				continue
			}
			if out = append(out, x); len(out)&0xffff == 0 {
				if err := m.pay(refCost << 16); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(v, depth, 0); err != nil {
		return nil, err
	}
	_ = m.pay(-int64(len(out)>>16) * refCost << 16)
	return out, m.value(out)
}

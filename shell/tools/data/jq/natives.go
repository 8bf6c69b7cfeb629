package jq

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// natives are the builtins written in Go, by name/arity.
var natives = sync.OnceValue(func() map[string]native {
	all := map[string]native{}
	add := func(name string, arity int, run func(m *vm, v any, a []any) (any, error)) {
		all[fmt.Sprintf("%s/%d", name, arity)] = native{arity, run}
	}
	one := func(name string, f func(v any) (any, error)) {
		add(name, 0, func(_ *vm, v any, _ []any) (any, error) { return f(v) })
	}
	addMath(add)
	addTime(add)
	addStrings(add)
	one("not", func(v any) (any, error) { return !Truthy(v), nil })
	one("true", func(any) (any, error) { return true, nil })
	one("false", func(any) (any, error) { return false, nil })
	one("null", func(any) (any, error) { return nil, nil })
	one("type", func(v any) (any, error) { return TypeName(v), nil })
	one("length", length)
	one("keys", func(v any) (any, error) { return keys(v, true) })
	one("keys_unsorted", func(v any) (any, error) { return keys(v, false) })
	one("reverse", reverse)
	one("toarray", func(v any) (any, error) {
		if _, ok := v.([]any); ok {
			return v, nil
		}
		return []any{v}, nil
	})
	one("transpose", transpose)
	one("error", func(v any) (any, error) { return nil, &ValueError{Value: v} })
	one("halt", func(any) (any, error) { return nil, &Halt{} })
	add("builtins", 0, builtins)
	add("modulemeta", 0, (*vm).moduleMeta)
	add("get_search_list", 0, func(m *vm, _ any, _ []any) (any, error) {
		out := []any{}
		for _, p := range m.opts.Paths {
			out = append(out, p)
		}
		return out, nil
	})
	one("from_entries", fromEntries)
	add("to_entries", 0, func(m *vm, v any, _ []any) (any, error) {
		list, err := toEntries(v)
		if err != nil {
			return nil, err
		}
		return list, m.value(list)
	})
	add("input_line_number", 0, func(m *vm, _ any, _ []any) (any, error) {
		if m.opts.Line == nil {
			return 0.0, nil
		}
		return float64(m.opts.Line()), nil
	})
	add("input_filename", 0, func(m *vm, _ any, _ []any) (any, error) {
		if m.opts.FileName == nil {
			return nil, nil
		}
		return m.opts.FileName(), nil
	})
	add("halt_error", 1, func(_ *vm, v any, a []any) (any, error) {
		n, ok := number(a[0])
		if !ok {
			return nil, errorf("halt_error/1: number required")
		}
		return nil, &Halt{Status: int(n), Value: v, Say: true}
	})
	add("tojson", 0, func(m *vm, v any, _ []any) (any, error) { return m.text(v) })
	add("tostring", 0, func(m *vm, v any, _ []any) (any, error) {
		if _, ok := v.(string); ok {
			return v, nil
		}
		return m.text(v)
	})
	add("fromjson", 0, func(m *vm, v any, _ []any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, errorf("%s cannot be parsed as JSON", described(v))
		}
		x, err := Parse(s, Budget{Step: m.Step, Pay: m.Pay})
		if err != nil {
			if _, ok := err.(*SyntaxError); !ok && strings.TrimSpace(s) != "" {
				return nil, err
			}
			if strings.TrimSpace(s) == "" {
				return nil, nil
			}
			return nil, errorf("%v (while parsing '%s')", err, s)
		}
		return x, nil
	})
	add("has", 1, has)
	add("contains", 1, func(m *vm, v any, a []any) (any, error) { return m.contains(v, a[0], 0) })
	add("add", 0, (*vm).sum)
	add("sort", 0, func(m *vm, v any, _ []any) (any, error) {
		list, err := sortable(v, "sorted")
		if err != nil {
			return nil, err
		}
		list = slices.Clone(list)
		slices.SortStableFunc(list, m.cmp)
		if list == nil {
			list = []any{}
		}
		return list, m.value(list)
	})
	add("unique", 0, func(m *vm, v any, _ []any) (any, error) {
		list, err := sortable(v, "sorted")
		if err != nil {
			return nil, err
		}
		list = append([]any{}, list...)
		slices.SortStableFunc(list, m.cmp)
		list = slices.CompactFunc(list, func(a, b any) bool { return m.cmp(a, b) == 0 })
		return list, m.value(list)
	})
	for sign, name := range map[int]string{-1: "min", 1: "max"} {
		add(name, 0, func(m *vm, v any, _ []any) (any, error) {
			list, err := sortable(v, "iterated over")
			if err != nil || len(list) == 0 {
				return nil, err
			}
			best := list[0]
			for _, x := range list[1:] {
				if c := m.cmp(x, best); c*sign > 0 || c == 0 && sign > 0 {
					best = x
				}
			}
			return best, nil
		})
	}
	add("flatten", 0, func(m *vm, v any, _ []any) (any, error) { return m.flatten(v, math.Inf(1)) })
	add("flatten", 1, func(m *vm, v any, a []any) (any, error) {
		n, ok := number(a[0])
		if !ok || n < 0 {
			return nil, errorf("flatten depth must not be negative")
		}
		return m.flatten(v, n)
	})
	add("setpath", 2, func(m *vm, v any, a []any) (any, error) {
		path, ok := a[0].([]any)
		if !ok {
			return nil, errorf("Path must be specified as an array")
		}
		return m.set(v, path, owned{}, func(any) (any, error) { return a[1], nil })
	})
	add("delpaths", 1, func(m *vm, v any, a []any) (any, error) {
		paths, ok := a[0].([]any)
		if !ok {
			return nil, errorf("Paths must be specified as an array")
		}
		return m.delPaths(v, paths)
	})
	add("bsearch", 1, func(m *vm, v any, a []any) (any, error) {
		list, ok := v.([]any)
		if !ok {
			return nil, errorf("%s cannot be searched from", described(v))
		}
		i, found := slices.BinarySearchFunc(list, a[0], m.cmp)
		if !found {
			i = -1 - i
		}
		return float64(i), nil
	})
	return all
})

// toEntries returns an object as a list of keys and values. An array's keys are its indexes.
func toEntries(v any) ([]any, error) {
	entry := func(key, value any) *Object {
		o := NewObject(2)
		o.Set("key", key)
		o.Set("value", value)
		return o
	}
	list := []any{}
	switch v := v.(type) {
	case *Object:
		for i := range v.Len() {
			key, value := v.At(i)
			list = append(list, entry(key, value))
		}
	case []any:
		for i, value := range v {
			list = append(list, entry(float64(i), value))
		}
	default:
		return nil, errorf("%s has no keys", described(v))
	}
	return list, nil
}

func length(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		return 0.0, nil
	case string:
		return float64(utf8.RuneCountInString(v)), nil
	case []any:
		return float64(len(v)), nil
	case *Object:
		return float64(v.Len()), nil
	case Number:
		return Number(strings.TrimPrefix(string(v), "-")), nil
	case float64:
		return math.Abs(v), nil
	}
	return nil, errorf("%s has no length", described(v))
}

func keys(v any, sorted bool) (any, error) {
	out := []any{}
	switch v := v.(type) {
	case *Object:
		list := v.keys
		if sorted {
			list = v.sorted()
		}
		for _, k := range list {
			out = append(out, k)
		}
	case []any:
		for i := range v {
			out = append(out, float64(i))
		}
	default:
		return nil, errorf("%s has no keys", described(v))
	}
	return out, nil
}

func fromEntries(v any) (any, error) {
	entries, err := elements(v)
	if err != nil {
		return nil, err
	}
	out := NewObject(len(entries))
	for _, x := range entries {
		o, ok := x.(*Object)
		if !ok {
			return nil, errorf(`Cannot index %s with string "key"`, TypeName(x))
		}
		var k any
		for i, name := range [...]string{"key", "k", "name", "Name", "K", "Key"} {
			if k, _ = o.Get(name); Truthy(k) || i == 0 && k == false {
				break
			}
		}
		s, ok := k.(string)
		if !ok {
			s = Text(k)
		}
		var val any
		for _, name := range [...]string{"value", "v", "Value"} {
			if val, ok = o.Get(name); ok {
				break
			}
		}
		out.Set(s, val)
	}
	return out, nil
}

func has(_ *vm, v any, a []any) (any, error) {
	switch v := v.(type) {
	case *Object:
		if k, ok := a[0].(string); ok {
			_, has := v.Get(k)
			return has, nil
		}
	case []any:
		if n, ok := number(a[0]); ok {
			return n >= 0 && n < float64(len(v)), nil
		}
	}
	return nil, errorf("Cannot check whether %s has a %s key", TypeName(v), TypeName(a[0]))
}

func (m *vm) environ() any {
	o := NewObject(16)
	if m.opts.Environ != nil {
		for _, kv := range m.opts.Environ() {
			k, v, _ := strings.Cut(kv, "=")
			o.Set(k, v)
		}
	}
	return o
}

func toNumber(v any) (any, error) {
	switch v := v.(type) {
	case float64, Number:
		return v, nil
	case string:
		s := strings.TrimSpace(v)
		if n, ok := parseNumber(s); ok {
			return n, nil
		}
		if s == "nan" {
			return math.NaN(), nil
		}
		return nil, errorf("Invalid numeric literal at EOF at line 1, column %d (while parsing '%s')", len(s), v)
	}
	return nil, errorf("%s cannot be parsed as a number", described(v))
}

package jq

import "slices"

// ranked is an element with its sort key.
type ranked struct {
	key []any
	val any
}

// keyed makes a builtin from a function of the input's elements with their keys.
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

// extreme returns the first of the least elements, or the last of the greatest.
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

package jq

import "strings"

// subForm is sub and gsub: the replacement is a program that sees the named captures.
func subForm(global string) func(m *vm, n int, a []fn) fn {
	return func(m *vm, n int, a []fn) fn {
		switch {
		case n != 2 && n != 3:
			return nil
		case a == nil:
			return identity
		}
		flags := fn(constant(""))
		if n == 3 {
			flags = a[2]
		}
		return func(e *env, p *path, v any, out out) error {
			return flags(e, nil, v, func(_ *path, f any) error {
				if f == nil {
					f = ""
				}
				text, ok := f.(string)
				if !ok {
					return errorf("%s is not a string", described(f))
				}
				return a[0](e, nil, v, func(_ *path, re any) error {
					all, err := m.matches(v, re, text+global, false)
					if err != nil {
						return err
					}
					s := &substitution{m: m, e: e, str: a[1], in: v.(string), matches: all.([]any)}
					return s.from(0, 0, "", func(x string) error { return out(p.lost(), x) })
				})
			})
		}
	}
}

type substitution struct {
	m       *vm
	e       *env
	str     fn
	in      string
	matches []any
}

// from replaces the matches from the i-th on; done is what is ready, and at where it ends in characters.
func (s *substitution) from(i, at int, done string, out func(string) error) error {
	if err := s.m.enter(); err != nil {
		return err
	}
	defer s.m.leave()
	chars := []rune(nil)
	ascii := len(s.in) == strings.Count(s.in, "")-1
	if !ascii {
		chars = []rune(s.in)
	}
	cut := func(from, to int) string {
		if ascii {
			return s.in[from:to]
		}
		return string(chars[from:to])
	}
	var b strings.Builder
	b.WriteString(done)
	for ; i < len(s.matches); i++ {
		if err := s.m.step(4); err != nil {
			return err
		}
		match := s.matches[i].(*Object)
		off, _ := match.Get("offset")
		n, _ := match.Get("length")
		start := int(off.(float64))
		b.WriteString(cut(at, start))
		at = start + int(n.(float64))
		results, err := s.m.collect(s.str, s.e, captured(match))
		if err != nil {
			return err
		}
		for _, r := range results {
			if _, ok := r.(string); !ok {
				return errorf("%s and %s cannot be added", described(cut(0, start)), described(r))
			}
		}
		switch len(results) {
		case 0:
			return nil
		case 1:
			b.WriteString(results[0].(string))
		default:
			for _, r := range results {
				if err := s.from(i+1, at, b.String()+r.(string), out); err != nil {
					return err
				}
			}
			return nil
		}
		if b.Len() > maxString {
			return errorf("string too long")
		}
	}
	end := len(chars)
	if ascii {
		end = len(s.in)
	}
	b.WriteString(cut(at, end))
	x, err := s.m.str(b.String())
	if err != nil {
		return err
	}
	return out(x)
}

// captured is the object of a match's named groups.
func captured(match *Object) any {
	o := NewObject(2)
	caps, _ := match.Get("captures")
	for _, c := range caps.([]any) {
		name, _ := c.(*Object).Get("name")
		text, _ := c.(*Object).Get("string")
		if name, ok := name.(string); ok {
			o.Set(name, text)
		}
	}
	return o
}

// tostreamForm is tostream.
func tostreamForm(m *vm, _ []fn) fn {
	return func(e *env, p *path, v any, out out) error {
		return m.Stream(v, func(event any) error { return out(p.lost(), event) })
	}
}

// Stream calls fn with the events of a value: [path, leaf], and [path] where a container that has parts ends.
func (p *purse) Stream(v any, fn func(event any) error) error {
	var walk func(at []any, v any) error
	walk = func(at []any, v any) error {
		if err := p.step(1 + len(at)); err != nil {
			return err
		}
		if len(at) > maxDepth {
			return errDepth
		}
		n := 0
		switch v := v.(type) {
		case []any:
			n = len(v)
			for i, x := range v {
				if err := walk(append(at[:len(at):len(at)], float64(i)), x); err != nil {
					return err
				}
			}
			if n > 0 {
				return fn([]any{append(at[:len(at):len(at)], float64(n-1))})
			}
		case *Object:
			n = len(v.keys)
			for i, k := range v.keys {
				if err := walk(append(at[:len(at):len(at)], k), v.vals[i]); err != nil {
					return err
				}
			}
			if n > 0 {
				return fn([]any{append(at[:len(at):len(at)], v.keys[n-1])})
			}
		}
		return fn([]any{append([]any{}, at...), v})
	}
	return walk(nil, v)
}

// Stream returns the events of a value.
func Stream(v any, b Budget, fn func(event any) error) error { return newPurse(b).Stream(v, fn) }

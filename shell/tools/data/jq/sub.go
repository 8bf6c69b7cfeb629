package jq

import (
	"strings"
	"unicode/utf8"
)

// subForm is sub and gsub. The replacement is a program that sees the named captures.
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
					s := &substitution{m: m, in: v.(string)}
					return s.run(e, a[1], all.([]any), func(x string) error { return out(p.lost(), x) })
				})
			})
		}
	}
}

// substitution builds the results of sub and gsub. The n-th result has the n-th replacement of
// every match.
type substitution struct {
	m       *vm
	in      string
	chars   []rune // of in, where it isn't ASCII
	results []*strings.Builder
}

// cut returns a part of the input, counted in characters.
func (s *substitution) cut(from, to int) string {
	if s.chars == nil {
		return s.in[from:to]
	}
	return string(s.chars[from:to])
}

func (s *substitution) run(e *env, str fn, matches []any, out func(string) error) error {
	end := len(s.in)
	if n := utf8.RuneCountInString(s.in); n != end {
		s.chars, end = []rune(s.in), n
	}
	at, total := 0, 0
	for _, x := range matches {
		if err := s.m.step(4); err != nil {
			return err
		}
		match := x.(*Object)
		off, _ := match.Get("offset")
		n, _ := match.Get("length")
		start := int(off.(float64))
		gap := s.cut(at, start)
		at = start + int(n.(float64))
		texts, err := s.m.collect(str, e, captured(match))
		if err != nil {
			return err
		}
		for i, r := range texts {
			text, ok := r.(string)
			if !ok {
				return errorf("%s and %s cannot be added", described(s.cut(0, start)), described(r))
			}
			if i == len(s.results) {
				s.results = append(s.results, &strings.Builder{})
			}
			s.results[i].WriteString(gap)
			s.results[i].WriteString(text)
			if total += len(gap) + len(text); total > maxString {
				return errorf("string too long")
			}
		}
	}
	if len(matches) == 0 {
		return out(s.in)
	}
	for i := range s.results {
		s.results[i].WriteString(s.cut(at, end))
		x, err := s.m.str(s.results[i].String())
		if err == nil {
			err = out(x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// captured returns the object of a match's named groups.
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

// Stream calls fn with the events of a value: [path, leaf], and [path] at the end of a container
// that has parts.
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

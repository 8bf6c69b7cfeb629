package data

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// call compiles a function call.
func (p *exprParser) call(name string, args []expr) (expr, error) {
	f, ok := functions[name]
	if name == "index" || name == "row_index" {
		index := p.index
		return func([]string) (any, error) {
			if index == nil {
				return 0.0, nil
			}
			return float64(*index), nil
		}, nil
	}
	if !ok {
		return nil, fmt.Errorf("unknown function %q", name)
	}
	if len(args) < f.min || f.max >= 0 && len(args) > f.max {
		return nil, fmt.Errorf("wrong number of arguments of %s", name)
	}
	return func(row []string) (any, error) {
		vals := make([]any, len(args))
		for i, a := range args {
			v, err := a(row)
			if err != nil {
				return nil, err
			}
			vals[i] = v
		}
		return f.run(vals)
	}, nil
}

type function struct {
	min, max int
	run      func(a []any) (any, error)
}

func onText(f func(string) any) function {
	return function{1, 1, func(a []any) (any, error) { return f(textOf(a[0])), nil }}
}

func onNumber(f func(float64) float64) function {
	return function{1, 1, func(a []any) (any, error) {
		x, ok := numberOf(a[0])
		if !ok {
			return nil, fmt.Errorf("%q is not a number", textOf(a[0]))
		}
		return f(x), nil
	}}
}

func twoTexts(f func(a, b string) any) function {
	return function{2, 2, func(a []any) (any, error) { return f(textOf(a[0]), textOf(a[1])), nil }}
}

func operation(op string) function {
	return function{2, 2, func(a []any) (any, error) { return apply(op, a[0], a[1]) }}
}

var functions = map[string]function{
	"lower": onText(func(s string) any { return strings.ToLower(s) }), "upper": onText(func(s string) any { return strings.ToUpper(s) }),
	"trim": onText(func(s string) any { return strings.TrimSpace(s) }), "len": {1, 1, func(a []any) (any, error) {
		if l, ok := a[0].([]any); ok {
			return float64(len(l)), nil
		}
		return float64(utf8.RuneCountInString(textOf(a[0]))), nil
	}},
	"ltrim": onText(func(s string) any { return strings.TrimLeft(s, " \t\n") }), "rtrim": onText(func(s string) any { return strings.TrimRight(s, " \t\n") }),
	"abs": onNumber(math.Abs), "round": onNumber(math.Round), "floor": onNumber(math.Floor), "ceil": onNumber(math.Ceil), "sqrt": onNumber(math.Sqrt),
	"log": onNumber(math.Log), "int": onNumber(math.Trunc), "float": onNumber(func(f float64) float64 { return f }), "neg": onNumber(func(f float64) float64 { return -f }),
	"contains": twoTexts(func(a, b string) any { return strings.Contains(a, b) }), "startswith": twoTexts(func(a, b string) any { return strings.HasPrefix(a, b) }),
	"endswith": twoTexts(func(a, b string) any { return strings.HasSuffix(a, b) }),
	"split": twoTexts(func(a, b string) any {
		var out []any
		for _, s := range strings.Split(a, b) {
			out = append(out, s)
		}
		return out
	}),
	"replace": {3, 3, func(a []any) (any, error) {
		s, from, to := textOf(a[0]), textOf(a[1]), textOf(a[2])
		if from == "" {
			return s, nil
		}
		if strings.Count(s, from)*len(to) > maxRecord {
			return nil, errors.New("text too long")
		}
		return strings.ReplaceAll(s, from, to), nil
	}},
	"add": operation("+"), "sub": operation("-"), "mul": operation("*"), "div": operation("/"), "mod": operation("%"), "idiv": operation("//"), "pow": operation("**"),
	"eq": operation("=="), "neq": operation("!="), "lt": operation("<"), "gt": operation(">"), "lte": operation("<="), "gte": operation(">="),
	"not": {1, 1, func(a []any) (any, error) { return !truthy(a[0]), nil }},
	"and": {1, -1, func(a []any) (any, error) {
		return !slices.ContainsFunc(a, func(v any) bool { return !truthy(v) }), nil
	}},
	"or": {1, -1, func(a []any) (any, error) { return slices.ContainsFunc(a, truthy), nil }},
	"if": {2, 3, func(a []any) (any, error) {
		if truthy(a[0]) {
			return a[1], nil
		}
		return append(a, nil)[2], nil
	}},
	"coalesce": {1, -1, func(a []any) (any, error) {
		for _, v := range a {
			if textOf(v) != "" {
				return v, nil
			}
		}
		return nil, nil
	}},
	"concat": {1, -1, func(a []any) (any, error) {
		var b strings.Builder
		for _, v := range a {
			b.WriteString(textOf(v))
		}
		return b.String(), nil
	}},
	"join": {2, 2, func(a []any) (any, error) {
		list, ok := a[0].([]any)
		if !ok {
			return textOf(a[0]), nil
		}
		parts := make([]string, len(list))
		for i, v := range list {
			parts[i] = textOf(v)
		}
		return strings.Join(parts, textOf(a[1])), nil
	}},
	"get": {2, 2, func(a []any) (any, error) {
		list, ok := a[0].([]any)
		n, isN := numberOf(a[1])
		if !ok || !isN || n < 0 || int(n) >= len(list) {
			return nil, nil
		}
		return list[int(n)], nil
	}},
	"slice": {2, 3, func(a []any) (any, error) {
		r := []rune(textOf(a[0]))
		from, _ := numberOf(a[1])
		to := float64(len(r))
		if len(a) > 2 {
			to, _ = numberOf(a[2])
		}
		i, j := int(min(max(from, 0), float64(len(r)))), int(min(max(to, 0), float64(len(r))))
		return string(r[i:max(i, j)]), nil
	}},
	"min": {1, -1, func(a []any) (any, error) { return extremeOf(a, -1), nil }}, "max": {1, -1, func(a []any) (any, error) { return extremeOf(a, 1), nil }},
	"first": {1, 1, func(a []any) (any, error) {
		if l, ok := a[0].([]any); ok && len(l) > 0 {
			return l[0], nil
		}
		return a[0], nil
	}},
	"last": {1, 1, func(a []any) (any, error) {
		if l, ok := a[0].([]any); ok && len(l) > 0 {
			return l[len(l)-1], nil
		}
		return a[0], nil
	}},
	"year":  onText(func(s string) any { return s[:min(4, len(s))] }),
	"month": onText(func(s string) any { return s[min(5, len(s)):min(7, len(s))] }),
	"day":   onText(func(s string) any { return s[min(8, len(s)):min(10, len(s))] }),
}

func extremeOf(a []any, sign int) any {
	var best any
	for _, v := range a {
		x, ok := numberOf(v)
		y, has := numberOf(best)
		if ok && (!has || x < y && sign < 0 || x > y && sign > 0) {
			best = v
		}
	}
	return best
}

package data

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// expr is an expression of xan on one row; its values are strings, float64, bool, nil and []any.
type expr func(row []string) (any, error)

// exprParser compiles expressions.
type exprParser struct {
	src   string
	pos   int
	cols  func(name string) int
	index *int // the row's number, for index()
	depth int
	aggs  *[]*aggregate // of agg and groupby, nil elsewhere
}

const maxExprDepth = 200

func (p *exprParser) space() {
	for p.pos < len(p.src) && strings.IndexByte(" \t\r\n", p.src[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *exprParser) accept(ops ...string) string {
	p.space()
	for _, op := range ops {
		if !strings.HasPrefix(p.src[p.pos:], op) {
			continue
		}
		if end := p.pos + len(op); isWord(op[0]) && end < len(p.src) && isWord(p.src[end]) {
			continue
		}
		p.pos += len(op)
		return op
	}
	return ""
}

func isWord(c byte) bool { return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }

// levels are the operators, the loosest first.
var levels = [][]string{{"||", "or"}, {"&&", "and"}, {"==", "!=", "<=", ">=", "<", ">", "eq", "ne", "lt", "le", "gt", "ge", "not in", "in"}, {"++", "+", "-"}, {"**", "*", "//", "/", "%"}}

func (p *exprParser) parse(level int) (expr, error) {
	if p.depth++; p.depth > maxExprDepth {
		return nil, errors.New("expression is nested too deeply")
	}
	defer func() { p.depth-- }()
	if level == len(levels) {
		return p.unary()
	}
	left, err := p.parse(level + 1)
	for n := 0; err == nil; n++ {
		op := p.accept(levels[level]...)
		if op == "" {
			return left, nil
		}
		if n > 1000 {
			return nil, errors.New("expression is too long")
		}
		var right expr
		if right, err = p.parse(level + 1); err == nil {
			left = combine(op, left, right)
		}
	}
	return nil, err
}

func combine(op string, a, b expr) expr {
	return func(row []string) (any, error) {
		x, err := a(row)
		if err != nil {
			return nil, err
		}
		switch op {
		case "||", "or":
			if truthy(x) {
				return true, nil
			}
			y, err := b(row)
			return truthy(y), err
		case "&&", "and":
			if !truthy(x) {
				return false, nil
			}
			y, err := b(row)
			return truthy(y), err
		}
		y, err := b(row)
		if err != nil {
			return nil, err
		}
		return apply(op, x, y)
	}
}

func apply(op string, x, y any) (any, error) {
	switch op {
	case "eq", "ne", "lt", "le", "gt", "ge":
		c := strings.Compare(textOf(x), textOf(y))
		return ordered(op, c), nil
	case "==", "!=", "<", "<=", ">", ">=":
		a, ok1 := numberOf(x)
		b, ok2 := numberOf(y)
		c := strings.Compare(textOf(x), textOf(y))
		if ok1 && ok2 {
			switch {
			case a < b:
				c = -1
			case a > b:
				c = 1
			default:
				c = 0
			}
		}
		return ordered(op, c), nil
	case "++":
		return textOf(x) + textOf(y), nil
	case "in", "not in":
		found := false
		if list, ok := y.([]any); ok {
			found = slices.ContainsFunc(list, func(e any) bool { return textOf(e) == textOf(x) })
		} else {
			found = strings.Contains(textOf(y), textOf(x))
		}
		return found == (op == "in"), nil
	}
	a, ok1 := numberOf(x)
	b, ok2 := numberOf(y)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("cannot compute %q %s %q", textOf(x), op, textOf(y))
	}
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	case "%":
		return math.Mod(a, b), nil
	}
	return math.Pow(a, b), nil
}

func ordered(op string, c int) bool {
	switch op {
	case "==", "eq":
		return c == 0
	case "!=", "ne":
		return c != 0
	case "<", "lt":
		return c < 0
	case "<=", "le":
		return c <= 0
	case ">", "gt":
		return c > 0
	}
	return c >= 0
}

func (p *exprParser) unary() (expr, error) {
	if p.depth++; p.depth > maxExprDepth {
		return nil, errors.New("expression is nested too deeply")
	}
	defer func() { p.depth-- }()
	switch p.accept("!", "not", "-") {
	case "!", "not":
		x, err := p.unary()
		if err != nil {
			return nil, err
		}
		return func(row []string) (any, error) { v, err := x(row); return !truthy(v), err }, nil
	case "-":
		x, err := p.unary()
		if err != nil {
			return nil, err
		}
		return combine("-", func([]string) (any, error) { return 0.0, nil }, x), nil
	}
	return p.primary()
}

func (p *exprParser) primary() (expr, error) {
	p.space()
	if p.pos >= len(p.src) {
		return nil, errors.New("unexpected end of expression")
	}
	start := p.pos
	switch c := p.src[p.pos]; {
	case c == '(':
		p.pos++
		x, err := p.parse(0)
		if err == nil && p.accept(")") == "" {
			err = errors.New("missing )")
		}
		return x, err
	case c == '[':
		p.pos++
		args, err := p.list("]")
		return func(row []string) (any, error) { return values(args, row) }, err
	case c == '"' || c == '\'' || c == '`':
		s, err := p.quoted(c)
		if c == '`' {
			return p.column(s)
		}
		return func([]string) (any, error) { return s, nil }, err
	case c >= '0' && c <= '9':
		for p.pos < len(p.src) && (p.src[p.pos] >= '0' && p.src[p.pos] <= '9' || p.src[p.pos] == '.' || p.src[p.pos] == '_') {
			p.pos++
		}
		f, err := strconv.ParseFloat(strings.ReplaceAll(p.src[start:p.pos], "_", ""), 64)
		return func([]string) (any, error) { return f, nil }, err
	}
	for p.pos < len(p.src) && (isWord(p.src[p.pos]) || p.src[p.pos] >= 0x80) {
		p.pos++
	}
	name := p.src[start:p.pos]
	if name == "" {
		return nil, fmt.Errorf("unexpected %q in expression", p.src[start:])
	}
	if p.accept("(") != "" {
		if p.aggs != nil {
			if x, ok, err := p.aggregate(name); ok || err != nil {
				return x, err
			}
		}
		args, err := p.list(")")
		if err != nil {
			return nil, err
		}
		if name == "col" && len(args) == 1 {
			v, err := args[0](nil)
			if err != nil {
				return nil, err
			}
			return p.column(textOf(v))
		}
		return p.call(name, args)
	}
	switch name {
	case "true", "false":
		return func([]string) (any, error) { return name == "true", nil }, nil
	case "null":
		return func([]string) (any, error) { return nil, nil }, nil
	}
	return p.column(name)
}

func (p *exprParser) column(name string) (expr, error) {
	i := p.cols(name)
	if i < 0 {
		return nil, fmt.Errorf("unknown column %q", name)
	}
	return func(row []string) (any, error) {
		if i >= len(row) || row[i] == "" {
			return nil, nil
		}
		return row[i], nil
	}, nil
}

func (p *exprParser) quoted(q byte) (string, error) {
	p.pos++
	var b strings.Builder
	for p.pos < len(p.src) && p.src[p.pos] != q {
		c := p.src[p.pos]
		if c == '\\' && p.pos+1 < len(p.src) {
			p.pos++
			switch c = p.src[p.pos]; c {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			}
		}
		b.WriteByte(c)
		p.pos++
	}
	if p.pos >= len(p.src) {
		return "", errors.New("string is not closed")
	}
	p.pos++
	return b.String(), nil
}

func (p *exprParser) list(end string) ([]expr, error) {
	var out []expr
	if p.accept(end) != "" {
		return nil, nil
	}
	for {
		x, err := p.parse(0)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
		if p.accept(",") != "" {
			continue
		}
		if p.accept(end) == "" {
			return nil, fmt.Errorf("missing %s", end)
		}
		return out, nil
	}
}

func values(args []expr, row []string) (any, error) {
	out := make([]any, len(args))
	for i, a := range args {
		v, err := a(row)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// parseExpr compiles a whole expression.
func (p *exprParser) whole() (expr, error) {
	x, err := p.parse(0)
	if p.space(); err == nil && p.pos < len(p.src) {
		err = fmt.Errorf("unexpected %q in expression", p.src[p.pos:])
	}
	return x, err
}

func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case float64:
		return v != 0
	case string:
		return v != "" && v != "false"
	}
	return true
}

func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return formatFloat(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = textOf(x)
		}
		return strings.Join(parts, "|")
	}
	return ""
}

func formatFloat(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func numberOf(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case bool:
		return map[bool]float64{true: 1}[v], true
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return f, err == nil
	}
	return 0, false
}

// call compiles the call of a function.
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

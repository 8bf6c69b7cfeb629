package data

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// expr is a compiled xan expression, evaluated for one row. Its values are strings, float64, bool,
// nil and []any.
type expr func(row []string) (any, error)

// exprParser compiles expressions.
type exprParser struct {
	src   string
	pos   int
	cols  func(name string) int
	index *int // the row's number, for index()
	depth int
	aggs  *[]*aggregate // for agg and groupby, nil elsewhere
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

// levels are the operators, those of lowest precedence first.
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

// whole compiles a whole expression.
func (p *exprParser) whole() (expr, error) {
	x, err := p.parse(0)
	if p.space(); err == nil && p.pos < len(p.src) {
		err = fmt.Errorf("unexpected %q in expression", p.src[p.pos:])
	}
	return x, err
}

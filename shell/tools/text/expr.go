package text

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// exprParser evaluates the words of expr while it reads them.
type exprParser struct {
	c     *tool.Call
	args  []string
	depth int
}

var errExpr = errors.New("syntax error")

type exprError struct{ text string }

func (e exprError) Error() string { return e.text }

func (p *exprParser) fail(format string, args ...any) error {
	return exprError{fmt.Sprintf(format, args...)}
}

func (p *exprParser) next(words ...string) string {
	if len(p.args) > 0 {
		for _, w := range words {
			if p.args[0] == w {
				p.args = p.args[1:]
				return w
			}
		}
	}
	return ""
}

// exprNull reports whether a value is false: empty or zero.
func exprNull(s string) bool {
	if s == "" {
		return true
	}
	t := strings.TrimPrefix(s, "-")
	return t != "" && strings.Trim(t, "0") == ""
}

func exprInt(s string) (*big.Int, bool) {
	t := strings.TrimPrefix(s, "-")
	if t == "" || strings.Trim(t, "0123456789") != "" || len(t) > 100000 {
		return nil, false
	}
	return new(big.Int).SetString(s, 10)
}

func exprBool(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// or is the lowest level.
func (p *exprParser) or() (string, error) {
	if p.depth++; p.depth > 1000 {
		return "", p.fail("expression is nested too deeply")
	}
	defer func() { p.depth-- }()
	l, err := p.and()
	for err == nil && p.next("|") != "" {
		var r string
		if r, err = p.and(); exprNull(l) {
			if l = r; exprNull(r) {
				l = "0"
			}
		}
	}
	return l, err
}

func (p *exprParser) and() (string, error) {
	l, err := p.compare()
	for err == nil && p.next("&") != "" {
		var r string
		if r, err = p.compare(); exprNull(l) || exprNull(r) {
			l = "0"
		}
	}
	return l, err
}

func (p *exprParser) compare() (string, error) {
	l, err := p.sum()
	for err == nil {
		op := p.next("<", "<=", "=", "==", "!=", ">=", ">")
		if op == "" {
			break
		}
		var r string
		if r, err = p.sum(); err != nil {
			break
		}
		d := strings.Compare(l, r)
		if x, ok := exprInt(l); ok {
			if y, ok := exprInt(r); ok {
				d = x.Cmp(y)
			}
		}
		switch op {
		case "<":
			l = exprBool(d < 0)
		case "<=":
			l = exprBool(d <= 0)
		case "=", "==":
			l = exprBool(d == 0)
		case "!=":
			l = exprBool(d != 0)
		case ">=":
			l = exprBool(d >= 0)
		default:
			l = exprBool(d > 0)
		}
	}
	return l, err
}

func (p *exprParser) binary(sub func() (string, error), ops ...string) (string, error) {
	l, err := sub()
	for err == nil {
		op := p.next(ops...)
		if op == "" {
			break
		}
		var r string
		if r, err = sub(); err != nil {
			break
		}
		x, ok1 := exprInt(l)
		y, ok2 := exprInt(r)
		if !ok1 || !ok2 {
			return "", p.fail("non-integer argument")
		}
		if !p.c.Step(1 + len(l)*len(r)>>6) {
			return "", tool.ErrStop
		}
		z := new(big.Int)
		switch op {
		case "+":
			z.Add(x, y)
		case "-":
			z.Sub(x, y)
		case "*":
			z.Mul(x, y)
		default:
			if y.Sign() == 0 {
				return "", p.fail("division by zero")
			}
			if op == "/" {
				z.Quo(x, y)
			} else {
				z.Rem(x, y)
			}
		}
		l = z.String()
	}
	return l, err
}

func (p *exprParser) sum() (string, error)  { return p.binary(p.term, "+", "-") }
func (p *exprParser) term() (string, error) { return p.binary(p.matchOp, "*", "/", "%") }

func (p *exprParser) matchOp() (string, error) {
	l, err := p.primary()
	for err == nil && p.next(":") != "" {
		var r string
		if r, err = p.primary(); err == nil {
			l, err = p.match(l, r)
		}
	}
	return l, err
}

// match matches a basic regular expression at the beginning.
func (p *exprParser) match(s, expr string) (string, error) {
	re, err := compileBRE(expr)
	if err != nil {
		return "", p.fail("%s", strings.TrimPrefix(err.Error(), "regexp: "))
	}
	m := re.findAnchored(p.c, []byte(s))
	grouped := re.groups() > 0
	switch {
	case m == nil && grouped:
		return "", nil
	case m == nil:
		return "0", nil
	case grouped:
		if len(m) < 4 || m[2] < 0 {
			return "", nil
		}
		return s[m[2]:m[3]], nil
	}
	return strconv.Itoa(utf8.RuneCountInString(s[m[0]:m[1]])), nil
}

func (p *exprParser) primary() (string, error) {
	if len(p.args) == 0 {
		return "", errExpr
	}
	a := p.args[0]
	p.args = p.args[1:]
	switch a {
	case "(":
		v, err := p.or()
		if err != nil {
			return "", err
		}
		if len(p.args) == 0 {
			return "", p.fail("syntax error: expecting ')' after ‘%s’", v)
		}
		if p.next(")") == "" {
			return "", p.fail("syntax error: expecting ')' instead of ‘%s’", p.args[0])
		}
		return v, nil
	case ")":
		return "", p.fail("syntax error: unexpected ')'")
	case "+":
		if len(p.args) == 0 {
			return "", errExpr
		}
		a = p.args[0]
		p.args = p.args[1:]
		return a, nil
	case "length", "match", "index", "substr":
		return p.function(a)
	}
	return a, nil
}

func (p *exprParser) function(name string) (string, error) {
	n := map[string]int{"length": 1, "match": 2, "index": 2, "substr": 3}[name]
	var v [3]string
	if p.depth++; p.depth > 1000 {
		return "", p.fail("expression is nested too deeply")
	}
	defer func() { p.depth-- }()
	for i := range n {
		var err error
		if v[i], err = p.primary(); err != nil {
			return "", err
		}
	}
	switch name {
	case "length":
		return strconv.Itoa(utf8.RuneCountInString(v[0])), nil
	case "match":
		return p.match(v[0], v[1])
	case "index":
		at := strings.IndexAny(v[0], v[1])
		if at < 0 {
			return "0", nil
		}
		return strconv.Itoa(utf8.RuneCountInString(v[0][:at]) + 1), nil
	}
	pos, err1 := strconv.Atoi(v[1])
	length, err2 := strconv.Atoi(v[2])
	r := []rune(v[0])
	if err1 != nil || err2 != nil || pos < 1 || length < 1 || pos > len(r) {
		return "", nil
	}
	return string(r[pos-1 : pos-1+min(length, len(r)-pos+1)]), nil
}

func expr(c *tool.Call) int {
	args := c.Args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return usage.Missing(c, 2)
	}
	p := &exprParser{c: c, args: args}
	v, err := p.or()
	var ee exprError
	switch {
	case errors.Is(err, tool.ErrStop):
		return 3
	case errors.Is(err, errExpr):
		return c.Errorf(2, "syntax error: missing argument after ‘%s’", args[len(args)-1])
	case errors.As(err, &ee):
		return c.Errorf(2, "%s", ee.text)
	case len(p.args) > 0:
		return c.Errorf(2, "syntax error: unexpected argument ‘%s’", p.args[0])
	}
	fmt.Fprintln(c.Out, v)
	if exprNull(v) {
		return 1
	}
	return 0
}

package sh

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// printer is one run of printf.
type printer struct {
	c      *call
	args   []string
	out    strings.Builder
	status int
	stop   bool // \c was met
}

func biPrintf(c *call) int {
	args, into := c.args, ""
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-" {
		if args[0] == "--" {
			args = args[1:]
			break
		}
		if args[0] != "-v" || len(args) < 2 {
			return c.fail(2, "%s: invalid option", args[0])
		}
		into, args = args[1], args[2:]
	}
	if len(args) == 0 {
		return c.fail(2, "usage: printf [-v var] format [arguments]")
	}
	format := args[0]
	p := &printer{c: c, args: args[1:]}
	for {
		before := len(p.args)
		p.format(format)
		if p.stop || len(p.args) == 0 || len(p.args) == before || !c.r.step() {
			break
		}
		const flushAt = 64 << 10
		if into == "" && p.out.Len() > flushAt {
			if c.print(p.out.String()) != 0 {
				return 1
			}
			p.out.Reset()
		}
	}
	if into != "" {
		if base, sub, isElem := strings.Cut(into, "["); isElem {
			c.r.setElem(base, strings.TrimSuffix(sub, "]"), p.out.String(), false)
		} else {
			c.r.set(into, p.out.String())
		}
		return p.status
	}
	if c.print(p.out.String()) != 0 {
		return 1
	}
	return p.status
}

// next takes an argument; missing ones are empty.
func (p *printer) next() string {
	if len(p.args) == 0 {
		return ""
	}
	a := p.args[0]
	p.args = p.args[1:]
	return a
}

// format prints the format once.
func (p *printer) format(f string) {
	for i := 0; i < len(f) && !p.stop; {
		pct := strings.IndexByte(f[i:], '%')
		if pct < 0 {
			s, _ := unescape(f[i:], escPrintf)
			p.out.WriteString(s)
			return
		}
		s, _ := unescape(f[i:i+pct], escPrintf)
		p.out.WriteString(s)
		i += pct + 1
		if i < len(f) && f[i] == '%' {
			p.out.WriteByte('%')
			i++
			continue
		}
		n, ok := p.directive(f[i:])
		if !ok {
			p.status = p.c.fail(1, "`%s': invalid format character", f[i-1:min(i+1, len(f))])
			p.stop = true
			return
		}
		i += n
	}
}

// spec is the flags, width and precision of a directive.
type spec struct {
	flags       string
	width, prec int
	hasPrec     bool
}

// directive prints one conversion and returns its length in the format.
func (p *printer) directive(f string) (int, bool) {
	var s spec
	i := 0
	for i < len(f) && strings.IndexByte("-+ #0'", f[i]) >= 0 {
		s.flags += string(f[i])
		i++
	}
	number := func() int {
		if i < len(f) && f[i] == '*' {
			i++
			n, _ := strconv.Atoi(p.next()) // what is no number counts as 0
			return n
		}
		start := i
		for i < len(f) && f[i] >= '0' && f[i] <= '9' {
			i++
		}
		n, _ := strconv.Atoi(f[start:i]) // nothing counts as 0
		return n
	}
	const widest = 1 << 16
	s.width = number()
	if s.width < 0 {
		s.flags += "-"
		s.width = -s.width
	}
	s.width = min(s.width, widest)
	if i < len(f) && f[i] == '.' {
		i++
		s.hasPrec, s.prec = true, min(number(), widest)
	}
	if i < len(f) && f[i] == '(' {
		if end := strings.Index(f[i:], ")T"); end >= 0 {
			p.time(f[i+1 : i+end])
			return i + end + 2, true
		}
	}
	for i < len(f) && strings.IndexByte("hlLjzt", f[i]) >= 0 {
		i++
	}
	if i >= len(f) {
		return 0, false
	}
	return i + 1, p.convert(f[i], s)
}

func (p *printer) convert(verb byte, s spec) bool {
	switch verb {
	case 's':
		p.text(p.next(), s)
	case 'b':
		t, stop := unescape(p.next(), escPrintB)
		p.text(t, s)
		p.stop = stop
	case 'q':
		p.text(quoteBackslash(p.next()), s)
	case 'c':
		a := p.next()
		if a != "" {
			_, n := utf8.DecodeRuneInString(a)
			a = a[:n]
		}
		p.text(a, spec{flags: s.flags, width: s.width})
	case 'd', 'i':
		p.number(fmt.Sprintf(s.goFormat('d'), p.integer()), s)
	case 'u':
		p.number(fmt.Sprintf(s.goFormat('d'), uint64(p.integer())), s)
	case 'o', 'x', 'X':
		p.number(fmt.Sprintf(s.goFormat(verb), uint64(p.integer())), s)
	case 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
		if verb == 'a' || verb == 'A' {
			verb += 'x' - 'a'
		}
		if !s.hasPrec && (verb == 'g' || verb == 'G') {
			s.hasPrec, s.prec = true, 6
		}
		a := p.next()
		v, err := strconv.ParseFloat(strings.TrimSpace(a), 64)
		if err != nil && a != "" {
			n, nerr := parseNumber(a)
			if v = float64(n); nerr != nil {
				p.status = p.c.fail(1, "%s: invalid number", a)
			}
		}
		p.number(fmt.Sprintf(s.goFormat(verb), v), s)
	default:
		return false
	}
	return true
}

// goFormat is the directive for package fmt.
func (s spec) goFormat(verb byte) string {
	f := "%" + strings.ReplaceAll(s.flags, "'", "")
	if s.hasPrec && (verb == 'd' || verb == 'o' || verb == 'x' || verb == 'X') {
		f = strings.ReplaceAll(f, "0", "")
	}
	if s.width > 0 {
		f += strconv.Itoa(s.width)
	}
	if s.hasPrec {
		f += "." + strconv.Itoa(s.prec)
	}
	return f + string(verb)
}

func (p *printer) number(s string, _ spec) { p.out.WriteString(s) }

// text pads and cuts a string; the precision counts bytes, the width characters.
func (p *printer) text(t string, s spec) {
	if s.hasPrec && s.prec < utf8.RuneCountInString(t) {
		t = string([]rune(t)[:s.prec])
	}
	fill := strings.Repeat(" ", max(s.width-utf8.RuneCountInString(t), 0))
	if strings.Contains(s.flags, "-") {
		p.out.WriteString(t + fill)
	} else {
		p.out.WriteString(fill + t)
	}
}

// integer reads a number argument as C does; 'x is the code of x.
func (p *printer) integer() int64 {
	a := strings.TrimSpace(p.next())
	if a == "" {
		return 0
	}
	if a[0] == '\'' || a[0] == '"' {
		c, _ := utf8.DecodeRuneInString(a[1:])
		return int64(c)
	}
	sign, digits := int64(1), a
	if a[0] == '-' || a[0] == '+' {
		if a[0] == '-' {
			sign = -1
		}
		digits = a[1:]
	}
	if n, err := parseNumber(digits); err == nil && !strings.Contains(digits, "#") {
		return sign * n
	}
	p.status = p.c.fail(1, "%s: invalid number", a)
	end := 0
	for end < len(digits) && digits[end] >= '0' && digits[end] <= '9' {
		end++
	}
	n, _ := strconv.ParseInt(digits[:end], 10, 64) // as much as is a number
	return sign * n
}

// time prints %(format)T.
func (p *printer) time(format string) {
	at := p.c.r.m.now()
	if len(p.args) > 0 {
		if n := p.integer(); n >= 0 {
			at = time.Unix(n, 0)
		}
	}
	p.out.WriteString(strftime(format, at.UTC()))
}

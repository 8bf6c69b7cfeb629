package interp

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// printer is one run of printf.
type printer struct {
	c        *call
	args     []string
	out      strings.Builder
	status   int
	stop     bool // \c was met
	unsigned bool // the next number is
}

func biPrintf(c *call) int {
	args, into, has := c.args, "", false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		if a == "--" {
			args = args[1:]
			break
		}
		if a[1] != 'v' {
			return c.usage("-%c: invalid option", a[1])
		}
		has = true
		if into = a[2:]; into == "" {
			if len(args) < 2 {
				return c.usage("-v: option requires an argument")
			}
			into, args = args[1], args[1:]
		}
		args = args[1:]
	}
	if has {
		if base, _, ok := cutSubscript(into); !ok && !isName(into) || ok && !isName(base) {
			return c.fail(2, "`%s': not a valid identifier", into)
		}
	}
	if len(args) == 0 {
		c.r.errUsage(c.name)
		return 2
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
		if p.out.Len() > flushAt {
			if has {
				c.r.pay(0)
			} else if c.print(p.out.String()) != 0 {
				return 1
			} else {
				p.out.Reset()
			}
		}
	}
	if has {
		if !c.r.assignName(into, p.out.String()) {
			return 1
		}
		return p.status
	}
	if c.print(p.out.String()) != 0 {
		return 1
	}
	return p.status
}

// assignName assigns to a variable or an element whose name is an argument of a builtin.
func (r *runner) assignName(name, value string) bool {
	if base, sub, ok := cutSubscript(name); ok {
		return r.setElem(base, r.expandSubscript(sub), value, false)
	}
	return r.set(name, value)
}

// next takes the next argument. A missing argument is empty.
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
			if n >= len(f)-i {
				p.status = p.c.fail(1, "`%%': missing format character")
			} else {
				p.status = p.c.fail(1, "`%c': invalid format character", f[i+n])
			}
			p.stop = true
			return
		}
		i += n
	}
}

// spec has the flags, width and precision of a directive.
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
		if !strings.Contains(s.flags, f[i:i+1]) { // a format may have megabytes of zeros
			s.flags += f[i : i+1]
		}
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
		if s.prec < 0 {
			s.hasPrec = false
		}
	}
	if i < len(f) && f[i] == '(' {
		if end := strings.Index(f[i:], ")T"); end >= 0 {
			p.time(f[i+1:i+end], s)
			return i + end + 2, true
		}
	}
	for i < len(f) && strings.IndexByte("hlLjzt", f[i]) >= 0 {
		i++
	}
	if i >= len(f) {
		return i, false
	}
	if !p.convert(f[i], s) {
		return i, false
	}
	return i + 1, true
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
	case 'Q':
		a := p.next()
		if s.hasPrec && s.prec < len(a) {
			a = a[:s.prec]
		}
		p.text(quoteBackslash(a), spec{flags: s.flags, width: s.width})
	case 'n':
		if len(p.args) > 0 {
			p.c.r.assignName(p.next(), strconv.Itoa(p.out.Len()))
		}
	case 'c':
		a := p.next()
		if a == "" {
			a = "\x00"
		}
		p.text(a[:1], spec{flags: s.flags, width: s.width})
	case 'd', 'i':
		p.out.WriteString(fmt.Sprintf(s.goFormat('d'), p.integer()))
	case 'u':
		s.flags = strings.Trim(s.flags, "+ ")
		p.unsigned = true
		p.out.WriteString(fmt.Sprintf(s.goFormat('d'), uint64(p.integer())))
	case 'o', 'x', 'X':
		p.unsigned = true
		n := uint64(p.integer())
		if n == 0 {
			s.flags = strings.ReplaceAll(s.flags, "#", "")
		}
		s.flags = strings.Trim(s.flags, "+ ")
		p.out.WriteString(fmt.Sprintf(s.goFormat(verb), n))
	case 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
		p.float(verb, s)
	default:
		return false
	}
	return true
}

// float prints a floating-point number.
func (p *printer) float(verb byte, s spec) {
	v := p.floating()
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		t := "inf"
		if math.IsNaN(v) {
			t = "nan"
		}
		switch {
		case math.IsInf(v, -1):
			t = "-inf"
		case strings.Contains(s.flags, "+"):
			t = "+" + t
		}
		if verb < 'a' {
			t = strings.ToUpper(t)
		}
		p.text(t, spec{flags: s.flags, width: s.width})
		return
	case verb == 'a' || verb == 'A':
		p.out.WriteString(fmt.Sprintf(s.goFormat(verb+'x'-'a'), v))
		return
	case (verb == 'g' || verb == 'G') && s.hasPrec && s.prec == 0:
		s.prec = 1
	case !s.hasPrec && (verb == 'g' || verb == 'G'):
		s.hasPrec, s.prec = true, 6
	}
	p.out.WriteString(fmt.Sprintf(s.goFormat(verb), v))
}

// floating reads a number argument.
func (p *printer) floating() float64 {
	a := p.next()
	if a == "" {
		return 0
	}
	if a[0] == '\'' || a[0] == '"' {
		c, _ := decode(a+"\x00", 1)
		return float64(c)
	}
	t := strings.TrimLeft(a, " \t\n")
	v, err := strconv.ParseFloat(t, 64)
	if err == nil && strings.IndexByte(t, '_') < 0 {
		return v
	}
	if errors.Is(err, strconv.ErrRange) {
		return v
	}
	if strings.HasPrefix(strings.TrimLeft(t, "+-"), "0x") {
		if v, err := strconv.ParseFloat(t+"p0", 64); err == nil {
			return v
		}
	}
	p.status = p.c.fail(1, "%s: invalid number", a)
	for end := len(t); end > 0; end-- { // as much as is a number
		if v, err := strconv.ParseFloat(t[:end], 64); err == nil {
			return v
		}
		if end > 400 {
			end = 400
		}
	}
	return 0
}

// goFormat returns the directive in the form of package fmt.
func (s spec) goFormat(verb byte) string {
	f := "%" + strings.ReplaceAll(s.flags, "'", "")
	if strings.Contains(f, "-") {
		f = strings.ReplaceAll(f, "0", "")
	}
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

// text pads and cuts a string, by bytes.
func (p *printer) text(t string, s spec) {
	if s.hasPrec && s.prec < len(t) {
		t = t[:s.prec]
	}
	fill := ""
	if s.width > len(t) {
		fill = strings.Repeat(" ", s.width-len(t))
	}
	if strings.Contains(s.flags, "-") {
		p.out.WriteString(t + fill)
	} else {
		p.out.WriteString(fill + t)
	}
}

// integer reads a number argument as C does. 'x is the code of x.
func (p *printer) integer() int64 {
	full := p.next()
	a := strings.TrimLeft(full, " \t\n")
	if a == "" {
		return 0
	}
	if a[0] == '\'' || a[0] == '"' {
		if len(a) == 1 {
			return 0
		}
		c, _ := decode(a, 1)
		if c < 0 {
			c = -c
		}
		return int64(c)
	}
	neg, d := false, a
	if d[0] == '-' || d[0] == '+' {
		neg, d = d[0] == '-', d[1:]
	}
	base, kind := uint64(10), "number"
	switch {
	case strings.HasPrefix(d, "0x") || strings.HasPrefix(d, "0X"):
		base, d, kind = 16, d[2:], "hex number"
	case strings.HasPrefix(d, "0"):
		base, kind = 8, "octal number"
	}
	n, end, over := uint64(0), 0, false
	for ; end < len(d); end++ {
		v := digit(d[end], 36)
		if v < 0 || uint64(v) >= base {
			break
		}
		if n > (math.MaxUint64-uint64(v))/base {
			over = true
		}
		n = n*base + uint64(v)
	}
	if end < len(d) || end == 0 {
		p.status = p.c.fail(1, "%s: invalid %s", full, kind)
	}
	limit, unsigned := uint64(math.MaxInt64), p.unsigned
	if unsigned {
		limit, p.unsigned = math.MaxUint64, false
	}
	if neg && limit == math.MaxInt64 {
		limit++
	}
	if over || n > limit && (neg || base == 10) {
		p.c.fail(0, "warning: %s: Numerical result out of range", full)
		switch {
		case unsigned:
			return -1
		case neg:
			return math.MinInt64
		}
		return math.MaxInt64
	}
	if neg {
		return -int64(n)
	}
	return int64(n)
}

// time prints %(format)T.
func (p *printer) time(format string, s spec) {
	at := p.c.r.m.now()
	if len(p.args) > 0 {
		switch n := p.integer(); n {
		case -1:
		case -2:
			at = p.c.r.clock
		default:
			at = time.Unix(n, 0)
		}
	}
	if format == "" {
		format = "%X"
	}
	p.text(strftime(format, at.UTC()), s)
}

package eval

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// directive is one % of a format.
type directive struct {
	minus, plus, space, alt, zero bool
	group                         bool
	width, prec                   int // prec is -1 without one
	verb                          byte
	end                           int // offset behind it
}

// formatter writes one format.
type formatter struct {
	m      *machine
	format string
	args   []value
	next   int
	out    []byte
}

// sprintf formats values.
func (m *machine) sprintf(format string, args []value) string {
	return stringOf(m.appendf(nil, format, args))
}

// appendf appends formatted values.
func (m *machine) appendf(out []byte, format string, args []value) []byte {
	f := formatter{m: m, format: format, args: args, out: out}
	for i := 0; i < len(format); {
		n := strings.IndexByte(format[i:], '%')
		if n < 0 {
			f.out = append(f.out, format[i:]...)
			break
		}
		f.out = append(f.out, format[i:i+n]...)
		i = f.directive(i + n)
	}
	return f.out
}

// missing ends the program for want of an argument.
func (f *formatter) missing(end int) {
	f.m.fatal("not enough arguments to satisfy format string\n\t`%s'\n\t%s^ ran out for this one",
		f.format, strings.Repeat(" ", min(max(end-1, 0), 200)))
}

// arg returns the argument at n from 1 on, or the next one for 0.
func (f *formatter) arg(n, end int) value {
	if n == 0 {
		f.next++
		n = f.next
	}
	if n > len(f.args) {
		f.missing(end)
	}
	return f.args[n-1]
}

// number reads digits; a number that is too large is cut.
func (f *formatter) number(i int) (n, end int) {
	for i < len(f.format) && isDigit(f.format[i]) {
		n = min(n*10+int(f.format[i]-'0'), maxText+1)
		i++
	}
	return n, i
}

// star reads * or *n$ and returns its value.
func (f *formatter) star(i int) (n, end int) {
	which, at := f.number(i + 1)
	if which > 0 && at < len(f.format) && f.format[at] == '$' {
		at++
	} else {
		which, at = 0, i+1
	}
	v := f.arg(which, at).num()
	return int(max(min(v, maxText+1), -maxText-1)), at
}

// directive writes what the % at i asks for, and returns where to go on.
func (f *formatter) directive(i int) int {
	d := directive{prec: -1}
	at, which := i+1, 0
	if n, end := f.number(at); n > 0 && end < len(f.format) && f.format[end] == '$' {
		at, which = end+1, n
	}
	at = f.flags(&d, at)
	switch {
	case at < len(f.format) && f.format[at] == '*':
		d.width, at = f.star(at)
		if d.width < 0 {
			d.minus, d.width = true, -d.width
		}
	default:
		d.width, at = f.number(at)
	}
	if at < len(f.format) && f.format[at] == '.' {
		if at+1 < len(f.format) && f.format[at+1] == '*' {
			d.prec, at = f.star(at + 1)
			d.prec = max(d.prec, -1)
		} else {
			d.prec, at = f.number(at + 1)
		}
	}
	for at < len(f.format) && strings.IndexByte("hlLqjzt", f.format[at]) >= 0 &&
		at+1 < len(f.format) && strings.IndexByte("diouxXcsaAeEfFgG", f.format[at+1]) >= 0 {
		at++
	}
	if at >= len(f.format) {
		f.out = append(f.out, f.format[i:]...)
		return len(f.format)
	}
	d.verb, d.end = f.format[at], at+1
	if d.verb == '%' {
		f.out = append(f.out, '%')
		return d.end
	}
	if strings.IndexByte("diouxXcsaAeEfFgG", d.verb) < 0 {
		f.out = append(f.out, f.format[i:d.end]...)
		return d.end
	}
	f.m.room(d.width + max(d.prec, 0))
	f.value(&d, f.arg(which, d.end))
	return d.end
}

// flags reads the flags of a directive.
func (f *formatter) flags(d *directive, at int) int {
	for ; at < len(f.format); at++ {
		switch f.format[at] {
		case '-':
			d.minus = true
		case '+':
			d.plus = true
		case ' ':
			d.space = true
		case '#':
			d.alt = true
		case '0':
			d.zero = true
		case '\'':
			d.group = true
		default:
			return at
		}
	}
	return at
}

// value writes one argument.
func (f *formatter) value(d *directive, v value) {
	switch d.verb {
	case 's':
		s := f.m.str(v)
		if d.prec >= 0 {
			s = s[:f.m.advance(s, 0, d.prec)]
		}
		f.pad(d, s, false)
	case 'c':
		s := f.character(v)
		if d.width > 0 && v.settled().numeric() {
			d.width -= len(s) - f.m.length(s) // of a number's character gawk counts the bytes
		}
		f.pad(d, s, false)
	case 'd', 'i':
		f.integer(d, v.settled().num())
	case 'o', 'u', 'x', 'X':
		f.unsigned(d, v.settled().num())
	default:
		f.float(d, v.settled().num())
	}
}

// character is what %c writes.
func (f *formatter) character(v value) string {
	v = v.settled()
	if v.k == kindNumber || v.k == kindStrnum {
		n := v.n
		if f.m.bytes || !(n >= 0 && n <= utf8.MaxRune) || n >= 0xd800 && n < 0xe000 {
			return string([]byte{byte(int64(max(min(n, maxExact), -maxExact)))})
		}
		return string(rune(n))
	}
	if v.s == "" {
		return "\x00"
	}
	return v.s[:f.m.charLen(v.s)]
}

// pad writes a text in its width. Numbers that may be filled with zeros have their sign first.
func (f *formatter) pad(d *directive, s string, zeros bool) {
	fill := 0
	if d.width > 0 {
		fill = d.width - f.m.length(s)
	}
	if fill <= 0 {
		f.out = append(f.out, s...)
		return
	}
	switch {
	case d.minus:
		f.out = append(f.out, s...)
		f.repeat(' ', fill)
	case zeros && d.zero:
		sign := 0
		for sign < len(s) && strings.IndexByte("+- ", s[sign]) >= 0 {
			sign++
		}
		if rest := s[sign:]; len(rest) > 1 && rest[0] == '0' && rest[1]|0x20 == 'x' {
			sign += 2
		}
		f.out = append(f.out, s[:sign]...)
		f.repeat('0', fill)
		f.out = append(f.out, s[sign:]...)
	default:
		f.repeat(' ', fill)
		f.out = append(f.out, s...)
	}
}

func (f *formatter) repeat(c byte, n int) {
	for range n {
		f.out = append(f.out, c)
	}
}

// signed puts the sign before the digits of a number.
func signed(d *directive, negative bool, digits string) string {
	switch {
	case negative:
		return "-" + digits
	case d.plus:
		return "+" + digits
	case d.space:
		return " " + digits
	}
	return digits
}

// odd writes what is not finite; it has no width.
func (f *formatter) odd(n float64) { f.out = append(f.out, oddNumber(n)...) }

// digits is the whole number n ≥ 0.
func digits(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }

// precision fills digits with zeros to the precision.
func (f *formatter) precision(d *directive, s string) string {
	if d.prec >= 0 {
		d.zero = false
		if len(s) < d.prec {
			s = strings.Repeat("0", d.prec-len(s)) + s
		}
	}
	return s
}

func (f *formatter) integer(d *directive, n float64) {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		f.odd(n)
		return
	}
	n = math.Trunc(n)
	if d.prec == 0 && n == 0 { // gawk writes no sign either
		f.pad(d, "", false)
		return
	}
	s := f.precision(d, digits(math.Abs(n)))
	f.pad(d, signed(d, n < 0, s), true)
}

// unsigned writes a number in another base, and one that is negative as a machine's number of 64
// bits. One with more bits than that is written by %g, as gawk does.
func (f *formatter) unsigned(d *directive, n float64) {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		f.odd(n)
		return
	}
	if d.prec == 0 && n == 0 && !d.alt { // of a fraction gawk writes 0
		f.pad(d, "", false)
		return
	}
	prefixed := d.alt && n != 0 // also a fraction, of which nothing is left
	n = math.Trunc(n)
	if n < -1<<63 || n >= 1<<64 {
		d.verb = 'g'
		f.float(d, n)
		return
	}
	base, prefix := 10, ""
	switch d.verb {
	case 'o':
		base = 8
	case 'x', 'X':
		base = 16
		if prefixed {
			prefix = "0x"
		}
	}
	bits := uint64(n)
	if n < 0 {
		bits = uint64(int64(n))
	}
	s := f.precision(d, strconv.FormatUint(bits, base))
	if d.verb == 'o' && prefixed { // in gawk also before the zeros of a precision
		s = "0" + s
	}
	s = prefix + s
	if d.verb == 'X' {
		s = strings.ToUpper(s)
	}
	f.pad(d, s, true)
}

// float writes a number with a fraction.
func (f *formatter) float(d *directive, n float64) {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		f.odd(n)
		return
	}
	verb, prec := d.verb|0x20, d.prec
	if prec < 0 && verb != 'a' {
		prec = 6
	}
	abs := math.Abs(n)
	var s string
	switch verb {
	case 'f', 'e':
		s = strconv.FormatFloat(abs, verb, prec, 64)
		if d.alt && prec == 0 {
			s = withPoint(s)
		}
	case 'g':
		prec = max(prec, 1)
		s = strconv.FormatFloat(abs, 'g', prec, 64)
		if d.alt {
			s = fullG(abs, prec)
		}
	case 'a':
		s = hexFloat(abs, prec)
	}
	if d.verb < 'a' {
		s = strings.ToUpper(s)
	}
	f.pad(d, signed(d, math.Signbit(n), s), true)
}

// withPoint gives a number a decimal point, before its exponent.
func withPoint(s string) string {
	if i := strings.IndexByte(s, 'e'); i >= 0 {
		return s[:i] + "." + s[i:]
	}
	return s + "."
}

// fullG is %#g: the zeros at the end stay.
func fullG(n float64, prec int) string {
	s := strconv.FormatFloat(n, 'e', prec-1, 64)
	exp, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:]) // strconv wrote it
	if exp >= -4 && exp < prec {
		s = strconv.FormatFloat(n, 'f', prec-1-exp, 64)
	}
	if !strings.Contains(s, ".") {
		s = withPoint(s)
	}
	return s
}

// hexFloat is %a: its exponent has no leading zero.
func hexFloat(n float64, prec int) string {
	s := strconv.FormatFloat(n, 'x', prec, 64)
	i := strings.IndexByte(s, 'p')
	exp := s[i+2:]
	if len(exp) > 1 {
		exp = strings.TrimPrefix(exp, "0")
	}
	return s[:i+2] + exp
}

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

// missing ends the program because an argument is missing.
func (f *formatter) missing(end int) {
	f.m.fatal("not enough arguments to satisfy format string\n\t`%s'\n\t%s^ ran out for this one",
		f.format, strings.Repeat(" ", min(max(end-1, 0), 200)))
}

// arg returns argument n, counted from 1. For 0 it returns the next one.
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

// number reads digits. It limits a number that is too large.
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

// directive writes the directive at i, and returns where to continue.
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
			d.width -= len(s) - f.m.length(s) // for the character of a number, gawk counts bytes
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

// pad writes a text, padded to its width. For numbers that are padded with zeros, the sign comes
// first.
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

// odd writes a NaN or an infinity, without a width.
func (f *formatter) odd(n float64) { f.out = append(f.out, oddNumber(n)...) }

// digits returns the digits of the whole number n ≥ 0.
func digits(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }

// precision adds leading zeros up to the precision.
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

// unsigned writes a number in another base. A negative number is written as a 64-bit two's
// complement. A number with more than 64 bits is written with %g, as in gawk.
func (f *formatter) unsigned(d *directive, n float64) {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		f.odd(n)
		return
	}
	if d.prec == 0 && n == 0 && !d.alt { // of a fraction gawk writes 0
		f.pad(d, "", false)
		return
	}
	prefixed := d.alt && n != 0 // even for a fraction whose whole part is 0
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
	if d.verb == 'o' && prefixed { // in gawk, even before the zeros of a precision
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

// withPoint adds a decimal point to a number, before its exponent.
func withPoint(s string) string {
	if i := strings.IndexByte(s, 'e'); i >= 0 {
		return s[:i] + "." + s[i:]
	}
	return s + "."
}

// fullG is %#g: it keeps the zeros at the end.
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

package interp

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is one conversion of a format.
type spec struct {
	minus, zero, plus, space, sharp bool
	width, prec                     int // prec is -1 when none was given
	verb                            byte
}

// formatter is one call of sprintf.
type formatter struct {
	p    *interp
	args []value
	next int
	out  []byte
}

// sprintf formats as gawk does: conversions that it doesn't know are text, and an argument that is missing ends the program.
func (p *interp) sprintf(format string, args []value) (string, error) {
	f := formatter{p: p, args: args}
	for i := 0; i < len(format); {
		n := strings.IndexByte(format[i:], '%')
		if n < 0 {
			f.out = append(f.out, format[i:]...)
			break
		}
		f.out = append(f.out, format[i:i+n]...)
		i += n
		end, err := f.conversion(format, i)
		if err != nil {
			return "", err
		}
		if i = end; len(f.out) > maxString {
			return "", newError("string too long")
		}
	}
	return string(f.out), p.work(len(f.out))
}

// arg is the next argument, or the n-th if n is above 0.
func (f *formatter) arg(n int) (value, error) {
	if n == 0 {
		f.next++
		n = f.next
	}
	if n > len(f.args) {
		return value{}, newError("not enough arguments to satisfy format string")
	}
	return f.args[n-1], nil
}

// number reads digits.
func number(s string, i int) (n, end int) {
	for ; i < len(s) && isDigit(s[i]); i++ {
		n = min(n*10+int(s[i]-'0'), maxString)
	}
	return n, i
}

// conversion formats the conversion that begins at i and returns where it ends.
func (f *formatter) conversion(s string, i int) (int, error) {
	start := i
	i++
	c := spec{prec: -1}
	which := 0
	if n, end := number(s, i); end > i && end < len(s) && s[end] == '$' {
		which, i = n, end+1
	}
	for ; i < len(s) && strings.IndexByte(" +-#0'", s[i]) >= 0; i++ {
		switch s[i] {
		case ' ':
			c.space = true
		case '+':
			c.plus = true
		case '-':
			c.minus = true
		case '#':
			c.sharp = true
		case '0':
			c.zero = true
		}
	}
	star := func(i int) (int, int, error) {
		n, end := number(s, i+1)
		if end == i+1 || end >= len(s) || s[end] != '$' {
			n, end = 0, i+1
		} else {
			end++
		}
		v, err := f.arg(n)
		return int(max(min(v.num(), maxString), -maxString)), end, err
	}
	var err error
	if i < len(s) && s[i] == '*' {
		if c.width, i, err = star(i); err != nil {
			return 0, err
		}
		if c.width < 0 {
			c.minus, c.width = true, -c.width
		}
	} else {
		c.width, i = number(s, i)
	}
	if i < len(s) && s[i] == '.' {
		if i+1 < len(s) && s[i+1] == '*' {
			if c.prec, i, err = star(i + 1); err != nil {
				return 0, err
			}
			c.prec = max(c.prec, -1)
		} else {
			c.prec, i = number(s, i+1)
		}
	}
	for i < len(s) && strings.IndexByte("hlLqjzt", s[i]) >= 0 {
		i++
	}
	if max(c.width, c.prec) > maxString/2 {
		return 0, newError("format too wide")
	}
	if i == len(s) {
		f.out = append(f.out, s[start:]...)
		return i, nil
	}
	c.verb = s[i]
	i++
	switch c.verb {
	case '%':
		f.out = append(f.out, '%')
		return i, nil
	case 'c', 's', 'd', 'i', 'o', 'x', 'X', 'u', 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
	default:
		f.out = append(f.out, s[start:i]...)
		return i, nil
	}
	v, err := f.arg(which)
	if err != nil {
		return 0, err
	}
	switch c.verb {
	case 's':
		text := f.p.toString(v)
		if c.prec >= 0 {
			text = f.p.cut(text, c.prec)
		}
		f.pad(&c, text)
	case 'c':
		f.pad(&c, f.p.char(v))
	default:
		f.out = c.number(f.out, v.num())
	}
	return i, nil
}

// cut returns the first n characters.
func (p *interp) cut(s string, n int) string {
	if !p.chars {
		return s[:min(n, len(s))]
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// char is what %c prints: the character of a number, or the first one of a string.
func (p *interp) char(v value) string {
	n, text := v.isTrueStr()
	if text {
		s := p.toString(v)
		if s == "" {
			return "\x00"
		}
		return p.cut(s, 1)
	}
	if p.chars && n >= 0 && n <= utf8.MaxRune && utf8.ValidRune(rune(n)) {
		return string(rune(n))
	}
	return string([]byte{byte(int64(n))})
}

// pad appends text at the width, which counts characters.
func (f *formatter) pad(c *spec, text string) {
	n := len(text)
	if f.p.chars {
		n = utf8.RuneCountInString(text)
	}
	if !c.minus {
		f.out = appendSpaces(f.out, c.width-n)
	}
	f.out = append(f.out, text...)
	if c.minus {
		f.out = appendSpaces(f.out, c.width-n)
	}
}

func appendSpaces(b []byte, n int) []byte {
	for ; n > 0; n-- {
		b = append(b, ' ')
	}
	return b
}

// number appends a number.
func (c *spec) number(b []byte, n float64) []byte {
	sign := ""
	neg := math.Signbit(n)
	switch {
	case neg:
		sign = "-"
	case c.plus:
		sign = "+"
	case c.space:
		sign = " "
	}
	if math.IsNaN(n) || math.IsInf(n, 0) {
		if sign == "" {
			sign = "+"
		}
		word := "inf"
		if math.IsNaN(n) {
			word = "nan"
		}
		return append(append(b, sign...), word...) // at no width, as gawk has them
	}
	var digits, prefix string
	whole := false
	switch c.verb {
	case 'd', 'i':
		n = math.Trunc(n)
		if n == 0 && neg {
			sign = strings.TrimPrefix(sign, "-")
		}
		digits, whole = strconv.FormatFloat(math.Abs(n), 'f', 0, 64), true
	case 'u', 'o', 'x', 'X':
		n = math.Trunc(n)
		if n >= 1<<64 || n < -1<<63 {
			d := *c
			d.verb, d.prec = 'g', -1
			return d.number(b, n)
		}
		u := uint64(n)
		if n < 0 {
			u = uint64(int64(n))
		}
		sign, whole = "", true
		switch c.verb {
		case 'u':
			digits = strconv.FormatUint(u, 10)
		case 'o':
			if digits = strconv.FormatUint(u, 8); c.sharp && u != 0 {
				digits = "0" + digits
			}
		default:
			digits = strconv.FormatUint(u, 16)
			if c.sharp && u != 0 {
				prefix = "0x"
			}
		}
		if c.verb == 'X' {
			digits, prefix = strings.ToUpper(digits), strings.ToUpper(prefix)
		}
	default:
		digits, prefix = c.float(math.Abs(n))
	}
	if whole && c.prec >= 0 {
		if c.prec == 0 && digits == "0" {
			digits = ""
		}
		for len(digits) < c.prec {
			digits = strings.Repeat("0", c.prec-len(digits)) + digits
		}
	}
	return c.justify(b, sign, prefix, digits, c.zero && !c.minus && !(whole && c.prec >= 0))
}

// justify appends a number at its width.
func (c *spec) justify(b []byte, sign, prefix, digits string, zeros bool) []byte {
	fill := c.width - len(sign) - len(prefix) - len(digits)
	switch {
	case c.minus:
		return appendSpaces(append(append(append(b, sign...), prefix...), digits...), fill)
	case zeros:
		b = append(append(b, sign...), prefix...)
		for ; fill > 0; fill-- {
			b = append(b, '0')
		}
		return append(b, digits...)
	}
	b = appendSpaces(b, fill)
	return append(append(append(b, sign...), prefix...), digits...)
}

// float returns the digits of e, f, g and a, as C has them.
func (c *spec) float(n float64) (digits, prefix string) {
	prec := c.prec
	if prec < 0 {
		prec = 6
	}
	switch c.verb {
	case 'e', 'E':
		digits = strconv.FormatFloat(n, c.verb, prec, 64)
	case 'f', 'F':
		digits = strconv.FormatFloat(n, 'f', prec, 64)
	case 'g', 'G':
		if c.sharp {
			return fmt.Sprintf("%#."+strconv.Itoa(max(prec, 1))+string(c.verb), n), ""
		}
		return strconv.FormatFloat(n, c.verb, max(prec, 1), 64), ""
	default: // a, A
		digits = strconv.FormatFloat(n, 'x', c.prec, 64)[2:]
		if at := strings.IndexByte(digits, 'p'); at >= 0 && len(digits) == at+4 && digits[at+2] == '0' {
			digits = digits[:at+2] + digits[at+3:]
		}
		prefix = "0x"
		if c.verb == 'A' {
			digits, prefix = strings.ToUpper(digits), "0X"
		}
		return digits, prefix
	}
	if c.sharp && prec == 0 && !strings.Contains(digits, ".") {
		if at := strings.IndexAny(digits, "eE"); at >= 0 {
			return digits[:at] + "." + digits[at:], ""
		}
		digits += "."
	}
	return digits, ""
}

// convert is a number as CONVFMT or OFMT says.
func convert(format string, n float64) string {
	f := formatter{p: &interp{}, args: []value{num(n)}}
	for i := 0; i < len(format); {
		at := strings.IndexByte(format[i:], '%')
		if at < 0 {
			return string(append(f.out, format[i:]...))
		}
		f.out = append(f.out, format[i:i+at]...)
		end, err := f.conversion(format, i+at)
		if err != nil {
			return string(f.out)
		}
		i = end
	}
	return string(f.out)
}

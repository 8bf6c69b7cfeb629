package jq

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

func (d *Decoder) word() (any, error) {
	var b [9]byte
	n := 0
	for d.more() && n < len(b) {
		c := d.buf[d.pos]
		if c < 'a' && (c < 'A' || c > 'Z') || c > 'z' {
			break
		}
		b[n] = c
		n++
		d.next()
	}
	switch string(b[:n]) {
	case "null":
		return nil, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "nan", "NaN":
		for d.more() && d.buf[d.pos] >= '0' && d.buf[d.pos] <= '9' { // its payload
			d.next()
		}
		return math.NaN(), nil
	case "Infinity", "infinity":
		return math.Inf(1), nil
	}
	return nil, d.fail("Invalid literal")
}

func (d *Decoder) number() (any, error) {
	var b []byte
	for d.more() {
		c := d.buf[d.pos]
		if c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' && (c < '0' || c > '9') {
			break
		}
		b = append(b, c)
		d.next()
	}
	if c := d.peek(); string(b) == "-" && (c == 'I' || c|0x20 == 'n') {
		if v, err := d.word(); err == nil {
			if f, ok := v.(float64); ok {
				return -f, nil
			}
		}
	}
	v, ok := parseNumber(string(b))
	if !ok {
		return nil, d.fail("Invalid numeric literal")
	}
	return v, nil
}

// parseNumber parses a number. It keeps the digits of an integer that a float64 would change.
func parseNumber(s string) (any, bool) {
	if s == "" || strings.ContainsAny(s, "_xXpPiInN") || s[0] == '+' {
		return nil, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return nil, false
	}
	if math.Abs(f) < 1<<53 || len(s) > 1000 {
		return f, true
	}
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (i > 0 || s[i] != '-') {
			return f, true
		}
	}
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	if s = strings.TrimLeft(s, "0"); len(s) > 17 || f >= 1<<53 || f <= -(1<<53) {
		return Number(sign + s), true
	}
	return f, true
}

func (d *Decoder) str() (string, error) {
	// Most strings are completely in the buffer and have no escapes.
	for i := d.pos; i < len(d.buf); i++ {
		c := d.buf[i]
		if c == '"' {
			s := string(d.buf[d.pos:i])
			d.col += i + 1 - d.pos
			d.pos = i + 1
			if !utf8.ValidString(s) {
				s = strings.ToValidUTF8(s, "\ufffd")
			}
			return d.p.str(s)
		}
		if c == '\\' || c < ' ' {
			break
		}
	}
	var b []byte
	for {
		if !d.more() {
			return "", d.fail("")
		}
		c := d.buf[d.pos]
		d.next()
		switch c {
		case '"':
			s := string(b)
			if !utf8.ValidString(s) {
				s = strings.ToValidUTF8(s, "\ufffd")
			}
			return d.p.str(s)
		case '\\':
			r, err := d.escape()
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, c)
		}
		if len(b)&0xffff == 0xffff {
			if err := d.some(1 << 17); err != nil {
				return "", err
			}
		}
	}
}

func (d *Decoder) escape() (rune, error) {
	if !d.more() {
		return 0, d.fail("")
	}
	c := d.buf[d.pos]
	d.next()
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'n':
		return '\n', nil
	case 't':
		return '\t', nil
	case 'r':
		return '\r', nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'u':
	default:
		return 0, d.fail("Invalid escape")
	}
	r, err := d.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if d.peek() != '\\' || d.pos+1 >= len(d.buf) || d.buf[d.pos+1] != 'u' {
		return utf8.RuneError, nil
	}
	d.next()
	d.next()
	low, err := d.hex4()
	return utf16.DecodeRune(r, low), err
}

func (d *Decoder) hex4() (rune, error) {
	var r rune
	for range 4 {
		if !d.more() {
			return 0, d.fail("")
		}
		c := d.buf[d.pos]
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, d.fail("Invalid escape")
		}
		d.next()
	}
	return r, nil
}

package jq

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Style says how values are written.
type Style struct {
	Indent string // "" writes one line
	Sort   bool   // keys in order
	ASCII  bool   // escape what isn't ASCII
	Color  bool
}

// colors are the colours of jq 1.7, by rank of type, and the colour of keys.
var colors = [...]string{"\x1b[1;30m", "\x1b[0;39m", "\x1b[0;39m", "\x1b[0;39m", "\x1b[0;32m", "\x1b[1;39m", "\x1b[1;39m"}

const (
	keyColor = "\x1b[34;1m"
	noColor  = "\x1b[0m"
)

// Append appends a value as JSON.
func Append(b []byte, v any, s Style) []byte { return (&writer{Style: s}).value(b, v, 0) }

// Text returns a value as JSON in one line. A text of more than maxText bytes is cut: parts may be
// shared, so a small value can have an endless text.
func Text(v any) string { return string((&writer{max: maxText}).value(nil, v, 0)) }

const maxText = 32 << 20

// text is Text, paid for.
func (p *purse) text(v any) (string, error) {
	b, err := p.appendTo(nil, v, Style{})
	if err != nil {
		return "", err
	}
	s, err := p.str(string(b))
	return s, err
}

// appendTo is Append, and pays while it writes.
func (p *purse) appendTo(b []byte, v any, s Style) ([]byte, error) {
	w := &writer{Style: s, p: p, paid: int64(len(b))}
	before := w.paid
	b = w.value(b, v, 0)
	if w.paid > before {
		_ = p.pay(before - w.paid)
	}
	if p.dead {
		return nil, ErrStop
	}
	return b, nil
}

// Printer writes values and pays for that: parts may be shared, so a small value can have a long
// text.
type Printer struct{ p *purse }

// NewPrinter returns a printer that pays from b.
func NewPrinter(b Budget) *Printer { return &Printer{newPurse(b)} }

// Append is the function Append, and pays while it writes. Its error is ErrStop.
func (p *Printer) Append(b []byte, v any, s Style) ([]byte, error) { return p.p.appendTo(b, v, s) }

type writer struct {
	Style
	p    *purse
	paid int64 // of the text
	max  int   // bytes after which writing may stop, 0 for no limit
}

// enough reports whether to stop writing.
func (w *writer) enough(b []byte) bool {
	if w.max > 0 && len(b) > w.max || w.p.spend() {
		return true
	}
	if n := int64(len(b)) - w.paid; w.p != nil && n > 1<<16 {
		w.paid += n
		return w.p.pay(n) != nil
	}
	return false
}

func (w *writer) value(b []byte, v any, depth int) []byte {
	if w.enough(b) {
		return b
	}
	if depth > maxDepth {
		return append(b, `"<skipped: too deep>"`...)
	}
	if w.Color {
		b = append(b, colors[order(v)]...)
	}
	switch v := v.(type) {
	case nil:
		b = append(b, "null"...)
	case bool:
		b = strconv.AppendBool(b, v)
	case float64:
		b = appendNumber(b, v)
	case Number:
		b = append(b, v...)
	case string:
		b = w.str(b, v)
	case []any:
		b = w.array(b, v, depth)
	case *Object:
		b = w.object(b, v, depth)
	}
	if w.Color {
		b = append(b, noColor...)
	}
	return b
}

func (w *writer) line(b []byte, depth int) []byte {
	if w.Indent == "" {
		return b
	}
	b = append(b, '\n')
	for range depth {
		b = append(b, w.Indent...)
	}
	return b
}

func (w *writer) array(b []byte, v []any, depth int) []byte {
	b = append(b, '[')
	for i, e := range v {
		if i > 0 {
			b = w.mark(b, ",", order(v))
		}
		b = w.line(b, depth+1)
		b = w.value(b, e, depth+1)
	}
	if len(v) > 0 {
		if w.Color {
			b = append(b, colors[5]...)
		}
		b = w.line(b, depth)
	}
	if w.Color {
		b = append(b, colors[5]...)
	}
	return append(b, ']')
}

// mark writes punctuation in the colour of its container.
func (w *writer) mark(b []byte, s string, kind int) []byte {
	if w.Color {
		b = append(b, colors[kind]...)
	}
	return append(b, s...)
}

func (w *writer) object(b []byte, o *Object, depth int) []byte {
	b = append(b, '{')
	keys := o.keys
	if w.Sort {
		keys = o.sorted()
	}
	for i, k := range keys {
		if i > 0 {
			b = w.mark(b, ",", 6)
		}
		b = w.line(b, depth+1)
		if w.Color {
			b = append(b, noColor+keyColor...)
		}
		b = w.str(b, k)
		if w.Color {
			b = append(b, noColor+"\x1b[1;39m:"...)
		} else {
			b = append(b, ':')
		}
		if w.Indent != "" {
			b = append(b, ' ')
		}
		if w.Color {
			b = append(b, noColor...)
		}
		v := o.vals[i]
		if w.Sort {
			v, _ = o.Get(k)
		}
		b = w.value(b, v, depth+1)
	}
	if len(keys) > 0 {
		if w.Color {
			b = append(b, colors[6]...)
		}
		b = w.line(b, depth)
	}
	if w.Color {
		b = append(b, colors[6]...)
	}
	return append(b, '}')
}

const hexDigits = "0123456789abcdef"

// str writes a string in quotes. Bytes that aren't UTF-8 become U+FFFD.
func (w *writer) str(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		r, n := rune(c), 1
		if c >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(s[i:])
			if !w.ASCII && (r != utf8.RuneError || n > 1) {
				i += n
				continue
			}
		}
		b = append(b, s[start:i]...)
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\b':
			b = append(b, '\\', 'b')
		case r == '\f':
			b = append(b, '\\', 'f')
		case r < utf8.RuneSelf, w.ASCII && r < 0x10000:
			b = appendU(b, r)
		case w.ASCII:
			r -= 0x10000
			b = appendU(appendU(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			b = utf8.AppendRune(b, r)
		}
		i += n
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

func appendU(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// appendNumber writes a number as jq does: with the fewest digits that give the same number when
// read.
func appendNumber(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "null"...)
	case math.IsInf(f, 1):
		f = math.MaxFloat64
	case math.IsInf(f, -1):
		f = -math.MaxFloat64
	case f == math.Trunc(f) && math.Abs(f) < 1e15 && (f != 0 || !math.Signbit(f)):
		return strconv.AppendInt(b, int64(f), 10)
	}
	var buf [32]byte
	d := strconv.AppendFloat(buf[:0], f, 'e', -1, 64)
	if d[0] == '-' {
		b, d = append(b, '-'), d[1:]
	}
	e := len(d) - 1
	for d[e] != 'e' {
		e--
	}
	exp, _ := strconv.Atoi(string(d[e+1:])) // AppendFloat wrote it
	digits := append([]byte{d[0]}, d[min(2, e):e]...)
	point := exp + 1 // digits before the point
	switch n := len(digits); {
	case point <= -4 || point > n+15:
		b = append(b, digits[0])
		if n > 1 {
			b = append(append(b, '.'), digits[1:]...)
		}
		b = append(b, 'e', '+')
		if exp < 0 {
			b[len(b)-1] = '-'
			exp = -exp
		}
		if exp < 10 {
			b = append(b, '0')
		}
		return strconv.AppendInt(b, int64(exp), 10)
	case point <= 0:
		b = append(b, '0', '.')
		for range -point {
			b = append(b, '0')
		}
		return append(b, digits...)
	case point >= n:
		b = append(b, digits...)
		for range point - n {
			b = append(b, '0')
		}
		return b
	}
	return append(append(append(b, digits[:point]...), '.'), digits[point:]...)
}

package jq

import (
	"fmt"
	"io"
	"strings"
)

// Decoder reads JSON values one after the other. It reads only as much of its input as they need.
type Decoder struct {
	r      io.Reader
	buf    []byte
	pos    int
	err    error // of r
	p      *purse
	Lines  int // lines read, including the line on which the last value ended
	line   int // line ends before pos
	col    int
	start  bool // nothing was read
	failed bool
	part   int64 // paid for what is being read
}

// NewDecoder returns a decoder that pays from b.
func NewDecoder(r io.Reader, b Budget) *Decoder { return &Decoder{r: r, p: newPurse(b), start: true} }

// SyntaxError is the error of an input that isn't JSON.
type SyntaxError struct {
	Text      string
	Line, Col int
}

// Error implements error.
func (e *SyntaxError) Error() string {
	if e.Line == 0 { // of the text as a whole
		return e.Text
	}
	return fmt.Sprintf("%s at line %d, column %d", e.Text, e.Line, e.Col)
}

func (d *Decoder) fill() bool {
	if d.err != nil {
		return false
	}
	if d.buf == nil {
		d.buf = make([]byte, 0, 32<<10)
	}
	d.buf, d.pos = d.buf[:0], 0
	for range 100 {
		n, err := d.r.Read(d.buf[:cap(d.buf)])
		d.buf, d.err = d.buf[:n], err
		if n > 0 || err != nil {
			break
		}
	}
	if perr := d.p.step(len(d.buf) >> 5); perr != nil {
		d.err = perr
		return false
	}
	if d.start {
		d.start = false
		if strings.HasPrefix(string(d.buf[:min(3, len(d.buf))]), "\ufeff") {
			d.pos = 3
		}
	}
	return len(d.buf) > d.pos
}

// peek returns the next byte, or 0 at the end.
func (d *Decoder) peek() byte {
	if d.pos < len(d.buf) || d.fill() {
		return d.buf[d.pos]
	}
	return 0
}

func (d *Decoder) next() {
	if d.buf[d.pos] == '\n' {
		d.line++
		d.col = -1
	}
	d.pos++
	d.col++
}

func (d *Decoder) more() bool { return d.pos < len(d.buf) || d.fill() }

func (d *Decoder) space() bool {
	for d.more() {
		switch c := d.buf[d.pos]; c {
		case ' ', '\t', '\n', '\r', 0x1e:
			d.next()
		default:
			return true
		}
	}
	return false
}

func (d *Decoder) fail(text string) error {
	if d.err != nil && d.err != io.EOF {
		return d.err
	}
	if !d.more() {
		text = "Unfinished JSON term"
		return &SyntaxError{text + " at EOF", d.line + 1, d.col}
	}
	return &SyntaxError{text, d.line + 1, d.col + 1}
}

// Next returns the next value. At the end the error is io.EOF. After a SyntaxError no value can be
// read.
func (d *Decoder) Next() (any, error) {
	if d.failed || !d.space() {
		if d.err != nil && d.err != io.EOF {
			return nil, d.err
		}
		d.Lines = d.line
		return nil, io.EOF
	}
	v, err := d.value(0)
	_ = d.some(-d.part)
	if err == nil && d.more() {
		switch v.(type) {
		case float64, Number, bool, nil:
			if c := d.peek(); c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
				err = d.fail("Invalid literal")
			}
		}
	}
	d.Lines = d.line
	if err != nil {
		d.failed = true
		return nil, err
	}
	// If a value ends in the middle of a line, count the whole line as read.
	for i := d.pos; i < len(d.buf); i++ {
		if d.buf[i] == '\n' {
			d.Lines++
			break
		}
	}
	return v, d.p.value(v)
}

// some pays for a part of a value during reading. The complete value is paid for at its end.
func (d *Decoder) some(n int64) error {
	d.part += n
	return d.p.pay(n)
}

// Rest returns the bytes that were not used.
func (d *Decoder) Rest() []byte { return d.buf[d.pos:] }

func (d *Decoder) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, d.fail("Exceeds depth limit for parsing")
	}
	switch c := d.peek(); {
	case c == '{':
		return d.object(depth)
	case c == '[':
		return d.array(depth)
	case c == '"':
		d.next()
		return d.str()
	case c == '-' || c >= '0' && c <= '9' || c == '.':
		return d.number()
	case c == '\'':
		return nil, d.fail("Invalid string literal; expected \", but got '")
	default:
		return d.word()
	}
}

func (d *Decoder) array(depth int) (any, error) {
	d.next()
	out := []any{}
	if !d.space() {
		return nil, d.fail("")
	}
	if d.peek() == ']' {
		d.next()
		return out, nil
	}
	for {
		if err := d.p.step(1); err != nil {
			return nil, err
		}
		if !d.space() {
			return nil, d.fail("")
		}
		if d.peek() == ']' {
			return nil, d.fail("Expected another array element")
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if out = append(out, v); len(out)&1023 == 0 {
			if err := d.some(1024 * refCost * 2); err != nil {
				return nil, err
			}
		}
		if !d.space() {
			return nil, d.fail("")
		}
		switch d.peek() {
		case ',':
			d.next()
		case ']':
			d.next()
			return out, d.p.value(out)
		default:
			return nil, d.fail("Expected separator between values")
		}
	}
}

func (d *Decoder) object(depth int) (any, error) {
	d.next()
	out := NewObject(4)
	if !d.space() {
		return nil, d.fail("")
	}
	if d.peek() == '}' {
		d.next()
		return out, nil
	}
	for {
		if err := d.p.step(1); err != nil {
			return nil, err
		}
		if !d.space() {
			return nil, d.fail("")
		}
		if d.peek() != '"' {
			return nil, d.fail("Object keys must be strings")
		}
		d.next()
		k, err := d.str()
		if err != nil {
			return nil, err
		}
		if !d.space() {
			return nil, d.fail("")
		}
		if d.peek() != ':' {
			return nil, d.fail("Objects must consist of key:value pairs")
		}
		d.next()
		if !d.space() {
			return nil, d.fail("")
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out.Set(k, v)
		if !d.space() {
			return nil, d.fail("")
		}
		switch d.peek() {
		case ',':
			d.next()
		case '}':
			d.next()
			return out, d.p.value(out)
		default:
			return nil, d.fail("Expected separator between values")
		}
	}
}

// Parse reads one value from a text, as fromjson does.
func Parse(s string, b Budget) (any, error) {
	d := NewDecoder(strings.NewReader(s), b)
	v, err := d.Next()
	if err == nil && d.space() {
		return nil, &SyntaxError{Text: "Unexpected extra JSON values"}
	}
	return v, err
}

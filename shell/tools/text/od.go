package text

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// odType is one -t of od.
type odType struct {
	kind  byte // a c d f o u x
	size  int
	trail bool // z: print the characters at the end of the line
	width int  // of one field, without the blank before it
}

// odWidths are the field widths of d, u, o and x by size.
var odWidths = map[byte]map[int]int{
	'd': {1: 4, 2: 6, 4: 11, 8: 20}, 'u': {1: 3, 2: 5, 4: 10, 8: 20}, 'o': {1: 3, 2: 6, 4: 11, 8: 22}, 'x': {1: 2, 2: 4, 4: 8, 8: 16}, 'f': {4: 15, 8: 24},
}

// parseTypes reads a -t argument such as x1z or d4.
func parseTypes(s string) (out []odType, err error) {
	bad := func(what string) error { return fmt.Errorf("invalid type string ‘%s’%s", s, what) }
	for i := 0; i < len(s); {
		t := odType{kind: s[i]}
		i++
		switch t.kind {
		case 'a', 'c':
			t.size, t.width = 1, 3
		case 'd', 'o', 'u', 'x', 'f':
			t.size = 4
			if t.kind == 'f' {
				t.size = 8
			}
			sizes := map[byte]int{'C': 1, 'S': 2, 'I': 4, 'L': 8}
			if t.kind == 'f' {
				sizes = map[byte]int{'F': 4, 'D': 8}
			}
			if i < len(s) && sizes[s[i]] != 0 {
				t.size = sizes[s[i]]
				i++
			} else {
				n := i
				for n < len(s) && s[n] >= '0' && s[n] <= '9' {
					n++
				}
				if n > i {
					if t.size, err = strconv.Atoi(s[i:n]); err != nil {
						return nil, bad("")
					}
					i = n
				}
			}
			if t.width = odWidths[t.kind][t.size]; t.width == 0 {
				kind := "integral"
				if t.kind == 'f' {
					kind = "floating point"
				}
				return nil, bad(fmt.Sprintf(";\nthis system doesn't provide a %d-byte %s type", t.size, kind))
			}
		default:
			return nil, fmt.Errorf("invalid character '%c' in type string ‘%s’", t.kind, s)
		}
		if i < len(s) && s[i] == 'z' {
			t.trail = true
			i++
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, bad("")
	}
	return out, nil
}

// odOld maps the old option letters to types.
var odOld = map[byte]string{'a': "a", 'b': "o1", 'c': "c", 'd': "u2", 'f': "fF", 'i': "dI", 'l': "dL", 'o': "o2", 's': "d2", 'x': "x2"}

// oder is one run of od.
type oder struct {
	w     io.Writer
	types []odType
	radix byte
	width int
	order binary.ByteOrder
	all   bool
	unit  int // the least common multiple of the sizes
	cell  int // columns per unit
}

func od(c *tool.Call) int {
	f, ok := c.Flags("A:j:N:S:t:vw::abcdfilosx\x81:", "address-radix=A", "skip-bytes=j", "read-bytes=N", "strings=\x83::", "format=t", "output-duplicates=v", "width=w", "endian=\x81", "traditional=\x82")
	if !ok {
		return 1
	}
	d := &oder{radix: 'o', width: 16, order: binary.LittleEndian, all: f.Has('v')}
	skip, limit := int64(0), int64(-1)
	minString := 0
	for _, o := range f.All {
		var err error
		switch o.Letter {
		case 'A':
			if len(o.Value) != 1 || strings.IndexByte("doxn", o.Value[0]) < 0 {
				return c.Errorf(1, "invalid output address radix '%s'; it must be one character from [doxn]", o.Value)
			}
			d.radix = o.Value[0]
		case 'j':
			skip, err = odSize(o.Value)
		case 'N':
			limit, err = odSize(o.Value)
		case 'S', '\x83':
			minString = 3
			if o.Has {
				var n int64
				n, err = odSize(o.Value)
				minString = int(min(n, 1<<20))
			}
		case 'w':
			d.width = 32
			if o.Has {
				d.width, err = atoi(o.Value)
			}
		case '\x81':
			if strings.HasPrefix("big", o.Value) {
				d.order = binary.BigEndian
			}
		case 't':
			var types []odType
			if types, err = parseTypes(o.Value); err != nil {
				return c.Errorf(1, "%v", err)
			}
			d.types = append(d.types, types...)
		default:
			if t := odOld[o.Letter]; t != "" {
				types, _ := parseTypes(t) // they are known to be right
				d.types = append(d.types, types...)
			}
		}
		if err != nil {
			return c.Errorf(1, "invalid -%c argument '%s'", o.Letter, o.Value)
		}
	}
	if len(d.types) == 0 {
		d.types = []odType{{kind: 'o', size: 2, width: 6}}
	}
	for _, t := range d.types {
		d.unit = max(d.unit, t.size)
	}
	if d.width == 0 || d.width%d.unit != 0 || d.width > 1<<16 {
		c.Errorf(0, "warning: invalid width %d; using %d instead", d.width, d.unit)
		d.width = d.unit
	}
	for _, t := range d.types {
		d.cell = max(d.cell, (t.width+1)*d.unit/t.size)
	}
	names := f.Args
	// The old way: od file +16
	if n := len(names); n > 0 && (f.Has('\x82') || !f.Has('A') && !f.Has('j') && !f.Has('N') && !f.Has('t') && !f.Has('v') && !f.Has('w')) {
		if v, ok := oldOffset(names[n-1]); ok && (n == 2 || strings.HasPrefix(names[0], "+") || f.Has('\x82') && n == 1) {
			skip, names = v, names[:n-1]
		}
	}
	w := c.Buffered()
	d.w = w
	var readers []io.Reader
	status := 0
	if len(names) == 0 {
		names = []string{"-"}
	}
	for _, name := range names {
		in, err := usage.Open(c, name)
		if err != nil {
			status = c.Errorf(1, "%s: %s", name, tool.ErrText(err))
			continue
		}
		defer func() { _ = in.Close() }() // only read
		readers = append(readers, in)
	}
	if len(readers) == 0 {
		return status
	}
	in := io.MultiReader(readers...)
	if skip > 0 {
		n, err := io.CopyN(counting{c}, in, skip)
		if err == io.EOF && n < skip {
			return c.Errorf(1, "cannot skip past end of combined input")
		}
		if err != nil && err != io.EOF {
			return 1
		}
	}
	if limit >= 0 {
		in = io.LimitReader(in, limit)
	}
	var err error
	if minString > 0 {
		err = d.strings(c, in, skip, minString)
	} else {
		err = d.dump(c, in, skip)
	}
	if err != nil && !c.Stopped(err) {
		status = c.Errorf(1, "%s", tool.ErrText(err))
	}
	return c.Flush(w, status)
}

// counting discards skipped bytes and pays for them.
type counting struct{ c *tool.Call }

// Write implements io.Writer.
func (k counting) Write(b []byte) (int, error) {
	if !k.c.Step(1 + len(b)>>8) {
		return 0, tool.ErrStop
	}
	return len(b), nil
}

// oldOffset reads an offset in the old notation: +16, 20, 0x10, 3b, 8. (decimal).
func oldOffset(s string) (int64, bool) {
	s = strings.TrimPrefix(s, "+")
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	mult := int64(1)
	if t := strings.TrimSuffix(s, "b"); t != s && !strings.HasPrefix(s, "0x") {
		mult, s = 512, t
	}
	base := 8
	switch t := strings.TrimSuffix(s, "."); {
	case t != s:
		base, s = 10, t
	case strings.HasPrefix(s, "0x"):
		base, s = 16, s[2:]
	}
	n, err := strconv.ParseInt(s, base, 48)
	return n * mult, err == nil
}

// odSize reads a number that may be octal or hexadecimal, with a suffix.
func odSize(s string) (int64, error) {
	if rest, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		return strconv.ParseInt(rest, 16, 62)
	}
	if len(s) > 1 && s[0] == '0' && strings.Trim(s, "01234567") == "" {
		return strconv.ParseInt(s, 8, 62)
	}
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, errNumber
	}
	return parseSize(s)
}

func (d *oder) address(at int64) string {
	switch d.radix {
	case 'd':
		return fmt.Sprintf("%07d", at)
	case 'x':
		return fmt.Sprintf("%06x", at)
	case 'n':
		return ""
	}
	return fmt.Sprintf("%07o", at)
}

func (d *oder) dump(c *tool.Call, in io.Reader, at int64) error {
	buf := make([]byte, d.width)
	var prev []byte
	starred := false
	for {
		n, err := io.ReadFull(in, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if n == 0 {
			break
		}
		if !c.Step(4 + n>>2) {
			return tool.ErrStop
		}
		if !d.all && n == d.width && prev != nil && bytes.Equal(prev, buf) {
			if !starred {
				if _, werr := io.WriteString(d.w, "*\n"); werr != nil {
					return werr
				}
			}
			starred = true
		} else {
			starred = false
			if werr := d.line(buf[:n], at); werr != nil {
				return werr
			}
			prev = append(prev[:0], buf[:n]...)
		}
		at += int64(n)
		if n < d.width {
			break
		}
	}
	if d.radix != 'n' {
		_, err := fmt.Fprintf(d.w, "%s\n", d.address(at))
		return err
	}
	return nil
}

// line prints one line of each type.
func (d *oder) line(b []byte, at int64) error {
	full := make([]byte, d.width) // zeros fill the last line
	copy(full, b)
	var out strings.Builder
	for i, t := range d.types {
		if i == 0 {
			out.WriteString(d.address(at))
		} else if d.radix != 'n' {
			out.WriteString(strings.Repeat(" ", len(d.address(at))))
		}
		fields := d.width / t.size
		spare := d.cell*(d.width/d.unit) - fields*(t.width+1)
		left := spare
		for k := range fields {
			// Distribute the extra blanks of a narrower type as GNU's od does.
			next := spare * (fields - k - 1) / fields
			pad := left - next + 1
			left = next
			if k*t.size < len(b) {
				fmt.Fprintf(&out, "%*s%*s", pad, "", t.width, t.field(full[k*t.size:(k+1)*t.size], d.order))
			} else if t.trail {
				fmt.Fprintf(&out, "%*s", pad+t.width, "")
			}
		}
		if t.trail {
			out.WriteString("  >")
			for _, x := range b {
				if x < ' ' || x >= 0x7f {
					x = '.'
				}
				out.WriteByte(x)
			}
			out.WriteByte('<')
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(d.w, out.String())
	return err
}

var asciiNames = [...]string{"nul", "soh", "stx", "etx", "eot", "enq", "ack", "bel", "bs", "ht", "nl", "vt", "ff", "cr", "so", "si", "dle", "dc1", "dc2", "dc3", "dc4",
	"nak", "syn", "etb", "can", "em", "sub", "esc", "fs", "gs", "rs", "us", "sp"}

// field renders one value.
func (t odType) field(b []byte, order binary.ByteOrder) string {
	switch t.kind {
	case 'a':
		c := b[0] & 0x7f
		switch {
		case int(c) < len(asciiNames):
			return asciiNames[c]
		case c == 0x7f:
			return "del"
		}
		return string(rune(c))
	case 'c':
		if i := strings.IndexByte("\x00\a\b\t\n\v\f\r", b[0]); i >= 0 {
			return `\` + string("0abtnvfr"[i])
		}
		if b[0] < ' ' || b[0] >= 0x7f {
			return fmt.Sprintf("%03o", b[0])
		}
		return string(rune(b[0]))
	}
	var u uint64
	var s int64
	switch t.size {
	case 1:
		u, s = uint64(b[0]), int64(int8(b[0]))
	case 2:
		v := order.Uint16(b)
		u, s = uint64(v), int64(int16(v))
	case 4:
		v := order.Uint32(b)
		if t.kind == 'f' {
			return shortFloat(float64(math.Float32frombits(v)), 32)
		}
		u, s = uint64(v), int64(int32(v))
	default:
		u = order.Uint64(b)
		if t.kind == 'f' {
			return shortFloat(math.Float64frombits(u), 64)
		}
		s = int64(u)
	}
	switch t.kind {
	case 'd':
		return strconv.FormatInt(s, 10)
	case 'u':
		return strconv.FormatUint(u, 10)
	case 'o':
		return fmt.Sprintf("%0*o", t.width, u)
	}
	return fmt.Sprintf("%0*x", t.width, u)
}

// shortFloat returns the shortest text in the style of %g that gives the same number when read.
func shortFloat(f float64, bits int) string {
	switch {
	case math.IsNaN(f):
		if math.Signbit(f) {
			return "-nan"
		}
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	e := strconv.FormatFloat(f, 'e', -1, bits)
	mant, exp, _ := strings.Cut(e, "e")
	digits := len(strings.TrimLeft(strings.Replace(mant, ".", "", 1), "-"))
	n, err := strconv.Atoi(exp)
	if err != nil || n < -4 || n >= max(digits, map[int]int{32: 6, 64: 15}[bits]) {
		return e
	}
	return strconv.FormatFloat(f, 'f', -1, bits)
}

// strings prints the strings that end with NUL and have at least least characters.
func (d *oder) strings(c *tool.Call, in io.Reader, at int64, least int) error {
	p := newPuller(c, in, 0)
	for {
		l, whole, err := p.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		i := len(l)
		for i > 0 && (l[i-1] >= ' ' && l[i-1] < 0x7f || l[i-1] >= '\a' && l[i-1] <= '\r') {
			i--
		}
		if s := l[i:]; whole && len(s) >= least {
			text := strings.NewReplacer("\a", `\a`, "\b", `\b`, "\t", `\t`, "\n", `\n`, "\v", `\v`, "\f", `\f`, "\r", `\r`).Replace(string(s))
			if a := d.address(at + int64(i)); a != "" {
				text = a + " " + text
			}
			if _, err := fmt.Fprintln(d.w, text); err != nil {
				return err
			}
		}
		at += int64(len(l)) + 1
	}
}

package files

import (
	"fmt"
	"strings"
)

// lineFormats are --old-line-format and the like: the formats for each line.
type lineFormats struct {
	old, new, same string
	given          bool
}

// set takes an option.
func (l *lineFormats) set(letter byte, format string) {
	if !l.given {
		l.old, l.new, l.same, l.given = "%l\n", "%l\n", "%l\n", true
	}
	switch letter {
	case 0x92:
		l.old = format
	case 0x93:
		l.new = format
	case 0x94:
		l.same = format
	default:
		l.old, l.new, l.same = format, format, format
	}
}

// lines prints every line of both files in its format.
func (d *differ) lines(a, b text, script []change) {
	at, other := 0, 0
	for _, ch := range script {
		if ch.ignore {
			continue
		}
		for ; at < ch.a; at, other = at+1, other+1 {
			d.formatted(d.formats.same, a, at)
		}
		if !d.Step(1 + ch.del + ch.ins) {
			return
		}
		for ; at < ch.a+ch.del; at++ {
			d.formatted(d.formats.old, a, at)
		}
		for other = ch.b; other < ch.b+ch.ins; other++ {
			d.formatted(d.formats.new, b, other)
		}
	}
	for ; at < len(a.lines); at++ {
		d.formatted(d.formats.same, a, at)
	}
}

// formatted prints a line: %l is its text, %L its text and its end, %dn its number, and %c'x' a
// character.
func (d *differ) formatted(format string, t text, i int) {
	end := "\n"
	if t.noEnd && i == len(t.lines)-1 {
		end = ""
	}
	for format != "" {
		before, rest, ok := strings.Cut(format, "%")
		d.w.WriteString(before)
		if !ok {
			return
		}
		spec := strings.TrimLeft(rest, "-'0123456789.")
		flags := rest[:len(rest)-len(spec)]
		switch {
		case strings.HasPrefix(rest, "%"):
			d.w.WriteByte('%')
			format = rest[1:]
		case strings.HasPrefix(rest, "l"):
			d.w.Write(t.lines[i])
			format = rest[1:]
		case strings.HasPrefix(rest, "L"):
			d.w.Write(t.lines[i])
			d.w.WriteString(end)
			format = rest[1:]
		case strings.HasPrefix(rest, "c'") && len(rest) > 3 && rest[3] == '\'':
			d.w.WriteByte(rest[2])
			format = rest[4:]
		case len(spec) > 1 && strings.IndexByte("doxX", spec[0]) >= 0 && spec[1] == 'n' && len(flags) < 5:
			fmt.Fprintf(d.w, "%"+strings.ReplaceAll(flags, "'", "")+spec[:1], i+1)
			format = spec[2:]
		default:
			d.w.WriteByte('%')
			format = rest
		}
	}
}

package eval

import (
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/regex"
)

// separator splits a text into fields, one at a time.
type separator interface {
	// next returns the next field at pos or later. after is where to continue, -1 after the last
	// field. ok is false when there is no further field. It is not called for an empty text.
	next(m *machine, s string, pos int) (start, end, after int, ok bool)
}

// blanks splits at blanks. Blanks at either end of the text are ignored.
type blanks struct{}

func (blanks) next(_ *machine, s string, pos int) (start, end, after int, ok bool) {
	for pos < len(s) && (s[pos] == ' ' || s[pos] == '\t' || s[pos] == '\n') {
		pos++
	}
	if pos == len(s) {
		return 0, 0, -1, false
	}
	start = pos
	for pos < len(s) && s[pos] != ' ' && s[pos] != '\t' && s[pos] != '\n' {
		pos++
	}
	return start, pos, pos, true
}

// oneByte separates fields.
type oneByte struct{ c byte }

func (b oneByte) next(_ *machine, s string, pos int) (start, end, after int, ok bool) {
	if i := strings.IndexByte(s[pos:], b.c); i >= 0 {
		return pos, pos + i, pos + i + 1, true
	}
	return pos, len(s), -1, true
}

// byteOrLine is oneByte for a paragraph, where newlines are separators too.
type byteOrLine struct{ c byte }

func (b byteOrLine) next(_ *machine, s string, pos int) (start, end, after int, ok bool) {
	for i := pos; i < len(s); i++ {
		if s[i] == b.c || s[i] == '\n' {
			return pos, i, i + 1, true
		}
	}
	return pos, len(s), -1, true
}

// byExpression splits at the non-empty matches of an expression.
type byExpression struct{ p *pattern }

func (e byExpression) next(m *machine, s string, pos int) (start, end, after int, ok bool) {
	from, to := m.findSome(e.p.get(m), s, pos)
	if from < 0 {
		return pos, len(s), -1, true
	}
	return pos, from, to, true
}

// findSome finds a match that is not empty.
func (m *machine) findSome(re *regex.Regexp, s string, pos int) (from, to int) {
	for at := pos; ; {
		from, to = m.find(re, s, at)
		if from < 0 || to > from {
			return from, to
		}
		if from >= len(s) {
			return -1, -1
		}
		m.step(1)
		at = from + m.charLen(s[from:])
	}
}

// each makes every character a field.
type each struct{}

func (each) next(m *machine, s string, pos int) (start, end, after int, ok bool) {
	after = pos + m.charLen(s[pos:])
	if end = after; after == len(s) {
		after = -1
	}
	return pos, end, after, true
}

// charLen returns the length of the first character.
func (m *machine) charLen(s string) int {
	if m.bytes || s[0] < utf8.RuneSelf {
		return 1
	}
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// width is a field of size characters after skip other characters. A size of -1 takes the rest.
type width struct{ skip, size int }

// widths splits a text at fixed positions.
type widths struct{ list []width }

func (w widths) next(m *machine, s string, pos int) (start, end, after int, ok bool) {
	// The low part of pos is a position in the text. The high part is the number of the field,
	// which selects its width.
	field, at := pos>>32, pos&(1<<32-1)
	if field >= len(w.list) || at >= len(s) {
		return 0, 0, -1, false
	}
	x := w.list[field]
	start = m.advance(s, at, x.skip)
	end = len(s)
	if x.size >= 0 {
		end = m.advance(s, start, x.size)
	}
	if start >= len(s) && x.skip > 0 {
		return 0, 0, -1, false
	}
	return start, end, (field+1)<<32 | end, true
}

// advance returns the position n characters later.
func (m *machine) advance(s string, at, n int) int {
	for ; n > 0 && at < len(s); n-- {
		at += m.charLen(s[at:])
	}
	return at
}

// byContents makes a field from each match of an expression.
type byContents struct{ p *pattern }

func (e byContents) next(m *machine, s string, pos int) (start, end, after int, ok bool) {
	re := e.p.get(m)
	// Bit 0 of pos says that a match ended here. An empty match may not follow it.
	at, behind := pos>>1, pos&1 == 1
	for at <= len(s) {
		start, end = m.find(re, s, at)
		if start < 0 {
			break
		}
		if end > start || !(behind && start == at) {
			if end == start {
				after = m.after(s, end) << 1
			} else {
				after = end<<1 | 1
			}
			return start, end, after, true
		}
		behind = false
		at = m.after(s, at)
	}
	return 0, 0, -1, false
}

// after returns the position of the next character. After the last one it is past the end.
func (m *machine) after(s string, at int) int {
	if at >= len(s) {
		return len(s) + 1
	}
	return at + m.charLen(s[at:])
}

// csvFields splits at commas. A field in quotation marks may contain commas, and quotation marks
// written as "".
type csvFields struct{}

func (csvFields) next(_ *machine, s string, pos int) (start, end, after int, ok bool) {
	if pos < len(s) && s[pos] == '"' {
		for i := pos + 1; i < len(s); i++ {
			if s[i] != '"' {
				continue
			}
			if i+1 < len(s) && s[i+1] == '"' {
				i++
				continue
			}
			if i+1 == len(s) {
				return pos, len(s), -1, true
			}
			if s[i+1] == ',' {
				return pos, i + 1, i + 2, true
			}
		}
	}
	return oneByte{','}.next(nil, s, pos)
}

// unquote returns the text of a field that csvFields found.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	return strings.ReplaceAll(s[1:len(s)-1], `""`, `"`)
}

// separatorFor returns the separator for a text in FS or an argument of split.
func (m *machine) separatorFor(fs string, paragraph bool) separator {
	switch {
	case fs == " ":
		return blanks{}
	case fs == "":
		return each{}
	case len(fs) == 1: // whatever IGNORECASE says
		if paragraph {
			return byteOrLine{fs[0]}
		}
		return oneByte{fs[0]}
	}
	if paragraph {
		fs = "(" + fs + ")|\n"
	}
	return byExpression{&pattern{source: fs}}
}

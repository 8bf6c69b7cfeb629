package eval

import (
	"strings"

	"github.com/carrel-dev/carrel/shell/regex"
)

// piece is a part of a replacement: a text, or the text of a match or of one of its groups.
type piece struct {
	text  string
	group int // -1 for a text
}

// replacement parses the replacement of sub and gsub. A backslash is special only before &, or
// before backslashes that an & follows. Half of these backslashes stay. If their number is odd, the
// & is literal.
func replacement(s string) []piece {
	if strings.IndexByte(s, '&') < 0 {
		return []piece{{text: s, group: -1}}
	}
	var out []piece
	var b []byte
	for i := 0; i < len(s); {
		n := i
		for n < len(s) && s[n] == '\\' {
			n++
		}
		slashes := n - i
		switch {
		case n < len(s) && s[n] == '&':
			b = append(b, s[i:i+slashes/2]...)
			if slashes%2 == 1 {
				b = append(b, '&')
			} else {
				out = append(out, piece{text: string(b), group: -1}, piece{group: 0})
				b = b[:0]
			}
			i = n + 1
		case slashes > 0:
			b = append(b, s[i:n]...)
			i = n
		default:
			b = append(b, s[i])
			i++
		}
	}
	return append(out, piece{text: string(b), group: -1})
}

// numberedReplacement parses the replacement of gensub, where \1 is a group and \\ a backslash.
func numberedReplacement(s string) []piece {
	var out []piece
	var b []byte
	group := func(n int) {
		out = append(out, piece{text: string(b), group: -1}, piece{group: n})
		b = b[:0]
	}
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '&':
			group(0)
		case s[i] == '\\' && i+1 < len(s):
			i++
			switch c := s[i]; {
			case isDigit(c):
				group(int(c - '0'))
			default:
				b = append(b, c)
			}
		default:
			b = append(b, s[i])
		}
	}
	return append(out, piece{text: string(b), group: -1})
}

// values that select the matches to replace.
const (
	everyMatch = 0
	firstMatch = 1
)

// substitute replaces matches in a text: all of them, or match number which. n is the number of
// replacements.
func (m *machine) substitute(re *regex.Regexp, s string, with []piece, which int) (
	out string, n int) {
	src := bytesOf(s)
	var b []byte
	groups := false
	for _, p := range with {
		groups = groups || p.group > 0
	}
	copied, count, charged, last := 0, 0, 0, -1
	for at := 0; at <= len(s); {
		var loc []int
		if groups {
			loc = re.FindSubmatchIndex(src, at)
		} else if from, to := re.FindIndex(src, at); from >= 0 {
			loc = []int{from, to}
		}
		if loc == nil {
			m.checkRegex(re)
			break
		}
		from, to := loc[0], loc[1]
		if to == from && from == last {
			// An empty match may not directly follow a replaced match.
			at = m.after(s, from)
			continue
		}
		count++
		m.step(1)
		if which == everyMatch || count == which {
			b = append(b, s[copied:from]...)
			b = m.appendPieces(b, s, with, loc)
			copied, last = to, to
			n++
			if len(b)-charged >= oweBatch {
				m.room(len(b) - charged)
				if charged = len(b); charged > maxText {
					m.fatal("string is too long: %d bytes", charged)
				}
			}
		}
		if count == which {
			break
		}
		if at = to; to == from {
			at = m.after(s, to)
		}
	}
	if n == 0 {
		return s, 0
	}
	m.room(len(s) - copied)
	return stringOf(append(b, s[copied:]...)), n
}

func (m *machine) appendPieces(b []byte, s string, with []piece, loc []int) []byte {
	for _, p := range with {
		switch {
		case p.group < 0:
			b = append(b, p.text...)
		case 2*p.group+1 < len(loc) && loc[2*p.group] >= 0:
			b = append(b, s[loc[2*p.group]:loc[2*p.group+1]]...)
		}
	}
	return b
}

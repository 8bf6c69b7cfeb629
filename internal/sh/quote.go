package sh

import (
	"strconv"
	"strings"
)

// Which escapes unescape knows.
type escapes int

const (
	escEcho   escapes = iota // echo -e: \0nnn, \c ends the output
	escPrintf                // printf's format: \nnn
	escPrintB                // printf %b: both, \c ends
	escDollar                // $'…': \nnn, \cX, \' \"
)

// unescape turns backslash escapes into what they stand for. stop reports a \c.
func unescape(s string, kind escapes) (out string, stop bool) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, false
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if p := strings.IndexByte(`abefnrtv\`, s[i]); p >= 0 {
			b.WriteByte("\a\b\x1b\f\n\r\t\v\\"[p])
			continue
		}
		switch c := s[i]; {
		case c == 'E':
			b.WriteByte(0x1b)
		case c == 'c' && kind == escDollar && i+1 < len(s):
			i++
			b.WriteByte(s[i] & 0x1f)
		case c == 'c' && (kind == escEcho || kind == escPrintB):
			return b.String(), true
		case c == 'x' || c == 'u' || c == 'U':
			width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			n := digits(s[i+1:], width, "0123456789abcdefABCDEF")
			if n == 0 {
				b.WriteString(s[i-1 : i+1])
				continue
			}
			v, _ := strconv.ParseUint(s[i+1:i+1+n], 16, 32) // n digits that fit
			if c == 'x' {
				b.WriteByte(byte(v))
			} else {
				b.WriteRune(rune(v))
			}
			i += n
		case c >= '0' && c <= '7' && (kind != escEcho || c == '0'):
			skip, width := 0, 3
			if c == '0' && (kind == escEcho || kind == escPrintB) {
				skip = 1
			}
			n := digits(s[i+skip:], width, "01234567")
			v, _ := strconv.ParseUint("0"+s[i+skip:i+skip+n], 8, 32) // three octal digits
			b.WriteByte(byte(v))
			i += skip + n - 1
		case kind == escDollar && (c == '\'' || c == '"' || c == '?'), kind == escPrintf && (c == '"' || c == '\''):
			b.WriteByte(c)
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), false
}

// digits counts the leading characters of s that are in set, up to a width.
func digits(s string, width int, set string) int {
	n := 0
	for n < len(s) && n < width && strings.IndexByte(set, s[n]) >= 0 {
		n++
	}
	return n
}

// plainChars need no quoting.
const plainChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,"

func isPlain(s string) bool {
	return s != "" && strings.Trim(s, plainChars) == ""
}

// quoteSingle quotes for ${x@Q}.
func quoteSingle(s string) string {
	if hasControl(s) {
		return quoteDollar(s)
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// quoteTrace quotes for set -x.
func quoteTrace(s string) string {
	if isPlain(s) {
		return s
	}
	return quoteSingle(s)
}

// quoteBackslash quotes for printf %q.
func quoteBackslash(s string) string {
	if s == "" {
		return "''"
	}
	if hasControl(s) {
		return quoteDollar(s)
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < 0x80 && strings.IndexByte(plainChars, c) < 0 || c == '~' && i == 0 {
			b.WriteByte('\\')
		} else if c == ',' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}

func quoteDollar(s string) string {
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(s) {
		c := s[i]
		switch p := strings.IndexByte("\a\b\x1b\f\n\r\t\v", c); {
		case p >= 0:
			b.WriteByte('\\')
			b.WriteByte("abEfnrtv"[p])
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			b.WriteString(`\` + strconv.FormatUint(uint64(c)+0o1000, 8)[1:])
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

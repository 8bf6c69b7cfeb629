package interp

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Which escapes unescape knows.
type escapes int

const (
	escEcho   escapes = iota // echo -e: \0nnn, \c ends the output
	escPrintf                // printf's format: \nnn
	escPrintB                // printf %b: both, \c ends
	escDollar                // $'…': \nnn, \cX, \' \"
)

// unescape replaces backslash escapes with their characters. stop reports a \c.
func unescape(s string, kind escapes) (out string, stop bool) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, false
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		i++
		if p := strings.IndexByte(`abefnrtv\`, s[i]); p >= 0 {
			b = append(b, "\a\b\x1b\f\n\r\t\v\\"[p])
			continue
		}
		switch c := s[i]; {
		case c == 'E':
			b = append(b, 0x1b)
		case c == 'c' && kind == escDollar && i+1 < len(s):
			i++
			switch {
			case s[i] == '?':
				b = append(b, 0x7f)
			default:
				if s[i] == '\\' && i+1 < len(s) && s[i+1] == '\\' {
					i++
				}
				b = append(b, s[i]&0x1f)
			}
		case c == 'c' && (kind == escEcho || kind == escPrintB):
			return string(b), true
		case c == 'x' || c == 'u' || c == 'U' || c >= '0' && c <= '7' && (kind != escEcho || c == '0'):
			b, i = appendNumbered(b, s, i, kind)
		case (kind == escDollar || kind == escPrintf) && (c == '\'' || c == '"' || c == '?'):
			b = append(b, c)
		default:
			b = append(b, '\\', c)
		}
	}
	if kind == escDollar { // a NUL ends the string
		if at := strings.IndexByte(string(b), 0); at >= 0 {
			b = b[:at]
		}
	}
	return string(b), false
}

// appendNumbered appends the character of the numeric escape at s[i]: \xHH, \x{HH…}, \uHHHH,
// \UHHHHHHHH or an octal one. It returns the index of the escape's last character.
func appendNumbered(b []byte, s string, i int, kind escapes) ([]byte, int) {
	c := s[i]
	width := 2
	switch c {
	case 'x':
	case 'u':
		width = 4
	case 'U':
		width = 8
	default:
		skip := 0
		if c == '0' && (kind == escEcho || kind == escPrintB) {
			skip = 1
		}
		n := digits(s[i+skip:], 3, "01234567")
		v, _ := strconv.ParseUint("0"+s[i+skip:i+skip+n], 8, 32) // three octal digits
		return append(b, byte(v)), i + skip + n - 1
	}
	if c == 'x' && kind == escDollar && i+1 < len(s) && s[i+1] == '{' {
		end := i + 2 + digits(s[i+2:], len(s), hexDigits)
		v, _ := strconv.ParseUint(tail(s[i+2:end], 2), 16, 32) // as many digits as a byte has
		switch {
		case end == i+2:
			return append(b, `\x{`...), i + 1
		case end < len(s) && s[end] == '}':
			return append(b, byte(v)), end
		}
		return append(b, byte(v)), end - 1
	}
	n := digits(s[i+1:], width, hexDigits)
	if n == 0 {
		return append(b, s[i-1:i+1]...), i
	}
	v, _ := strconv.ParseUint(s[i+1:i+1+n], 16, 32) // n digits that fit
	if c == 'x' {
		return append(b, byte(v)), i + n
	}
	return appendUTF8(b, uint32(v)), i + n
}

const hexDigits = "0123456789abcdefABCDEF"

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// appendUTF8 encodes a code point as bash does. This includes surrogates and numbers above the last
// Unicode character.
func appendUTF8(b []byte, c uint32) []byte {
	switch {
	case c < 0x80:
		return append(b, byte(c))
	case c < 0x800:
		return append(b, byte(0xc0|c>>6), byte(0x80|c&0x3f))
	case c < 0x10000:
		return append(b, byte(0xe0|c>>12), byte(0x80|c>>6&0x3f), byte(0x80|c&0x3f))
	case c < 0x200000:
		return append(b, byte(0xf0|c>>18), byte(0x80|c>>12&0x3f), byte(0x80|c>>6&0x3f), byte(0x80|c&0x3f))
	case c < 0x4000000:
		return append(b, byte(0xf8|c>>24), byte(0x80|c>>18&0x3f), byte(0x80|c>>12&0x3f), byte(0x80|c>>6&0x3f), byte(0x80|c&0x3f))
	case c < 0x80000000:
		return append(b, byte(0xfc|c>>30), byte(0x80|c>>24&0x3f), byte(0x80|c>>18&0x3f), byte(0x80|c>>12&0x3f), byte(0x80|c>>6&0x3f), byte(0x80|c&0x3f))
	}
	return b
}

// digits counts the leading characters of s that are in set, up to width.
func digits(s string, width int, set string) int {
	n := 0
	for n < len(s) && n < width && strings.IndexByte(set, s[n]) >= 0 {
		n++
	}
	return n
}

// shellMetas are the characters with a meaning for the shell.
const shellMetas = " \t\n'\"\\|&;()<>!{}*[?]^$`"

// hasMetas reports whether a text must be quoted.
func hasMetas(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case strings.IndexByte(shellMetas, c) >= 0:
			return true
		case c == '~' && (i == 0 || s[i-1] == '=' || s[i-1] == ':'):
			return true
		case c == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t'):
			return true
		}
	}
	return false
}

// quoteSingle quotes for ${x@Q}, trap -p, alias.
func quoteSingle(s string) string {
	switch {
	case hasControl(s):
		return quoteDollar(s)
	case s == "'":
		return `\'`
	case strings.IndexByte(s, '\'') < 0:
		return "'" + s + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// quoteSet quotes a value for the list that set prints.
func quoteSet(s string) string {
	switch {
	case hasControl(strings.ReplaceAll(s, "\t", "")):
		return quoteDollar(s)
	case hasMetas(s) || strings.Contains(s, "\t"):
		return quoteAlways(s)
	}
	return s
}

// quoteTrace quotes for set -x.
func quoteTrace(s string) string {
	plain := s
	if strings.ContainsAny(s, "\t\n") { // these stand as they are
		plain = strings.NewReplacer("\t", " ", "\n", " ").Replace(s)
	}
	switch {
	case s == "":
		return "''"
	case hasControl(plain):
		return quoteDollar(s)
	case hasMetas(plain):
		return quoteAlways(s)
	}
	return s
}

// quoteDecl quotes a value for declare -p.
func quoteDecl(s string) string {
	if hasControl(s) {
		return quoteDollar(s)
	}
	return quoteDouble(s)
}

func quoteDouble(s string) string {
	if !strings.ContainsAny(s, "\\\"$`") {
		return `"` + s + `"`
	}
	b := make([]byte, 0, len(s)+8)
	b = append(b, '"')
	for i := range len(s) {
		if c := s[i]; c == '\\' || c == '"' || c == '$' || c == '`' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return string(append(b, '"'))
}

// quoteKey quotes the key of an associative array.
func quoteKey(k string) string {
	switch {
	case hasControl(k):
		return quoteDollar(k)
	case hasMetas(k) || k == "@" || k == "*":
		return quoteDouble(k)
	}
	return k
}

// quoteBackslash quotes for printf %q.
func quoteBackslash(s string) string {
	if s == "" {
		return "''"
	}
	if hasControl(s) {
		return quoteDollar(s)
	}
	b := make([]byte, 0, len(s)+8)
	for i := range len(s) {
		switch c := s[i]; {
		case strings.IndexByte(shellMetas, c) >= 0 || c == ',',
			c == '~' && (i == 0 || s[i-1] == '=' || s[i-1] == ':'),
			c == '#' && i == 0:
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return string(b)
}

// hasControl reports whether a text has characters that are not printable.
func hasControl(s string) bool {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				return true
			}
			i++
			continue
		}
		u, n := utf8.DecodeRuneInString(s[i:])
		if u == utf8.RuneError && n <= 1 || !printable(u) {
			return true
		}
		i += n
	}
	return false
}

// printable reports whether the C library regards a character as printable.
func printable(c rune) bool {
	return unicode.IsPrint(c) || unicode.Is(unicode.Zs, c) || unicode.Is(unicode.Cf, c) || unicode.Is(unicode.Co, c)
}

func quoteDollar(s string) string {
	b := make([]byte, 0, len(s)+8)
	b = append(b, "$'"...)
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			u, n := utf8.DecodeRuneInString(s[i:])
			if u == utf8.RuneError && n <= 1 || !printable(u) {
				for j := range n {
					b = append(b, '\\')
					b = append(b, strconv.FormatUint(uint64(s[i+j]), 8)...)
				}
			} else {
				b = append(b, s[i:i+n]...)
			}
			i += n
			continue
		}
		switch p := strings.IndexByte("\a\b\x1b\f\n\r\t\v", c); {
		case p >= 0:
			b = append(b, '\\', "abEfnrtv"[p])
		case c == '\'' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			b = append(b, '\\')
			b = append(b, strconv.FormatUint(uint64(c)+0o1000, 8)[1:]...)
		default:
			b = append(b, c)
		}
		i++
	}
	return string(append(b, '\''))
}

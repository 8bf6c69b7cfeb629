package overlay

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// quotePath writes a name as git does in its diffs: unchanged, or in double quotes with C escapes
// if it contains a character that would end or confuse a line. Both git and patch read it.
func quotePath(name string) string {
	if !needsQuotes(name) {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && n == 1, !unicode.IsPrint(r):
			for _, c := range []byte(name[i : i+n]) {
				escape(&b, c)
			}
		case r == '"', r == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(r))
		default:
			b.WriteString(name[i : i+n])
		}
		i += n
	}
	b.WriteByte('"')
	return b.String()
}

// needsQuotes reports whether name must be quoted. A space is quoted too: "diff --git" names two
// paths with a space between them.
func needsQuotes(name string) bool {
	for _, r := range name {
		if r == utf8.RuneError || r == '"' || r == '\\' || r == ' ' || !unicode.IsPrint(r) {
			return true
		}
	}
	return false
}

// escape writes one byte as a C escape.
func escape(b *strings.Builder, c byte) {
	if i := strings.IndexByte("\a\b\t\n\v\f\r", c); i >= 0 {
		b.WriteByte('\\')
		b.WriteByte("abtnvfr"[i])
		return
	}
	b.WriteByte('\\')
	s := strconv.FormatUint(uint64(c), 8)
	b.WriteString("000"[len(s):])
	b.WriteString(s)
}

// comparePaths orders paths element by element.
func comparePaths(x, y string) int {
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	if n == len(x) || n == len(y) {
		return len(x) - len(y)
	}
	switch {
	case x[n] == '/':
		return -1
	case y[n] == '/':
		return 1
	}
	return int(x[n]) - int(y[n])
}

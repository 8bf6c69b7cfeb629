package tool

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// RuneWidth returns how many terminal columns a character takes. Control characters, combining
// marks and format characters take none. Characters that Unicode's annex 11 calls wide or fullwidth
// take two. All others take one.
func RuneWidth(r rune) int {
	switch {
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Mn, unicode.Me):
		return 0
	case r < 0x300:
		return 1 // as most are
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Columns returns the width of a text on a terminal. A byte that is not part of a character takes
// one column.
func Columns(b []byte) int {
	n := 0
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			n++
		} else {
			n += RuneWidth(r)
		}
		b = b[size:]
	}
	return n
}

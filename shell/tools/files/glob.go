package files

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Flags of globMatch, like the flags of fnmatch.
const (
	globPath   = 1 << iota // a slash matches itself alone
	globPeriod             // only a period matches a leading period
	globFold               // without case
)

// globMatch matches a name against a shell pattern. Its time is at most proportional to the product
// of the lengths.
func globMatch(pattern, name string, flags int) bool {
	if flags&globPeriod != 0 && strings.HasPrefix(name, ".") && !strings.HasPrefix(pattern, ".") {
		return false
	}
	p, n := 0, 0
	starP, starN := -1, 0
	for n < len(name) || p < len(pattern) {
		if p < len(pattern) {
			if pattern[p] == '*' {
				starP, starN = p, n
				p++
				continue
			}
			if n < len(name) {
				if np, nn, ok := globOne(pattern, p, name, n, flags); ok {
					p, n = np, nn
					continue
				}
			}
		}
		if starP < 0 || starN >= len(name) || flags&globPath != 0 && name[starN] == '/' {
			return false
		}
		_, size := utf8.DecodeRuneInString(name[starN:])
		starN += size
		p, n = starP+1, starN
	}
	return true
}

// globOne matches one character.
func globOne(pattern string, p int, name string, n, flags int) (np, nn int, ok bool) {
	r, size := utf8.DecodeRuneInString(name[n:])
	if r == utf8.RuneError && size == 1 {
		r = rune(name[n]) + 0x110000 // a byte that is not part of a character matches itself
	}
	switch pattern[p] {
	case '?':
		return p + 1, n + size, flags&globPath == 0 || r != '/'
	case '[':
		if end, match, valid := globClass(pattern[p:], r, flags); valid {
			return p + end, n + size, match && (flags&globPath == 0 || r != '/')
		}
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	pr, psize := utf8.DecodeRuneInString(pattern[p:])
	if pr == utf8.RuneError && psize == 1 {
		pr = rune(pattern[p]) + 0x110000
	}
	return p + psize, n + size, pr == r || flags&globFold != 0 && fold(pr) == fold(r)
}

func fold(r rune) rune {
	if r > unicode.MaxRune {
		return r
	}
	return unicode.ToLower(r)
}

// globClass matches a bracket expression. end is the position after its ].
func globClass(p string, r rune, flags int) (end int, match, valid bool) {
	i := 1
	not := i < len(p) && (p[i] == '!' || p[i] == '^')
	if not {
		i++
	}
	first := true
	for i < len(p) {
		if p[i] == ']' && !first {
			return i + 1, match != not, true
		}
		first = false
		if strings.HasPrefix(p[i:], "[:") {
			if at := strings.Index(p[i:], ":]"); at > 0 {
				match = match || inClass(p[i+2:i+at], r)
				i += at + 2
				continue
			}
		}
		if p[i] == '\\' && i+1 < len(p) {
			i++
		}
		lo, size := utf8.DecodeRuneInString(p[i:])
		i += size
		hi := lo
		if i+1 < len(p) && p[i] == '-' && p[i+1] != ']' {
			i++
			if p[i] == '\\' && i+1 < len(p) {
				i++
			}
			hi, size = utf8.DecodeRuneInString(p[i:])
			i += size
		}
		match = match || r >= lo && r <= hi || flags&globFold != 0 && (fold(r) >= fold(lo) && fold(r) <= fold(hi))
	}
	return 0, false, false
}

func inClass(name string, r rune) bool {
	if r > unicode.MaxRune {
		return false
	}
	switch name {
	case "alpha":
		return unicode.IsLetter(r)
	case "digit":
		return r >= '0' && r <= '9'
	case "alnum":
		return unicode.IsLetter(r) || unicode.IsDigit(r)
	case "upper":
		return unicode.IsUpper(r)
	case "lower":
		return unicode.IsLower(r)
	case "space":
		return unicode.IsSpace(r)
	case "blank":
		return r == ' ' || r == '\t'
	case "punct":
		return unicode.IsPunct(r) || unicode.IsSymbol(r)
	case "xdigit":
		return r < 0x80 && strings.IndexByte("0123456789abcdefABCDEF", byte(r)) >= 0
	case "cntrl":
		return unicode.IsControl(r)
	case "print":
		return unicode.IsPrint(r)
	case "graph":
		return unicode.IsPrint(r) && r != ' '
	}
	return false
}

// versionCompare compares names as ls -v and sort -V do.
func versionCompare(a, b string) int {
	if a == b {
		return 0
	}
	special := func(s string) int {
		switch s {
		case "":
			return 0
		case ".":
			return 1
		case "..":
			return 2
		}
		if s[0] == '.' {
			return 3
		}
		return 4
	}
	if x, y := special(a), special(b); x != y || x < 3 {
		return x - y
	}
	if d := versionPart(cutSuffix(a), cutSuffix(b)); d != 0 {
		return d
	}
	return versionPart(a, b)
}

// cutSuffix removes a suffix that matches (\.[A-Za-z~][A-Za-z0-9~]*)*$.
func cutSuffix(s string) string {
	end := len(s)
	for {
		i := end
		for i > 0 && (letter(s[i-1]) || digit(s[i-1]) || s[i-1] == '~') {
			i--
		}
		if i < 1 || i == end || s[i-1] != '.' || digit(s[i]) || i-1 == 0 {
			return s[:end]
		}
		end = i - 1
	}
}

func letter(b byte) bool { return b|32 >= 'a' && b|32 <= 'z' }
func digit(b byte) bool  { return b >= '0' && b <= '9' }

func versionPart(a, b string) int {
	order := func(s string, i int) int {
		switch {
		case i >= len(s):
			return -1
		case s[i] == '~':
			return -2
		case digit(s[i]):
			return 0
		case letter(s[i]):
			return int(s[i])
		}
		return int(s[i]) + 256
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		for i < len(a) && !digit(a[i]) || j < len(b) && !digit(b[j]) {
			if d := order(a, i) - order(b, j); d != 0 {
				return d
			}
			i++
			j++
		}
		for i < len(a) && a[i] == '0' {
			i++
		}
		for j < len(b) && b[j] == '0' {
			j++
		}
		first := 0
		for i < len(a) && j < len(b) && digit(a[i]) && digit(b[j]) {
			if first == 0 {
				first = int(a[i]) - int(b[j])
			}
			i++
			j++
		}
		switch {
		case i < len(a) && digit(a[i]):
			return 1
		case j < len(b) && digit(b[j]):
			return -1
		case first != 0:
			return first
		}
	}
	return 0
}

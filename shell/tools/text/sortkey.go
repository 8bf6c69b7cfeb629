package text

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// ordering is how keys compare.
type ordering struct {
	kind                     byte // n g h M V R, 0 for bytes
	dictionary, fold, nonprt bool
	reverse, blanks          bool
	clash                    string // kinds that were given together
}

// set applies an option letter. It returns false for a letter that is not an ordering option.
func (o *ordering) set(l byte) bool {
	switch l {
	case 'n', 'g', 'h', 'M', 'V', 'R':
		if o.kind != 0 && o.kind != l {
			a, b := min(o.kind, l), max(o.kind, l)
			o.clash = string(a) + string(b)
		}
		o.kind = l
	case 'd':
		o.dictionary = true
	case 'f':
		o.fold = true
	case 'i':
		o.nonprt = true
	case 'r':
		o.reverse = true
	case 'b':
		o.blanks = true
	default:
		return false
	}
	return true
}

// incompatible returns the options that exclude each other, "" if none.
func (o *ordering) incompatible() string {
	if o.clash != "" {
		return o.clash
	}
	if strings.IndexByte("nghM", o.kind) >= 0 && o.kind != 0 {
		if o.dictionary {
			return "d" + string(o.kind)
		}
		if o.nonprt {
			return "i" + string(o.kind)
		}
	}
	return ""
}

// sortKey is one -k.
type sortKey struct {
	ordering
	whole                  bool // the line
	startWord, startChar   int
	endWord, endChar       int // endWord -1: to the end of the line
	blanksStart, blanksEnd bool
}

// parseKey reads F[.C][OPTS][,F[.C][OPTS]].
func parseKey(spec string) (k sortKey, err error) {
	bad := func(what string) (sortKey, error) {
		return k, fmt.Errorf("%s: invalid field specification ‘%s’", what, spec)
	}
	num := func(s string) (n int, rest string, ok bool) {
		i := 0
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			if n = n*10 + int(s[i]-'0'); n > 1<<30 {
				n = 1 << 30
			}
			i++
		}
		return n, s[i:], i > 0
	}
	opts := func(s string, blanks *bool) string {
		for len(s) > 0 {
			if s[0] == 'b' {
				*blanks = true
			} else if !k.set(s[0]) {
				break
			}
			s = s[1:]
		}
		return s
	}
	n, s, ok := num(spec)
	if !ok {
		return k, fmt.Errorf("invalid number at field start: invalid count at start of ‘%s’", spec)
	}
	if n == 0 {
		return bad("field number is zero")
	}
	k.startWord, k.endWord = n-1, -1
	if strings.HasPrefix(s, ".") {
		if n, s, ok = num(s[1:]); !ok {
			return k, fmt.Errorf("invalid number after '.': invalid count at start of ‘%s’", s)
		}
		if n == 0 {
			return bad("character offset is zero")
		}
		k.startChar = n - 1
	}
	s = opts(s, &k.blanksStart)
	if strings.HasPrefix(s, ",") {
		if n, s, ok = num(s[1:]); !ok {
			return k, fmt.Errorf("invalid number after ',': invalid count at start of ‘%s’", s)
		}
		if n == 0 {
			return bad("field number is zero")
		}
		k.endWord = n - 1
		if strings.HasPrefix(s, ".") {
			if k.endChar, s, ok = num(s[1:]); !ok {
				return k, fmt.Errorf("invalid number after '.': invalid count at start of ‘%s’", s)
			}
		}
		s = opts(s, &k.blanksEnd)
	}
	if s != "" {
		return bad("stray character in field spec")
	}
	return k, nil
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// bounds finds the key in a line.
func (k *sortKey) bounds(line []byte, tab int) (from, to int) {
	p, n := 0, len(line)
	if tab >= 0 {
		for w := k.startWord; w > 0 && p < n; w-- {
			for p < n && int(line[p]) != tab {
				p++
			}
			if p < n {
				p++
			}
		}
	} else {
		for w := k.startWord; w > 0 && p < n; w-- {
			for p < n && blank(line[p]) {
				p++
			}
			for p < n && !blank(line[p]) {
				p++
			}
		}
	}
	start := p // the search for the end can begin here, unless it is in an earlier field
	if k.blanksStart {
		for p < n && blank(line[p]) {
			p++
		}
	}
	from = min(n, p+k.startChar)
	if k.endWord < 0 {
		return from, n
	}
	e, words := 0, k.endWord
	if k.endChar == 0 {
		words++
	}
	if words >= k.startWord {
		e, words = start, words-k.startWord
	}
	if tab >= 0 {
		for ; words > 0 && e < n; words-- {
			for e < n && int(line[e]) != tab {
				e++
			}
			if e < n && (words > 1 || k.endChar != 0) {
				e++
			}
		}
	} else {
		for ; words > 0 && e < n; words-- {
			for e < n && blank(line[e]) {
				e++
			}
			for e < n && !blank(line[e]) {
				e++
			}
		}
	}
	if k.endChar != 0 {
		if k.blanksEnd {
			for e < n && blank(line[e]) {
				e++
			}
		}
		e = min(n, e+k.endChar)
	}
	return from, max(from, e)
}

// prefix returns a number for a key. If two prefixes differ, they have the order of the keys.
func (k *sortKey) prefix(key []byte) uint64 {
	switch {
	case k.kind == 'n':
		f, exact := quickNumber(key)
		return numberPrefix(f, exact)
	case k.kind == 'g':
		return 0
	case k.kind == 'M':
		return uint64(month(key))<<1 | 1
	case k.kind != 0:
		return 0
	case k.dictionary || k.nonprt:
		return 0
	case k.fold:
		var b [8]byte
		for i := range b {
			if i < len(key) {
				b[i] = upper(key[i])
			}
		}
		return binary.BigEndian.Uint64(b[:])
	}
	return bytesPrefix(key)
}

// exact reports whether keys with this prefix are equal.
func (k *sortKey) exact(prefix uint64) bool {
	return (k.kind == 'n' || k.kind == 'M') && prefix&1 != 0
}

func bytesPrefix(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var v uint64
	for i, c := range b {
		v |= uint64(c) << (56 - 8*i)
	}
	return v
}

// numberPrefix returns a prefix for a number. Its last bit says whether the number is exact. This
// costs one bit of precision, which exact numbers (15 digits) don't need.
func numberPrefix(f float64, exact bool) uint64 {
	if f == 0 {
		f = 0 // no negative zero
	}
	u := math.Float64bits(f)
	if u>>63 != 0 {
		u = ^u
	} else {
		u |= 1 << 63
	}
	if exact {
		return u | 1
	}
	return u &^ 1
}

var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16}

// quickNumber parses a number as -n does.
func quickNumber(s []byte) (f float64, exact bool) {
	i, n := 0, len(s)
	for i < n && blank(s[i]) {
		i++
	}
	neg := false
	if i < n && s[i] == '-' {
		neg = true
		i++
	}
	m, digits, frac := uint64(0), 0, 0
	for ; i < n && s[i] >= '0' && s[i] <= '9'; i++ {
		if digits > 0 || s[i] != '0' {
			digits++
		}
		if digits <= 15 {
			m = m*10 + uint64(s[i]-'0')
		} else {
			// Numbers of this size can't be distinguished here. They are compared digit by digit.
			return slowNumber(neg), false
		}
	}
	if i < n && s[i] == '.' {
		for i++; i < n && s[i] >= '0' && s[i] <= '9'; i++ {
			if digits > 0 || s[i] != '0' {
				digits++
			}
			frac++
			if digits > 15 || frac > 16 {
				return truncated(neg, m, frac-1), false
			}
			m = m*10 + uint64(s[i]-'0')
		}
	}
	f = float64(m) / powers[frac]
	if neg {
		f = -f
	}
	return f, true
}

func slowNumber(neg bool) float64 {
	if neg {
		return -1e300
	}
	return 1e300
}

// truncated returns a number without its last digits, which do not change the prefix.
func truncated(neg bool, m uint64, frac int) float64 {
	f := float64(m) / powers[frac]
	if neg {
		return -f
	}
	return f
}

func upper(c byte) byte {
	if c >= 'a' && c <= 'z' {
		return c - 0x20
	}
	return c
}

var months = [...]string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}

// month is 1 to 12, or 0.
func month(s []byte) int {
	for len(s) > 0 && blank(s[0]) {
		s = s[1:]
	}
	if len(s) < 3 {
		return 0
	}
	name := strings.ToUpper(string(s[:3]))
	for i, m := range months {
		if m == name {
			return i + 1
		}
	}
	return 0
}

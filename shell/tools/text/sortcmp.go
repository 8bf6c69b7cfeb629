package text

import (
	"bytes"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
)

// compare orders two keys.
func (k *sortKey) compare(a, b []byte, salt uint64) int {
	switch k.kind {
	case 'n':
		return compareNumbers(a, b)
	case 'g':
		return compareFloats(a, b)
	case 'h':
		return compareHuman(a, b)
	case 'M':
		return month(a) - month(b)
	case 'V':
		return compareVersions(a, b)
	case 'R':
		return compareHashes(a, b, salt)
	}
	if !k.dictionary && !k.fold && !k.nonprt {
		return bytes.Compare(a, b)
	}
	for {
		for len(a) > 0 && k.ignored(a[0]) {
			a = a[1:]
		}
		for len(b) > 0 && k.ignored(b[0]) {
			b = b[1:]
		}
		if len(a) == 0 || len(b) == 0 {
			return min(len(a), 1) - min(len(b), 1)
		}
		x, y := a[0], b[0]
		if k.fold {
			x, y = upper(x), upper(y)
		}
		if x != y {
			return int(x) - int(y)
		}
		a, b = a[1:], b[1:]
	}
}

func (k *sortKey) ignored(c byte) bool {
	if k.dictionary {
		return !blank(c) && !alnum(c)
	}
	return k.nonprt && (c < ' ' || c >= 0x7f)
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// decimal is the text of a number: the digits before and after the point, without insignificant
// zeros.
type decimal struct {
	neg        bool
	whole, frc []byte
	rest       []byte
}

func readDecimal(s []byte) (d decimal) {
	for len(s) > 0 && blank(s[0]) {
		s = s[1:]
	}
	if len(s) > 0 && s[0] == '-' {
		d.neg = true
		s = s[1:]
	}
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	d.whole, s = bytes.TrimLeft(s[:i], "0"), s[i:]
	if len(s) > 0 && s[0] == '.' {
		i = 1
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		d.frc, s = bytes.TrimRight(s[1:i], "0"), s[i:]
	}
	d.rest = s
	if len(d.whole) == 0 && len(d.frc) == 0 {
		d.neg = false
	}
	return d
}

func (d decimal) compare(o decimal) int {
	if d.neg != o.neg {
		if d.neg {
			return -1
		}
		return 1
	}
	c := len(d.whole) - len(o.whole)
	if c == 0 {
		c = bytes.Compare(d.whole, o.whole)
	}
	if c == 0 {
		c = bytes.Compare(d.frc, o.frc)
	}
	if d.neg {
		return -c
	}
	return c
}

func compareNumbers(a, b []byte) int { return readDecimal(a).compare(readDecimal(b)) }

// compareHuman compares 2K and 1G: by sign, then by suffix, then by number.
func compareHuman(a, b []byte) int {
	x, y := readDecimal(a), readDecimal(b)
	rank := func(d decimal) int {
		if len(d.whole) == 0 && len(d.frc) == 0 {
			return 0
		}
		n := 0
		if len(d.rest) > 0 {
			if n = strings.IndexByte("\x00KMGTPEZY", d.rest[0]); d.rest[0] == 'k' {
				n = 1
			}
			n = max(n, 0)
		}
		if d.neg {
			return -n
		}
		return n
	}
	if x.neg != y.neg {
		return x.compare(y)
	}
	if c := rank(x) - rank(y); c != 0 {
		return c
	}
	return x.compare(y)
}

// compareFloats compares as -g does: texts that are not numbers come first, then NaN, then numbers.
func compareFloats(a, b []byte) int {
	x, okx := leadingFloat(a)
	y, oky := leadingFloat(b)
	switch {
	case !okx || !oky:
		return boolInt(okx) - boolInt(oky)
	case x < y:
		return -1
	case x > y:
		return 1
	case x == y:
		return 0
	}
	return boolInt(math.IsNaN(y)) - boolInt(math.IsNaN(x))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// leadingFloat reads the number at the start of b, as strtod does.
func leadingFloat(b []byte) (float64, bool) {
	s := strings.TrimLeft(string(b[:min(len(b), 400)]), " \t\n\v\f\r")
	i := 0
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	low := strings.ToLower(s[i:])
	for _, w := range []string{"infinity", "inf", "nan"} {
		if strings.HasPrefix(low, w) {
			f, err := strconv.ParseFloat(s[:i]+w, 64)
			if w == "nan" {
				f, err = math.NaN(), nil
			}
			return f, err == nil
		}
	}
	digits := "0123456789"
	hex := strings.HasPrefix(low, "0x")
	start := i
	if hex {
		i += 2
		digits += "abcdefABCDEF"
	}
	n := 0
	for point := false; i < len(s); i++ {
		if s[i] == '.' && !point {
			point = true
		} else if strings.IndexByte(digits, s[i]) >= 0 {
			n++
		} else {
			break
		}
	}
	if n == 0 {
		if hex { // the 0 alone
			return 0, true
		}
		return 0, false
	}
	exp := byte('e')
	if hex {
		exp = 'p'
	}
	tail := ""
	if i < len(s) && s[i]|0x20 == exp {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		k := j
		for k < len(s) && s[k] >= '0' && s[k] <= '9' {
			k++
		}
		if k > j {
			tail = s[i:k]
		}
	}
	if hex && tail == "" {
		tail = "p0"
	}
	f, err := strconv.ParseFloat(s[:start]+s[start:i]+tail, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func compareHashes(a, b []byte, salt uint64) int {
	h := func(s []byte) uint64 {
		f := fnv.New64a()
		var seed [8]byte
		for i := range seed {
			seed[i] = byte(salt >> (8 * i))
		}
		_, _ = f.Write(seed[:]) // never fails
		_, _ = f.Write(s)
		v := f.Sum64()
		v ^= v >> 33
		v *= 0xff51afd7ed558ccd
		return v ^ v>>33
	}
	x, y := h(a), h(b)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return bytes.Compare(a, b)
}

// compareVersions is gnulib's filevercmp.
func compareVersions(a, b []byte) int {
	if bytes.Equal(a, b) {
		return 0
	}
	switch {
	case len(a) == 0:
		return -1
	case len(b) == 0:
		return 1
	}
	if a[0] == '.' || b[0] == '.' {
		if a[0] != b[0] {
			if a[0] == '.' {
				return -1
			}
			return 1
		}
		for _, special := range []string{".", ".."} {
			if string(a) == special {
				return -1
			}
			if string(b) == special {
				return 1
			}
		}
	}
	pa, pb := suffixStart(a), suffixStart(b)
	if c := compareVersionParts(a[:pa], b[:pb]); c != 0 || pa == len(a) && pb == len(b) {
		return c
	}
	return compareVersionParts(a, b)
}

// suffixStart returns the start of a file name's suffixes: (\.[A-Za-z~][A-Za-z0-9~]*)*$, after the
// first byte.
func suffixStart(s []byte) int {
	start := 0
	for i := 0; i < len(s); {
		i++
		start = i
		for i+1 < len(s) && s[i] == '.' && (alnum(s[i+1]) && s[i+1] > '9' || s[i+1] == '~') {
			for i += 2; i < len(s) && (alnum(s[i]) || s[i] == '~'); i++ {
			}
		}
	}
	return start
}

func versionOrder(s []byte, i int) int {
	if i >= len(s) {
		return -1
	}
	switch c := s[i]; {
	case c >= '0' && c <= '9':
		return 0
	case alnum(c):
		return int(c)
	case c == '~':
		return -2
	default:
		return int(c) + 256
	}
}

func compareVersionParts(a, b []byte) int {
	digit := func(s []byte, i int) bool { return i < len(s) && s[i] >= '0' && s[i] <= '9' }
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		for i < len(a) && !digit(a, i) || j < len(b) && !digit(b, j) {
			if x, y := versionOrder(a, i), versionOrder(b, j); x != y {
				return x - y
			}
			i, j = i+1, j+1
		}
		for i < len(a) && a[i] == '0' {
			i++
		}
		for j < len(b) && b[j] == '0' {
			j++
		}
		diff := 0
		for digit(a, i) && digit(b, j) {
			if diff == 0 {
				diff = int(a[i]) - int(b[j])
			}
			i, j = i+1, j+1
		}
		if digit(a, i) {
			return 1
		}
		if digit(b, j) {
			return -1
		}
		if diff != 0 {
			return diff
		}
	}
	return 0
}

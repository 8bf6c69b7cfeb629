package eval

import (
	"math"
	"strconv"
	"strings"
	"sync"
)

func isBlank(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// numberEnd returns the end of the number at i, or i when there is none. The number may have a
// sign. plain is false when it has a point or an exponent, or too many digits for an integer.
func numberEnd(s string, i int) (end int, plain bool) {
	at := i
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	from := i
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	digits := i - from
	plain = digits < 16
	if i < len(s) && s[i] == '.' {
		plain = false
		from = i + 1
		for i++; i < len(s) && isDigit(s[i]); i++ {
		}
		digits += i - from
	}
	if digits == 0 {
		return at, false
	}
	if i+1 < len(s) && s[i]|0x20 == 'e' {
		j := i + 1
		if s[j] == '+' || s[j] == '-' {
			j++
		}
		if j < len(s) && isDigit(s[j]) {
			plain = false
			for i = j; i < len(s) && isDigit(s[i]); i++ {
			}
		}
	}
	return i, plain
}

// parse parses a number that numberEnd found.
func parse(s string, plain bool) float64 {
	if !plain {
		v, _ := strconv.ParseFloat(s, 64) // a value out of range is infinite or 0
		return v
	}
	i := 0
	if s[0] == '+' || s[0] == '-' {
		i = 1
	}
	v := 0
	for ; i < len(s); i++ {
		v = v*10 + int(s[i]-'0')
	}
	if s[0] == '-' {
		return -float64(v)
	}
	return float64(v)
}

// magic reads +inf, -inf, +nan and -nan. gawk treats them as numbers only with a sign.
func magic(s string) (float64, bool) {
	if len(s) < 4 || s[0] != '+' && s[0] != '-' {
		return 0, false
	}
	sign := 1.0
	if s[0] == '-' {
		sign = -1
	}
	switch {
	case strings.EqualFold(s[1:4], "inf"):
		return math.Inf(int(sign)), true
	case strings.EqualFold(s[1:4], "nan"):
		return math.Copysign(math.NaN(), sign), true
	}
	return 0, false
}

// leadingNumber returns the number at the start of a text, or 0 when there is none.
func leadingNumber(s string) float64 {
	i := 0
	for i < len(s) && isBlank(s[i]) {
		i++
	}
	if end, plain := numberEnd(s, i); end > i {
		return parse(s[i:end], plain)
	}
	if n, ok := magic(s[i:]); ok && (len(s)-i == 4 || !isWordByte(s[i+4])) {
		return n
	}
	return 0
}

func isWordByte(c byte) bool { return c == '_' || isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' }

// looksNumeric reads a text that is just a number, with optional blanks around it.
func looksNumeric(s string) (float64, bool) {
	i, n := 0, len(s)
	for i < n && isBlank(s[i]) {
		i++
	}
	if i == n || s[i] > '9' {
		return 0, false
	}
	for isBlank(s[n-1]) {
		n--
	}
	if end, plain := numberEnd(s[:n], i); end > i {
		if end != n {
			return 0, false
		}
		return parse(s[i:end], plain), true
	}
	if n-i != 4 {
		return 0, false
	}
	return magic(s[i:n])
}

// smallIntCount is how many numbers, counted from 0, have a cached text: they occur most often.
const smallIntCount = 1024

// smallInts are the texts of small numbers. They are made when awk first needs one, because most
// processes with awk in their binary never do.
var smallInts = sync.OnceValue(func() *[smallIntCount]string {
	var texts [smallIntCount]string
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return &texts
})

// maxExact is a limit below which a whole float64 certainly fits an int64.
const maxExact = 1 << 62

// isInteger reports whether n is a whole number that fits an int64.
func isInteger(n float64) bool {
	return n == math.Trunc(n) && n < maxExact && n > -maxExact
}

// appendNumber appends a number. A number with a fraction is written with format.
func (m *machine) appendNumber(b []byte, n float64, format string) []byte {
	switch {
	case isInteger(n):
		return strconv.AppendInt(b, int64(n), 10)
	case math.IsNaN(n) || math.IsInf(n, 0):
		return append(b, oddNumber(n)...)
	case n == math.Trunc(n):
		return strconv.AppendFloat(b, n, 'f', 0, 64)
	case format == defaultFormat:
		return strconv.AppendFloat(b, n, 'g', 6, 64)
	}
	return append(b, m.sprintf(format, []value{number(n)})...)
}

// defaultFormat is the first value of CONVFMT and OFMT.
const defaultFormat = "%.6g"

// oddNumber returns the text of a NaN or an infinity.
func oddNumber(n float64) string {
	s := "inf"
	if math.IsNaN(n) {
		s = "nan"
	}
	if math.Signbit(n) {
		return "-" + s
	}
	return "+" + s
}

// numberText converts a number to a string.
func (m *machine) numberText(n float64) string {
	if n >= 0 && n < smallIntCount && n == math.Trunc(n) {
		return smallInts()[int(n)]
	}
	var room [40]byte
	return string(m.appendNumber(room[:0], n, m.convfmt))
}

// str is a value as a string.
func (m *machine) str(v value) string {
	if v.k == kindNumber {
		return m.numberText(v.n)
	}
	return v.s
}

// appendText appends a value as a string.
func (m *machine) appendText(b []byte, v value) []byte {
	if v.k == kindNumber {
		return m.appendNumber(b, v.n, m.convfmt)
	}
	return append(b, v.s...)
}

// appendOutput appends a value as print writes it.
func (m *machine) appendOutput(b []byte, v value) []byte {
	if v.k == kindNumber {
		return m.appendNumber(b, v.n, m.ofmt)
	}
	return append(b, v.s...)
}

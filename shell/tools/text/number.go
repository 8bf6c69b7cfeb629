package text

import (
	"errors"
	"math"
	"strings"
)

// suffixes are the multipliers of GNU's programs.
var suffixes = map[string]int64{"": 1, "b": 512, "c": 1, "w": 2, "k": 1 << 10, "K": 1 << 10, "KiB": 1 << 10, "kiB": 1 << 10, "kB": 1e3, "KB": 1e3,
	"m": 1 << 20, "M": 1 << 20, "MiB": 1 << 20, "MB": 1e6, "G": 1 << 30, "GiB": 1 << 30, "GB": 1e9, "T": 1 << 40, "TiB": 1 << 40, "TB": 1e12,
	"P": 1 << 50, "PiB": 1 << 50, "PB": 1e15, "E": 1 << 60, "EiB": 1 << 60, "EB": 1e18, "Z": math.MaxInt64, "Y": math.MaxInt64, "ZB": math.MaxInt64, "YB": math.MaxInt64}

var errNumber = errors.New("invalid number")

// parseSize reads digits with a multiplier. A value that is too large becomes the largest number.
func parseSize(s string) (int64, error) {
	n := int64(0)
	i := 0
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		d := int64(s[i] - '0')
		if n > (math.MaxInt64-d)/10 {
			n = math.MaxInt64
			continue
		}
		n = n*10 + d
	}
	m, ok := suffixes[s[i:]]
	if !ok || i == 0 && s == "" {
		return 0, errNumber
	}
	if i == 0 {
		n = 1 // GNU takes a multiplier alone
	}
	if n != 0 && m > math.MaxInt64/n {
		return math.MaxInt64, nil
	}
	return n * m, nil
}

// atoi reads a decimal number without sign.
func atoi(s string) (int, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, errNumber
	}
	n, err := parseSize(s)
	return int(min(n, 1<<40)), err
}

// unescape reads backslash escapes as in C. For \c and unknown escapes it keeps the character.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if at := strings.IndexByte(`abfnrtv`, s[i]); at >= 0 {
			b.WriteByte("\a\b\f\n\r\t\v"[at])
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

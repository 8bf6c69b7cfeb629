package eval

import (
	"math"
	"strings"
	"unsafe"
)

// kind is what a value is.
type kind uint8

const (
	kindUnset  kind = iota // "" and 0
	kindNumber             // n
	kindString             // s
	kindInput              // s is input, and a number if it looks like one
	kindStrnum             // s is input and looks like the number n
	kindRegex              // s, from @/s/
	// kindNoField is a field that does not exist. It is "" and 0, like kindUnset, but compares as a
	// string.
	kindNoField
)

// value is a scalar. The zero value is an unset variable.
type value struct {
	s string
	n float64
	k kind
	// part says that s is part of a larger buffer, and storing s would keep that buffer in memory:
	// see machine.keep. For an unset value, part says that it was used as a scalar, which typeof
	// reports.
	part bool
}

func number(n float64) value { return value{n: n, k: kindNumber} }
func text(s string) value    { return value{s: s, k: kindString} }
func input(s string) value   { return value{s: s, k: kindInput, part: true} }

func boolean(b bool) value {
	if b {
		return number(1)
	}
	return number(0)
}

// settled decides whether input is a number.
func (v value) settled() value {
	if v.k == kindInput {
		if n, ok := looksNumeric(v.s); ok {
			v.n, v.k = n, kindStrnum
		} else {
			v.k = kindString
		}
	}
	return v
}

// num is the value as a number.
func (v value) num() float64 {
	switch v.k {
	case kindNumber, kindStrnum:
		return v.n
	case kindUnset:
		return 0
	}
	return leadingNumber(v.s)
}

// numeric reports whether a settled value compares as a number.
func (v value) numeric() bool {
	return v.k == kindNumber || v.k == kindStrnum || v.k == kindUnset
}

// truth returns the value as a condition.
func (v value) truth() bool {
	if v.k == kindInput {
		v = v.settled()
	}
	switch v.k {
	case kindNumber, kindStrnum:
		return v.n != 0
	}
	return v.s != ""
}

// keep prepares a value for storing: it is settled, and its text is copied from a larger buffer.
func (m *machine) keep(v value) value {
	if v.k == kindUnset {
		v.part = true
		return v
	}
	if v.part {
		v.s, v.part = strings.Clone(v.s), false
	}
	return v.settled()
}

// bytesOf returns the bytes of a string, which must not be changed. Regular expressions search
// bytes.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// stringOf returns bytes as a string. The bytes must not be changed any more.
func stringOf(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

// nan is the result of functions that have no value. Its sign is set, as in glibc.
func nan() float64 { return math.Copysign(math.NaN(), -1) }

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
	kindInput              // s, from outside: a number if it looks like one
	kindStrnum             // s and n: it does look like one
	kindRegex              // s, from @/s/
	// kindNoField is "" and 0, like kindUnset, but compares as a string: a field that is not there.
	kindNoField
)

// value is a scalar. Its zero value is that of an unset variable.
type value struct {
	s string
	n float64
	k kind
	// part says that s lies in a larger buffer, which would be kept for its sake: see machine.keep.
	// Of an unset value it says that it was used as a scalar, which typeof tells.
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

// settled decides whether what came from outside is a number.
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

// truth is the value as a condition.
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

// keep makes a value fit to be stored: it is settled, and its text does not hold a larger one.
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

// bytesOf is the text of a string, not to be written to. Expressions search bytes.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// stringOf is a string of bytes that nobody writes to any more.
func stringOf(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

// nan is what functions return that have no value; glibc's has a sign.
func nan() float64 { return math.Copysign(math.NaN(), -1) }

package config

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Size is a number of bytes that people write with a unit. It is a flag value.
type Size int64

// sizeUnits are the letters of the powers of 1024. 512M, 512MB and 512MiB mean the same: a quota is
// a bound, and nobody should have to guess which of two bounds it is.
const sizeUnits = "KMGTP"

// Set implements flag values. It reads a whole number of bytes, or a number with one of the units
// K, M, G, T and P, also written with B or iB after it.
func (s *Size) Set(text string) error {
	number, shift := strings.TrimSpace(text), 0
	upper := strings.ToUpper(number)
	if cut, ok := strings.CutSuffix(upper, "IB"); ok {
		upper = cut
		if upper == "" || !strings.Contains(sizeUnits, upper[len(upper)-1:]) { // 5iB is nothing
			return badSize(text)
		}
	} else {
		upper = strings.TrimSuffix(upper, "B")
	}
	if n := len(upper); n > 0 {
		if i := strings.IndexByte(sizeUnits, upper[n-1]); i >= 0 {
			upper, shift = upper[:n-1], 10*(i+1)
		}
	}
	number = strings.TrimSpace(upper)
	if n, err := strconv.ParseUint(number, 10, 63); err == nil {
		if bits.Len64(n)+shift > 63 {
			return badSize(text)
		}
		*s = Size(n << shift)
		return nil
	}
	// ParseFloat would also take 1e9, 0x10, inf and 1_000.
	if strings.Trim(number, "0123456789.") != "" {
		return badSize(text)
	}
	f, err := strconv.ParseFloat(number, 64)
	if f *= float64(uint64(1) << shift); err != nil || f >= math.MaxInt64 {
		return badSize(text)
	}
	*s = Size(f)
	return nil
}

func badSize(text string) error {
	const most = 64
	if len(text) > most {
		text = text[:most] + "…"
	}
	return bad("size", "%q is not a size such as 512M or 20GiB", text)
}

// String writes the size so that Set reads it again.
func (s Size) String() string {
	n, unit := int64(s), ""
	for i := 0; i < len(sizeUnits) && n != 0 && n%1024 == 0; i++ {
		n, unit = n/1024, sizeUnits[i:i+1]+"iB"
	}
	return strconv.FormatInt(n, 10) + unit
}

// Type names the kind of value in a flag's help.
func (*Size) Type() string { return "size" }

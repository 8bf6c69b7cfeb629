package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnits are units in MiB; both spellings mean the powers of two.
var sizeUnits = []struct {
	suffix string
	mb     float64
}{
	{"tib", 1 << 20}, {"gib", 1 << 10}, {"mib", 1}, {"kib", 1.0 / 1024}, {"tb", 1 << 20}, {"gb", 1 << 10}, {"mb", 1}, {"kb", 1.0 / 1024},
	{"t", 1 << 20}, {"g", 1 << 10}, {"m", 1}, {"k", 1.0 / 1024},
}

// ParseSize reads a size such as "512M" or "2GiB" into MiB, rounded up. It refuses a number without
// a unit, because people disagree about its unit.
func ParseSize(text string) (int, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(f) || f <= 0 {
			break
		}
		mb := math.Ceil(f * u.mb)
		if mb > 1<<30 {
			return 0, fmt.Errorf("%s is more than 1024 TiB", show(text))
		}
		return int(mb), nil
	}
	return 0, fmt.Errorf("%s is no size: write 512M or 2GiB, or none", show(text))
}

// ParseDuration reads a duration such as "90s", "10m" or "1h30m".
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.ReplaceAll(strings.TrimSpace(text), " ", ""))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is no duration: write 90s, 10m or 1h30m, or none", show(text))
	case d < time.Millisecond || d > 366*24*time.Hour:
		return 0, fmt.Errorf("%s is not between 1ms and 366 days", show(text))
	}
	return d, nil
}

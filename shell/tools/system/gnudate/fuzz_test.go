package gnudate

import (
	"testing"
	"time"
)

// FuzzParse looks for dates, zones and formats that panic.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "now", "next monday 10:00", "2024-01-02T03:04:05+02:00", "@1.5", `TZ="EST5EDT,M3.2.0,M11.1.0" 1 Jan`, "3 weeks ago", "22-Nov-2026", "%::z %-d %9999Y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		now := time.Date(2024, 2, 29, 12, 0, 0, 0, Location(s))
		if d, err := Parse(s, now); err == nil {
			_ = Format(s, d)
		}
		_ = Format(s, now)
	})
}

func TestLocation(t *testing.T) {
	for tz, want := range map[string]string{"America/New_York": "08:00 EDT", "EST5EDT,M3.2.0,M11.1.0": "08:00 EDT", "UTC-3": "15:00 UTC", "../../etc/passwd": "12:00 UTC", "/etc/localtime": "12:00 UTC"} {
		if got := time.Date(2024, 7, 1, 12, 0, 0, 0, time.UTC).In(Location(tz)).Format("15:04 MST"); got != want {
			t.Errorf("%s: %s, want %s", tz, got, want)
		}
	}
}

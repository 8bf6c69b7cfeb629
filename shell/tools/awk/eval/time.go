package eval

import (
	"strconv"
	"strings"
	"time"
)

// defaultTime is the format of strftime without an argument.
const defaultTime = "%a %b %e %H:%M:%S %Z %Y"

// clock computes the parts of a time for formats.
type clock struct{ time.Time }

// hour12 returns the hour of a 12-hour clock.
func (t clock) hour12() int { return (t.Hour()+11)%12 + 1 }

// week returns the number of the week, where weeks begin on the day begins. Days before the first
// such day are in week 0.
func (t clock) week(begins time.Weekday) int {
	return (t.YearDay() + 6 - int(t.Weekday()+7-begins)%7) / 7
}

func zeros(n, width int) string {
	s := strconv.Itoa(n)
	return strings.Repeat("0", max(width-len(s), 0)) + s
}

func spaces(n int) string {
	s := strconv.Itoa(n)
	return strings.Repeat(" ", max(2-len(s), 0)) + s
}

// timeParts are the format letters for numbers, and those made from other letters.
var timeParts = map[byte]func(t clock) string{
	'Y': func(t clock) string { return strconv.Itoa(t.Year()) },
	'C': func(t clock) string { return zeros(t.Year()/100, 2) },
	'y': func(t clock) string { return zeros(t.Year()%100, 2) },
	'm': func(t clock) string { return zeros(int(t.Month()), 2) },
	'd': func(t clock) string { return zeros(t.Day(), 2) },
	'e': func(t clock) string { return spaces(t.Day()) },
	'H': func(t clock) string { return zeros(t.Hour(), 2) },
	'I': func(t clock) string { return zeros(t.hour12(), 2) },
	'k': func(t clock) string { return spaces(t.Hour()) },
	'l': func(t clock) string { return spaces(t.hour12()) },
	'M': func(t clock) string { return zeros(t.Minute(), 2) },
	'S': func(t clock) string { return zeros(t.Second(), 2) },
	'j': func(t clock) string { return zeros(t.YearDay(), 3) },
	's': func(t clock) string { return strconv.FormatInt(t.Unix(), 10) },
	'u': func(t clock) string { return strconv.Itoa((int(t.Weekday())+6)%7 + 1) },
	'w': func(t clock) string { return strconv.Itoa(int(t.Weekday())) },
	'U': func(t clock) string { return zeros(t.week(time.Sunday), 2) },
	'W': func(t clock) string { return zeros(t.week(time.Monday), 2) },
	'V': func(t clock) string { _, w := t.ISOWeek(); return zeros(w, 2) },
	'G': func(t clock) string { y, _ := t.ISOWeek(); return strconv.Itoa(y) },
	'g': func(t clock) string { y, _ := t.ISOWeek(); return zeros(y%100, 2) },
	'n': func(clock) string { return "\n" },
	't': func(clock) string { return "\t" },
	'%': func(clock) string { return "%" },
}

// timeLayouts are the format letters that package time can write.
var timeLayouts = map[byte]string{'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January",
	'h': "Jan", 'c': "Mon Jan _2 15:04:05 2006", 'D': "01/02/06", 'F': "2006-01-02", 'p': "PM",
	'P': "pm", 'r': "03:04:05 PM", 'R': "15:04", 'T': "15:04:05", 'x': "01/02/06",
	'X': "15:04:05", 'Z': "MST", 'z': "-0700"}

// strftime formats a time. Times are in UTC, the only zone of the machines.
func (m *machine) strftime(format string, t time.Time, zone string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if (format[i] == 'E' || format[i] == 'O') && i+1 < len(format) {
			i++ // E and O ask for alternative forms, which the locale does not have
		}
		c := format[i]
		switch layout, ok := timeLayouts[c]; {
		case c == 'Z':
			b.WriteString(zone)
		case ok:
			b.WriteString(t.Format(layout))
		case timeParts[c] != nil:
			b.WriteString(timeParts[c](clock{t}))
		default:
			b.WriteString("%" + string(rune(c)))
		}
	}
	m.room(b.Len())
	return b.String()
}

// mktime returns the time for "YYYY MM DD HH MM SS", or -1 for a wrong text.
func mktime(spec string) float64 {
	list := strings.Fields(spec)
	if len(list) < 6 {
		return -1
	}
	var n [6]int
	for i := range n {
		v, err := strconv.Atoi(list[i])
		if err != nil {
			return -1
		}
		n[i] = v
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, time.UTC)
	at := t.Unix()
	if len(list) > 6 {
		if dst, err := strconv.Atoi(list[6]); err == nil && dst > 0 {
			at -= 3600 // the given clock time is daylight saving time, one hour ahead
		}
	}
	return float64(at)
}

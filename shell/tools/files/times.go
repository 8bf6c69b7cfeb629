package files

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime formats a time as date +FORMAT does.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		pad := byte(0)
		for i+1 < len(format) && strings.IndexByte("-_0^#", format[i]) >= 0 {
			pad = format[i]
			i++
		}
		colons := 0
		for i+1 < len(format) && format[i] == ':' {
			colons++
			i++
		}
		b.WriteString(directive(format[i], pad, colons, t))
	}
	return b.String()
}

func padded(n, width int, pad, usual byte) string {
	if pad == 0 {
		pad = usual
	}
	switch pad {
	case '-':
		return strconv.Itoa(n)
	case '_':
		return fmt.Sprintf("%*d", width, n)
	}
	return fmt.Sprintf("%0*d", width, n)
}

// directive returns the value of one conversion of strftime.
func directive(d, pad byte, colons int, t time.Time) string {
	hour12 := (t.Hour()+11)%12 + 1
	text := ""
	switch d {
	case 'Y':
		return padded(t.Year(), 1, pad, '0')
	case 'C':
		return padded(t.Year()/100, 2, pad, '0')
	case 'y':
		return padded(t.Year()%100, 2, pad, '0')
	case 'm':
		return padded(int(t.Month()), 2, pad, '0')
	case 'd':
		return padded(t.Day(), 2, pad, '0')
	case 'e':
		return padded(t.Day(), 2, pad, '_')
	case 'H':
		return padded(t.Hour(), 2, pad, '0')
	case 'k':
		return padded(t.Hour(), 2, pad, '_')
	case 'I':
		return padded(hour12, 2, pad, '0')
	case 'l':
		return padded(hour12, 2, pad, '_')
	case 'M':
		return padded(t.Minute(), 2, pad, '0')
	case 'S':
		return padded(t.Second(), 2, pad, '0')
	case 'N':
		return fmt.Sprintf("%09d", t.Nanosecond())
	case 'j':
		return padded(t.YearDay(), 3, pad, '0')
	case 's':
		return strconv.FormatInt(t.Unix(), 10)
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1)
	case 'w':
		return strconv.Itoa(int(t.Weekday()))
	case 'U':
		return padded((t.YearDay()+6-int(t.Weekday()))/7, 2, pad, '0')
	case 'W':
		return padded((t.YearDay()+6-(int(t.Weekday())+6)%7)/7, 2, pad, '0')
	case 'G', 'g', 'V':
		y, w := t.ISOWeek()
		switch d {
		case 'G':
			return strconv.Itoa(y)
		case 'g':
			return padded(y%100, 2, pad, '0')
		}
		return padded(w, 2, pad, '0')
	case 'a':
		text = t.Format("Mon")
	case 'A':
		text = t.Format("Monday")
	case 'b', 'h':
		text = t.Format("Jan")
	case 'B':
		text = t.Format("January")
	case 'p':
		text = t.Format("PM")
	case 'P':
		text = t.Format("pm")
	case 'F':
		text = t.Format("2006-01-02")
	case 'D', 'x':
		text = t.Format("01/02/06")
	case 'T', 'X':
		text = t.Format("15:04:05")
	case 'R':
		text = t.Format("15:04")
	case 'r':
		text = t.Format("03:04:05 PM")
	case 'c':
		text = t.Format("Mon Jan _2 15:04:05 2006")
	case 'z':
		if text = t.Format("-0700"); colons > 0 {
			text = t.Format("-07:00")
		}
	case 'Z':
		text = t.Format("MST")
	case 'n':
		text = "\n"
	case 't':
		text = "\t"
	case '%':
		text = "%"
	default:
		text = "%" + string(d)
	}
	if pad == '^' {
		text = strings.ToUpper(text)
	}
	return text
}

// fullTime returns a time in the format of stat and ls --full-time.
func fullTime(t time.Time) string { return t.Format("2006-01-02 15:04:05.000000000 -0700") }

var dateLayouts = []string{
	"2006-01-02T15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999-0700", "2006-01-02T15:04:05.999999999", "2006-01-02T15:04",
	"2006-01-02 15:04:05.999999999 Z07:00", "2006-01-02 15:04:05.999999999 -0700", "2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999 MST", "2006-01-02 15:04:05.999999999Z",
	"2006-01-02 15:04:05.999999999", "2006-01-02 15:04 -0700", "2006-01-02 15:04 MST", "2006-01-02 15:04", "2006-01-02 15:04Z", "2006-01-02", "2006-01-02 MST", "2006-1-2", "2006/01/02 15:04:05", "2006/01/02 15:04", "2006/01/02", "20060102", "20060102 15:04", "20060102 15:04:05",
	"Jan 2 2006", "Jan 2 2006 15:04", "Jan 2 2006 15:04:05", "Jan 2, 2006", "2 Jan 2006", "2 Jan 2006 15:04", "2 Jan 2006 15:04:05", "January 2, 2006", "January 2 2006", "2 January 2006", "2-Jan-2006",
	"Mon, 2 Jan 2006 15:04:05 -0700", "Mon, 2 Jan 2006 15:04:05 MST", "Mon Jan _2 15:04:05 MST 2006", "Mon Jan 2 15:04:05 2006", "Mon Jan 2 2006", "01/02/2006", "1/2/2006", "01/02/2006 15:04", "1/2/06", "Jan 2 15:04:05 2006",
}

// parseDate reads a date as touch -d does: ISO and mail dates, @seconds, and words such as
// "yesterday" or "2 days ago".
func parseDate(s string, now time.Time) (time.Time, bool) {
	s = strings.Join(strings.Fields(s), " ")
	if epoch, ok := strings.CutPrefix(s, "@"); ok {
		whole, frac, _ := strings.Cut(epoch, ".")
		n, err := strconv.ParseInt(whole, 10, 64)
		f, ferr := strconv.ParseInt((frac + "000000000")[:9], 10, 64)
		return time.Unix(n, f).In(now.Location()), err == nil && ferr == nil
	}
	words := strings.Fields(s)
	for n := len(words); n > 0; n-- {
		head := strings.TrimSuffix(strings.Join(words[:n], " "), ",")
		head = strings.Replace(head, " UTC+0", " UTC", 1)
		for _, layout := range dateLayouts {
			if t, err := time.ParseInLocation(layout, head, now.Location()); err == nil {
				return relative(words[n:], t, t)
			}
		}
	}
	return relative(words, now, now)
}

// relative applies words such as "+2 days", "next week" or "12:00" to a time.
func relative(words []string, t, now time.Time) (time.Time, bool) {
	midnight := func(t time.Time) time.Time { y, m, d := t.Date(); return time.Date(y, m, d, 0, 0, 0, 0, t.Location()) }
	for i := 0; i < len(words); i++ {
		w := strings.ToLower(strings.TrimSuffix(words[i], ","))
		n, numbered := 1, false
		switch w {
		case "now", "today", "utc", "z", "gmt", "":
			continue
		case "yesterday":
			t = t.AddDate(0, 0, -1)
			continue
		case "tomorrow":
			t = t.AddDate(0, 0, 1)
			continue
		case "midnight":
			t = midnight(t)
			continue
		case "noon":
			t = midnight(t).Add(12 * time.Hour)
			continue
		case "next", "last", "a", "an", "this":
			n, numbered = map[string]int{"next": 1, "last": -1, "a": 1, "an": 1, "this": 0}[w], true
		default:
			digits := strings.TrimLeft(w, "+-0123456789")
			if num := w[:len(w)-len(digits)]; num != "" {
				v, err := strconv.Atoi(num)
				if err == nil && digits == "" {
					n, numbered = v, true
				} else if err == nil && !strings.HasPrefix(digits, ":") {
					n, words[i], numbered = v, digits, true
					i--
				}
			}
		}
		if !numbered {
			if clock, err := time.Parse("15:04:05", w); err == nil {
				t = midnight(t).Add(clock.Sub(midnight(clock)))
				continue
			}
			if clock, err := time.Parse("15:04", w); err == nil {
				t = midnight(t).Add(clock.Sub(midnight(clock)))
				continue
			}
			if day, ok := weekday(w); ok {
				t = midnight(t).AddDate(0, 0, (day-int(t.Weekday())+7)%7)
				continue
			}
		} else {
			i++
		}
		if i >= len(words) {
			return t, false
		}
		unit := strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(words[i], ",")), "s")
		if i+1 < len(words) && strings.EqualFold(words[i+1], "ago") {
			n = -n
			i++
		}
		if day, ok := weekday(strings.ToLower(words[min(i, len(words)-1)])); ok && numbered {
			t = midnight(t).AddDate(0, 0, (day-int(t.Weekday())+7)%7)
			if n < 0 {
				t = t.AddDate(0, 0, -7)
			}
			continue
		}
		switch unit {
		case "sec", "second":
			t = t.Add(time.Duration(n) * time.Second)
		case "min", "minute":
			t = t.Add(time.Duration(n) * time.Minute)
		case "hour":
			t = t.Add(time.Duration(n) * time.Hour)
		case "day":
			t = t.AddDate(0, 0, n)
		case "week":
			t = t.AddDate(0, 0, 7*n)
		case "fortnight":
			t = t.AddDate(0, 0, 14*n)
		case "month":
			t = t.AddDate(0, n, 0)
		case "year":
			t = t.AddDate(n, 0, 0)
		default:
			return t, false
		}
	}
	return t, true
}

func weekday(s string) (int, bool) {
	if len(s) < 3 {
		return 0, false
	}
	for d := time.Sunday; d <= time.Saturday; d++ {
		if name := strings.ToLower(d.String()); s == name || s == name[:3] {
			return int(d), true
		}
	}
	return 0, false
}

// parseStamp reads the format of touch -t: [[CC]YY]MMDDhhmm[.ss].
func parseStamp(s string, now time.Time) (time.Time, bool) {
	digits, sec, dotted := strings.Cut(s, ".")
	if !dotted {
		sec = "00"
	}
	switch len(digits) {
	case 8:
		digits = strconv.Itoa(now.Year()) + digits
	case 10:
		century := "20"
		if digits[:2] >= "69" {
			century = "19"
		}
		digits = century + digits
	case 12:
	default:
		return time.Time{}, false
	}
	t, err := time.ParseInLocation("20060102150405", digits+sec, now.Location())
	return t, err == nil
}

// unix returns the time of a number of seconds.
func unix(sec int64) time.Time { return time.Unix(sec, 0).UTC() }

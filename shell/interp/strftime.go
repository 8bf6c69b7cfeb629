package interp

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime formats a time for date and printf %(…)T.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := false
		if (format[i] == '-' || format[i] == '_' || format[i] == '0') && i+1 < len(format) {
			bare = format[i] == '-'
			i++
		}
		s := timeField(format[i], t)
		if bare {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String()
}

// timeLayouts are the fields that package time can format.
var timeLayouts = map[byte]string{'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'y': "06", 'b': "Jan",
	'h': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday", 'I': "03", 'p': "PM", 'e': "_2", 'j': "002", 'F': "2006-01-02",
	'T': "15:04:05", 'D': "01/02/06", 'R': "15:04", 'z': "-0700", 'Z': "MST", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06",
	'X': "15:04:05", 'r': "03:04:05 PM", 'k': "_15"}

func timeField(c byte, t time.Time) string {
	switch c {
	case 's':
		return strconv.FormatInt(t.Unix(), 10)
	case 'N':
		return fmt.Sprintf("%09d", t.Nanosecond())
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1)
	case 'w':
		return strconv.Itoa(int(t.Weekday()))
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100)
	case 'k':
		return fmt.Sprintf("%2d", t.Hour())
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1)
	case 'P':
		return strings.ToLower(t.Format("PM"))
	case 'V', 'G':
		year, week := t.ISOWeek()
		if c == 'G' {
			return strconv.Itoa(year)
		}
		return fmt.Sprintf("%02d", week)
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case '%':
		return "%"
	}
	if l, ok := timeLayouts[c]; ok {
		return t.Format(l)
	}
	return "%" + string(c)
}

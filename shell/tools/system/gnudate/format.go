package gnudate

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Default is the format of date without an argument.
const Default = "%a %b %e %H:%M:%S %Z %Y"

// maxPad is the widest field.
const maxPad = 4096

// Format formats t with the directives of date, in the C locale.
func Format(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		start := i
		d := directive{}
		for i++; i < len(format) && strings.IndexByte("-_0+^#", format[i]) >= 0; i++ {
			switch format[i] {
			case '^':
				d.upper = true
			case '#':
				d.swap = true
			default:
				d.flag = format[i]
			}
		}
		d.width = -1
		for ; i < len(format) && format[i] >= '0' && format[i] <= '9'; i++ {
			d.width = min(max(d.width, 0)*10+int(format[i]-'0'), maxPad)
		}
		if i < len(format) && (format[i] == 'E' || format[i] == 'O') {
			i++
		}
		colons := 0
		for i < len(format) && format[i] == ':' && colons < 3 {
			colons++
			i++
		}
		if i == len(format) {
			b.WriteString(format[start:])
			break
		}
		if text, ok := d.render(format[i], colons, t); ok {
			b.WriteString(text)
		} else {
			b.WriteString(format[start : i+1])
		}
	}
	return b.String()
}

// directive is one %-directive.
type directive struct {
	flag        byte
	upper, swap bool
	width       int
}

// num formats a number with a least number of digits.
func (d directive) num(n, digits int, pad byte) string {
	switch d.flag {
	case '-':
		pad = 0
	case '_':
		pad = ' '
	case '0', '+':
		pad = '0'
	}
	neg := n < 0
	s := strconv.Itoa(max(n, -n))
	width := max(digits, d.width)
	if neg {
		width--
	}
	if pad == '0' && len(s) < width {
		s = strings.Repeat("0", width-len(s)) + s
	}
	if neg {
		s = "-" + s
	}
	if d.flag == '+' && !neg && len(s) > digits {
		s = "+" + strings.TrimPrefix(s, "0")
	}
	if pad == ' ' && len(s) < max(digits, d.width) {
		s = strings.Repeat(" ", max(digits, d.width)-len(s)) + s
	}
	return s
}

func (d directive) str(s string) string {
	if d.upper {
		s = strings.ToUpper(s)
	}
	if d.width > len(s) {
		pad := " "
		if d.flag == '0' || d.flag == '+' {
			pad = "0"
		}
		if d.flag != '-' {
			s = strings.Repeat(pad, d.width-len(s)) + s
		}
	}
	return s
}

func (d directive) name(s string) string {
	if d.swap {
		s = strings.ToUpper(s)
	}
	return d.str(s)
}

func (d directive) render(c byte, colons int, t time.Time) (string, bool) {
	if colons > 0 && c != 'z' {
		return "", false
	}
	sub := func(f string) (string, bool) { return d.str(Format(f, t)), true }
	floor := func(a, b int) int { return (a - ((a%b + b) % b)) / b }
	year, week := t.ISOWeek()
	hour12 := (t.Hour()+11)%12 + 1
	wday := int(t.Weekday())
	switch c {
	case '%':
		return d.str("%"), true
	case 'n':
		return d.str("\n"), true
	case 't':
		return d.str("\t"), true
	case 'a':
		return d.name(t.Format("Mon")), true
	case 'A':
		return d.name(t.Format("Monday")), true
	case 'b', 'h':
		return d.name(t.Format("Jan")), true
	case 'B':
		return d.name(t.Format("January")), true
	case 'c':
		return sub("%a %b %e %H:%M:%S %Y")
	case 'C':
		return d.num(floor(t.Year(), 100), 2, '0'), true
	case 'd':
		return d.num(t.Day(), 2, '0'), true
	case 'D', 'x':
		return sub("%m/%d/%y")
	case 'e':
		return d.num(t.Day(), 2, ' '), true
	case 'F':
		y := d
		if y.width = -1; d.width > 6 {
			y.width = d.width - 6
		}
		if y.flag == 0 {
			y.flag = '0'
		}
		return y.num(t.Year(), 4, '0') + t.Format("-01-02"), true
	case 'g':
		return d.num((year%100+100)%100, 2, '0'), true
	case 'G':
		return d.num(year, 4, '0'), true
	case 'H':
		return d.num(t.Hour(), 2, '0'), true
	case 'I':
		return d.num(hour12, 2, '0'), true
	case 'j':
		return d.num(t.YearDay(), 3, '0'), true
	case 'k':
		return d.num(t.Hour(), 2, ' '), true
	case 'l':
		return d.num(hour12, 2, ' '), true
	case 'm':
		return d.num(int(t.Month()), 2, '0'), true
	case 'M':
		return d.num(t.Minute(), 2, '0'), true
	case 'N':
		s := fmt.Sprintf("%09d", t.Nanosecond())
		switch {
		case d.width > 0 && d.width < 9:
			s = s[:d.width]
		case d.width > 9:
			s += strings.Repeat("0", d.width-9)
		}
		if d.flag == '-' {
			s = strings.TrimRight(s, "0")
			if s == "" {
				s = "0"
			}
		}
		return s, true
	case 'p', 'P':
		s := "AM"
		if t.Hour() >= 12 {
			s = "PM"
		}
		if c == 'P' || d.swap {
			s = strings.ToLower(s)
		}
		return d.str(s), true
	case 'q':
		return d.num((int(t.Month())+2)/3, 1, '0'), true
	case 'r':
		return sub("%I:%M:%S %p")
	case 'R':
		return sub("%H:%M")
	case 's':
		return d.num(int(t.Unix()), 1, '0'), true
	case 'S':
		return d.num(t.Second(), 2, '0'), true
	case 'T', 'X':
		return sub("%H:%M:%S")
	case 'u':
		return d.num((wday+6)%7+1, 1, '0'), true
	case 'U':
		return d.num((t.YearDay()-1+7-wday)/7, 2, '0'), true
	case 'V':
		return d.num(week, 2, '0'), true
	case 'w':
		return d.num(wday, 1, '0'), true
	case 'W':
		return d.num((t.YearDay()-1+7-(wday+6)%7)/7, 2, '0'), true
	case 'y':
		return d.num((t.Year()%100+100)%100, 2, '0'), true
	case 'Y':
		return d.num(t.Year(), 4, '0'), true
	case 'z':
		return d.offset(colons, t), true
	case 'Z':
		name, _ := t.Zone()
		if d.swap {
			name = strings.ToLower(name)
		}
		return d.str(name), true
	}
	return "", false
}

func (d directive) offset(colons int, t time.Time) string {
	_, off := t.Zone()
	sign := "+"
	if off < 0 {
		sign, off = "-", -off
	}
	h, m, s := off/3600, off/60%60, off%60
	var tail string
	switch {
	case colons == 0:
		tail = fmt.Sprintf("%02d", m)
	case colons == 1:
		tail = fmt.Sprintf(":%02d", m)
	case colons == 2 || s != 0:
		tail = fmt.Sprintf(":%02d:%02d", m, s)
	case m != 0:
		tail = fmt.Sprintf(":%02d", m)
	}
	hours := fmt.Sprintf("%02d", h)
	if n := d.width - 1 - len(tail); n > 2 && d.flag != '-' && d.flag != '_' {
		hours = fmt.Sprintf("%0*d", n, h)
	}
	switch d.flag {
	case '-':
		hours = strconv.Itoa(h)
	case '_':
		hours = strconv.Itoa(h)
		return fmt.Sprintf("%*s", max(d.width, 3+len(tail)), sign+hours+tail)
	}
	return sign + hours + tail
}

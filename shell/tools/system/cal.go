package system

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
)

// cal prints calendars as ncal's cal does, but does not mark today.
func cal(c *tool.Call) int {
	f, ok := c.Flags("13hjJmyMSsbA:B:d:H:NpwC")
	if !ok {
		return 64
	}
	now := local(c)
	year, month := now.Year(), int(now.Month())
	whole := f.Has('y')
	args := f.Args
	if f.Has('m') && len(args) > 0 { // -m MONTH
		args = append([]string{args[0]}, args[1:]...)
	}
	if len(args) > 2 {
		args = args[len(args)-2:]
	}
	if len(args) > 0 {
		y, err := strconv.Atoi(args[len(args)-1])
		if err != nil || y < 1 || y > 9999 {
			if len(args) == 1 && monthNumber(args[0]) > 0 {
				y, month = year, monthNumber(args[0])
			} else {
				return c.Errorf(64, "year `%s' not in range 1..9999", args[len(args)-1])
			}
		} else if len(args) == 1 {
			whole = true
			if f.Has('m') {
				if y > 12 {
					return c.Errorf(64, "%s is neither a month number (1..12) nor a name", args[0])
				}
				whole, month, y = false, y, year
			}
		}
		year = y
		if len(args) == 2 {
			if month = monthNumber(args[0]); month == 0 {
				return c.Errorf(64, "%s is neither a month number (1..12) nor a name", args[0])
			}
		}
	}
	monday := f.Has('M')
	var b strings.Builder
	switch {
	case whole:
		title := strconv.Itoa(year)
		fmt.Fprintf(&b, "%*s\n", 30+len(title)/2, title)
		for m := 1; m <= 12; m += 3 {
			beside(&b, monday, false, time.Date(year, time.Month(m), 1, 0, 0, 0, 0, time.UTC))
			if m < 10 {
				b.WriteByte('\n')
			}
		}
	case f.Has('3'):
		beside(&b, monday, true, time.Date(year, time.Month(month-1), 1, 0, 0, 0, 0, time.UTC))
	default:
		for _, l := range monthLines(year, time.Month(month), monday, true) {
			b.WriteString(l + "\n")
		}
	}
	return show(c, b.String())
}

func monthNumber(s string) int {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > 12 {
			return 0
		}
		return n
	}
	for m := time.January; m <= time.December; m++ {
		if len(s) >= 3 && strings.HasPrefix(strings.ToLower(m.String()), strings.ToLower(s)) {
			return int(m)
		}
	}
	return 0
}

// beside prints three months.
func beside(b *strings.Builder, monday, years bool, first time.Time) {
	var cols [3][]string
	for i := range cols {
		t := first.AddDate(0, i, 0)
		cols[i] = monthLines(t.Year(), t.Month(), monday, years)
	}
	for row := range cols[0] {
		fmt.Fprintf(b, "%-22s%-22s%s\n", cols[0][row], cols[1][row], cols[2][row])
	}
}

// monthLines returns the eight lines of a month, 20 columns wide.
func monthLines(year int, month time.Month, monday, withYear bool) []string {
	title := month.String()
	if withYear {
		title += " " + strconv.Itoa(year)
	}
	pad := (20 - len(title)) / 2
	lines := []string{fmt.Sprintf("%-20s", strings.Repeat(" ", pad)+title), "Su Mo Tu We Th Fr Sa"}
	t := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	col := int(t.Weekday())
	if monday {
		lines[1] = "Mo Tu We Th Fr Sa Su"
		col = (col + 6) % 7
	}
	row := strings.Repeat("   ", col)
	for d := 1; d <= t.AddDate(0, 1, -1).Day(); d++ {
		row += fmt.Sprintf("%2d", d)
		if col++; col == 7 {
			lines = append(lines, row)
			row, col = "", 0
		} else {
			row += " "
		}
	}
	lines = append(lines, row)
	for len(lines) < 8 {
		lines = append(lines, "")
	}
	for i, l := range lines {
		lines[i] = fmt.Sprintf("%-20s", l) + "  "
	}
	return lines[:8]
}

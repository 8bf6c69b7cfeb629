package awk

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/interp"
)

// natives are gawk's functions that need no arrays.
func natives(c *tool.Call, in func() *interp.Interpreter) map[string]any {
	return map[string]any{
		"gensub": func(regex, repl, how string, target ...string) (string, error) {
			if len(target) == 0 {
				target = []string{in().Line()}
			}
			return in().Gensub(regex, repl, how, target[0])
		},
		"systime": func() float64 { return float64(c.Now().Unix()) },
		"strftime": func(args ...string) string {
			format, t := "%a %b %e %H:%M:%S %Z %Y", c.Now()
			if len(args) > 0 {
				format = args[0]
			}
			if len(args) > 1 {
				n, _ := strconv.ParseFloat(strings.TrimSpace(args[1]), 64) // nonsense is 0
				t = time.Unix(int64(n), 0)
			}
			zone := zoneOf(c)
			if len(args) > 2 && args[2] != "" && args[2] != "0" {
				zone = time.UTC
			}
			return strftime(format, t.In(zone))
		},
		"mktime": func(spec string, utc ...bool) float64 {
			var n [6]int
			f := strings.Fields(spec)
			if len(f) < 6 {
				return -1
			}
			for i := range n {
				v, err := strconv.Atoi(f[i])
				if err != nil {
					return -1
				}
				n[i] = v
			}
			zone := zoneOf(c)
			if len(utc) > 0 && utc[0] {
				zone = time.UTC
			}
			return float64(time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, zone).Unix())
		},
		"strtonum": strtonum,
		"and": func(a, b float64, more ...float64) float64 {
			return fold(a, b, more, func(x, y uint64) uint64 { return x & y })
		},
		"or": func(a, b float64, more ...float64) float64 {
			return fold(a, b, more, func(x, y uint64) uint64 { return x | y })
		},
		"xor": func(a, b float64, more ...float64) float64 {
			return fold(a, b, more, func(x, y uint64) uint64 { return x ^ y })
		},
		"lshift": func(a, b float64) float64 { return float64(uint64(a) << uint64(b)) },
		"rshift": func(a, b float64) float64 { return float64(uint64(a) >> uint64(b)) },
		"compl":  func(a float64) float64 { return float64(^uint64(a) & (1<<53 - 1)) },
	}
}

func zoneOf(c *tool.Call) *time.Location {
	_ = c // machines have one time zone
	return time.UTC
}

func fold(a, b float64, more []float64, op func(x, y uint64) uint64) float64 {
	v := op(uint64(a), uint64(b))
	for _, m := range more {
		v = op(v, uint64(m))
	}
	return float64(v)
}

// strtonum reads decimal, octal and hexadecimal numbers.
func strtonum(s string) float64 {
	s = strings.TrimSpace(s)
	neg := strings.HasPrefix(s, "-")
	d := strings.TrimLeft(s, "+-")
	base, digits := 10, d
	switch {
	case strings.HasPrefix(d, "0x"), strings.HasPrefix(d, "0X"):
		base, digits = 16, d[2:]
	case len(d) > 1 && d[0] == '0' && strings.Trim(d, "01234567") == "":
		base = 8
	}
	if base == 10 {
		for n := len(s); n > 0; n-- {
			if v, err := strconv.ParseFloat(s[:n], 64); err == nil && !strings.ContainsAny(s[:n], "_xXpPnN") {
				return v
			}
			if n > 400 {
				n = 400
			}
		}
		return 0
	}
	v := 0.0
	for _, r := range strings.ToLower(digits) {
		i := strings.IndexRune("0123456789abcdef"[:base], r)
		if i < 0 {
			break
		}
		v = v*float64(base) + float64(i)
	}
	if neg {
		v = -v
	}
	if math.IsInf(v, 0) {
		return 0
	}
	return v
}

// strftime formats a time.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch c := format[i]; c {
		case 'Y':
			fmt.Fprintf(&b, "%d", t.Year())
		case 'C':
			fmt.Fprintf(&b, "%02d", t.Year()/100)
		case 'y':
			fmt.Fprintf(&b, "%02d", t.Year()%100)
		case 'm':
			fmt.Fprintf(&b, "%02d", int(t.Month()))
		case 'd':
			fmt.Fprintf(&b, "%02d", t.Day())
		case 'e':
			fmt.Fprintf(&b, "%2d", t.Day())
		case 'H':
			fmt.Fprintf(&b, "%02d", t.Hour())
		case 'I':
			fmt.Fprintf(&b, "%02d", (t.Hour()+11)%12+1)
		case 'k':
			fmt.Fprintf(&b, "%2d", t.Hour())
		case 'l':
			fmt.Fprintf(&b, "%2d", (t.Hour()+11)%12+1)
		case 'M':
			fmt.Fprintf(&b, "%02d", t.Minute())
		case 'S':
			fmt.Fprintf(&b, "%02d", t.Second())
		case 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		case 's':
			fmt.Fprintf(&b, "%d", t.Unix())
		case 'u':
			fmt.Fprintf(&b, "%d", (int(t.Weekday())+6)%7+1)
		case 'w':
			fmt.Fprintf(&b, "%d", int(t.Weekday()))
		case 'U':
			fmt.Fprintf(&b, "%02d", (t.YearDay()+6-int(t.Weekday()))/7)
		case 'W':
			fmt.Fprintf(&b, "%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
		case 'V', 'G', 'g':
			y, w := t.ISOWeek()
			switch c {
			case 'V':
				fmt.Fprintf(&b, "%02d", w)
			case 'G':
				fmt.Fprintf(&b, "%d", y)
			default:
				fmt.Fprintf(&b, "%02d", y%100)
			}
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case '%':
			b.WriteByte('%')
		default:
			layout, ok := layouts[c]
			if !ok {
				b.WriteString(format[i-1 : i+1])
				continue
			}
			b.WriteString(t.Format(layout))
		}
	}
	return b.String()
}

// layouts are what package time has itself.
var layouts = map[byte]string{'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'c': "Mon Jan _2 15:04:05 2006", 'D': "01/02/06", 'F': "2006-01-02",
	'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'T': "15:04:05", 'x': "01/02/06", 'X': "15:04:05", 'Z': "MST", 'z': "-0700"}

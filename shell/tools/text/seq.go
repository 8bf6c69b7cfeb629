package text

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// decimals returns the number of digits after the point in a number's text.
func decimals(s string) int {
	mant, exp, _ := strings.Cut(strings.ToLower(s), "e")
	n := 0
	if _, frac, ok := strings.Cut(mant, "."); ok {
		n = len(frac)
	}
	if e, err := strconv.Atoi(exp); err == nil {
		n -= e
	}
	return max(n, 0)
}

// isWhole reports whether s is an integer that fits an int64.
func isWhole(s string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimPrefix(s, "+"), 10, 64)
	return n, err == nil && n > -1<<60 && n < 1<<60 && !strings.HasPrefix(s, "+-")
}

func seq(c *tool.Call) int {
	// A negative number is not an option.
	args := []string{}
	for i, a := range c.Args {
		if len(a) > 1 && a[0] == '-' && (a[1] >= '0' && a[1] <= '9' || a[1] == '.') {
			c.Args = append(append(args, "--"), c.Args[i:]...)
			break
		}
		value := i > 0 && (c.Args[i-1] == "-s" || c.Args[i-1] == "-f" || c.Args[i-1] == "--separator" || c.Args[i-1] == "--format")
		if args = append(args, a); !value && (a == "--" || !strings.HasPrefix(a, "-")) {
			break
		}
	}
	f, ok := c.Flags("+f:s:w", "format=f", "separator=s", "equal-width=w")
	if !ok {
		return 1
	}
	a := f.Args
	if len(a) == 0 {
		return usage.Missing(c, 1)
	}
	if len(a) > 3 {
		return usage.Extra(c, 1, a[3])
	}
	for _, s := range a {
		if _, ok := leadingFloat([]byte(s)); !ok || !wholeFloat(s) {
			c.Errorf(1, "invalid floating point argument: ‘%s’", s)
			return usage.Try(c, 1)
		}
		if math.IsNaN(mustFloat(s)) {
			c.Errorf(1, "invalid ‘not-a-number’ argument: ‘%s’", s)
			return usage.Try(c, 1)
		}
	}
	first, step, last := "1", "1", a[len(a)-1]
	if len(a) > 1 {
		first = a[0]
	}
	if len(a) > 2 {
		step = a[1]
		if mustFloat(step) == 0 {
			c.Errorf(1, "invalid Zero increment value: ‘%s’", step)
			return usage.Try(c, 1)
		}
	}
	sep := f.Value('s', "\n")
	if f.Has('f') {
		if f.Has('w') {
			c.Errorf(1, "format string may not be specified when printing equal width strings")
			return usage.Try(c, 1)
		}
	} else {
		x, ok1 := isWhole(first)
		s, ok2 := isWhole(step)
		y, ok3 := isWhole(last)
		if ok1 && ok2 && ok3 {
			wide := 0
			if f.Has('w') { // as they are written
				wide = max(len(strings.TrimLeft(first, " \t\n+")), len(strings.TrimLeft(last, " \t\n+")))
			}
			return seqWhole(c, x, s, y, sep, wide, first)
		}
	}
	return seqFloat(c, first, step, last, sep, f)
}

func wholeFloat(s string) bool {
	low := strings.ToLower(strings.TrimLeft(s, " \t\n"))
	if low = strings.TrimLeft(low, "+-"); low == "inf" || low == "infinity" || low == "nan" {
		return true
	}
	if strings.HasPrefix(low, "0x") {
		return strings.Trim(low[2:], "0123456789abcdef.p+-") == ""
	}
	_, err := strconv.ParseFloat(strings.TrimLeft(s, " \t\n"), 64)
	return err == nil && strings.IndexByte(s, '_') < 0
}

func mustFloat(s string) float64 {
	f, _ := leadingFloat([]byte(s)) // it was looked at
	return f
}

// seqWhole counts in integers.
func seqWhole(c *tool.Call, x, step, last int64, sep string, width int, first string) int {
	w := c.Buffered()
	var num []byte
	any := false
	for n := 1; step > 0 && x <= last || step < 0 && x >= last; n++ {
		if n%256 == 0 && !c.Step(256) {
			return 1
		}
		num = num[:0]
		if any {
			num = append(num, sep...)
		}
		any = true
		if width > 0 {
			s := strconv.FormatInt(max(x, -x), 10)
			pad := width - len(s)
			if x < 0 {
				num = append(num, '-')
				pad--
			}
			for range pad {
				num = append(num, '0')
			}
			num = append(num, s...)
		} else {
			num = strconv.AppendInt(num, x, 10)
		}
		if _, err := w.Write(num); err != nil {
			return c.Flush(w, 1)
		}
		x += step
	}
	if any {
		_ = w.WriteByte('\n') // the flush reports
	}
	return c.Flush(w, 0)
}

// seqFloat counts in exact decimal numbers. GNU's seq uses long double, which gives nearly the same
// result.
func seqFloat(c *tool.Call, first, step, last, sep string, f tool.Flags) int {
	prec := max(decimals(first), decimals(step))
	if prec > 100 {
		return c.Errorf(1, "too many digits")
	}
	format := "%." + strconv.Itoa(prec) + "f"
	verb := byte('f')
	before, after := "", ""
	if f.Has('f') {
		var err error
		if before, format, verb, after, err = floatFormat(f.Value('f', "")); err != nil {
			return c.Errorf(1, "%v", err)
		}
	}
	const bits = 256
	num := func(s string) *big.Float {
		v, _, err := big.ParseFloat(strings.TrimLeft(strings.TrimPrefix(strings.TrimSpace(s), "+"), " "), 0, bits, big.ToNearestEven)
		if err != nil {
			v = new(big.Float).SetPrec(bits).SetFloat64(mustFloat(s))
		}
		return v
	}
	if math.IsInf(mustFloat(step), 0) || math.IsInf(mustFloat(first), 0) {
		return c.Errorf(1, "infinite numbers are not supported here")
	}
	forever := math.IsInf(mustFloat(last), 0)
	x, s, y := num(first), num(step), num(last)
	sign := s.Sign()
	// A number counts as the end if a long double could not tell the two apart.
	slack := new(big.Float).SetPrec(bits).SetMantExp(big.NewFloat(1), -70)
	slack.Mul(slack, new(big.Float).Abs(s))
	if !forever {
		if sign > 0 {
			y.Add(y, slack)
		} else {
			y.Sub(y, slack)
		}
	}
	show := func(v *big.Float) string {
		if verb == 'f' && !f.Has('f') {
			return v.Text('f', prec)
		}
		d, _ := v.Float64()
		return before + fmt.Sprintf(format, d) + after
	}
	width := 0
	if f.Has('w') && !forever {
		p := max(prec, 0)
		width = max(len(x.Text('f', p)), len(num(last).Text('f', min(p, decimals(last)))))
		if d := decimals(last); p > 0 && d < p {
			// Pad the end to the precision of the other numbers.
			extra := p - d
			if d == 0 {
				extra++
			}
			width = max(len(x.Text('f', p)), len(num(last).Text('f', d))+extra)
		}
	}
	w := c.Buffered()
	i := big.NewInt(0)
	one := big.NewInt(1)
	for any := false; ; any = true {
		if !c.Step(4) {
			return 1
		}
		v := new(big.Float).SetPrec(bits).SetInt(i)
		v.Add(x, v.Mul(v, s))
		if !forever && (sign > 0 && v.Cmp(y) > 0 || sign < 0 && v.Cmp(y) < 0) || forever && (sign > 0) != (mustFloat(last) > 0) {
			if any {
				_ = w.WriteByte('\n') // the flush reports
			}
			return c.Flush(w, 0)
		}
		text := show(v)
		if width > len(text) {
			neg := strings.HasPrefix(text, "-")
			text = strings.Repeat("0", width-len(text)) + strings.TrimPrefix(text, "-")
			if neg {
				text = "-" + text
			}
		}
		if any {
			text = sep + text
		}
		if _, err := w.WriteString(text); err != nil {
			return c.Flush(w, 1)
		}
		i.Add(i, one)
	}
}

// floatFormat splits a printf format that has one directive for a float.
func floatFormat(s string) (before, verb string, letter byte, after string, err error) {
	at := -1
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '%' {
			i++
			continue
		}
		if at >= 0 {
			return "", "", 0, "", fmt.Errorf("format ‘%s’ has too many %% directives", s)
		}
		at = i
	}
	if at < 0 {
		return "", "", 0, "", fmt.Errorf("format ‘%s’ has no %% directive", s)
	}
	i := at + 1
	for i < len(s) && strings.IndexByte("-+#0 '", s[i]) >= 0 {
		i++
	}
	digits := func() bool {
		n := 0
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			n = n*10 + int(s[i]-'0')
			i++
			if n > 1<<16 {
				return false
			}
		}
		return true
	}
	fine := digits()
	if fine && i < len(s) && s[i] == '.' {
		i++
		fine = digits()
	}
	if !fine {
		return "", "", 0, "", fmt.Errorf("format ‘%s’ is too wide", s)
	}
	if i < len(s) && s[i] == 'L' {
		i++
	}
	if i == len(s) {
		return "", "", 0, "", fmt.Errorf("format ‘%s’ ends in %%", s)
	}
	if strings.IndexByte("efgaEFGA", s[i]) < 0 {
		return "", "", 0, "", fmt.Errorf("format ‘%s’ has unknown %%%c directive", s, s[i])
	}
	clean := strings.NewReplacer("'", "", "L", "").Replace(s[at : i+1])
	clean = goVerb(clean)
	return strings.ReplaceAll(s[:at], "%%", "%"), clean, s[i], strings.ReplaceAll(s[i+1:], "%%", "%"), nil
}

// goVerb converts C's %g to that of package fmt, whose default precision is different.
func goVerb(v string) string {
	last := v[len(v)-1]
	if !strings.Contains(v, ".") && (last == 'g' || last == 'G') {
		v = v[:len(v)-1] + ".6" + string(last)
	}
	return strings.NewReplacer("a", "x", "A", "X").Replace(v)
}

package text

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

const units = "KMGTPEZY"

// numfmter is one run of numfmt.
type numfmter struct {
	from, to           string
	fromUnit, toUnit   float64
	round              string
	suffix             string
	padding, precision int
	before, after      string
	zero, grouped      bool
	abort              bool // a bad number ends it all
}

func numfmt(c *tool.Call) int {
	f, ok := c.Flags("d:z\x81:\x82:\x83:\x84:\x85:\x86:\x87:\x88:\x89::\x8a:\x8b\x8c", "delimiter=d", "zero-terminated=z", "from=\x81", "to=\x82", "from-unit=\x83", "to-unit=\x84", "round=\x85",
		"suffix=\x86", "padding=\x87", "format=\x88", "header=\x89", "field=\x8a", "grouping=\x8b", "debug=\x8c", "invalid=\x8d:")
	if !ok {
		return 1
	}
	n := &numfmter{from: f.Value('\x81', "none"), to: f.Value('\x82', "none"), fromUnit: 1, toUnit: 1, round: f.Value('\x85', "from-zero"), suffix: f.Value('\x86', ""), precision: -1}
	for _, o := range []struct {
		name, value string
		valid       []string
	}{{"--to", n.to, []string{"none", "si", "iec", "iec-i"}}, {"--from", n.from, []string{"none", "auto", "si", "iec", "iec-i"}},
		{"--round", n.round, []string{"up", "down", "from-zero", "towards-zero", "nearest"}}, {"--invalid", f.Value('\x8d', "abort"), []string{"abort", "fail", "warn", "ignore"}}} {
		if !slices.Contains(o.valid, o.value) {
			return usage.Argument(c, 1, o.value, o.name, o.valid...)
		}
	}
	if n.grouped = f.Has('\x8b'); n.grouped && n.to != "none" {
		return c.Errorf(1, "grouping cannot be combined with --to")
	}
	delim := f.Value('d', "")
	if utf8.RuneCountInString(delim) > 1 {
		return c.Errorf(1, "the delimiter must be a single character")
	}
	if f.Has('d') && delim == "" {
		delim = "\x00"
	}
	for _, u := range []struct {
		l  byte
		to *float64
	}{{'\x83', &n.fromUnit}, {'\x84', &n.toUnit}} {
		if v := f.Value(u.l, ""); v != "" {
			x, ok := unitSize(v)
			if !ok {
				return c.Errorf(1, "invalid unit size: ‘%s’", v)
			}
			*u.to = x
		}
	}
	if v := f.Value('\x87', ""); v != "" {
		p, err := strconv.Atoi(v)
		if err != nil || p == 0 || p > 4096 || p < -4096 {
			return c.Errorf(1, "invalid padding value ‘%s’", v)
		}
		n.padding = p
	}
	if v := f.Value('\x88', ""); v != "" {
		if err := n.format(v); err != nil {
			return c.Errorf(1, "%v", err)
		}
	}
	if len(f.Values('\x8a')) > 1 {
		return c.Errorf(1, "multiple field specifications")
	}
	fields, err := numfmtFields(f.Value('\x8a', "1"))
	if err != nil {
		c.Errorf(1, "%v", err)
		return usage.Try(c, 1)
	}
	header := 0
	if f.Has('\x89') {
		header = 1
		if v := f.Value('\x89', ""); v != "" {
			if header, err = atoi(v); err != nil {
				return c.Errorf(1, "invalid header value ‘%s’", v)
			}
		}
	}
	status := 0
	mode := f.Value('\x8d', "abort")
	w := c.Buffered()
	n.abort = mode == "abort"
	line := func(l string) error {
		out, err := n.line(l, delim, fields)
		if err != nil {
			if n.abort {
				_, _ = io.WriteString(w, out) // the flush reports
			}
			if mode == "abort" || mode == "fail" || mode == "warn" {
				c.Errorf(2, "%v", err)
			}
			if n.abort {
				status = 2
				return tool.ErrStop
			}
			if mode == "fail" {
				status = 2
			}
		}
		_, err = io.WriteString(w, out)
		return err
	}
	end := byte('\n')
	if f.Has('z') {
		end = 0
	}
	if len(f.Args) > 0 {
		for _, a := range f.Args {
			if line(a) != nil {
				break
			}
			_ = w.WriteByte(end) // the flush reports
		}
		return c.Flush(w, status)
	}
	err = c.Lines(c.In, end, func(l []byte, whole bool) error {
		if header > 0 {
			header--
			_, err := fmt.Fprintf(w, "%s%c", l, end)
			return err
		}
		if err := line(string(l)); err != nil {
			return err
		}
		if whole {
			return w.WriteByte(end)
		}
		return nil
	})
	if err != nil && status == 0 && !c.Stopped(err) {
		status = c.Errorf(1, "%s", tool.ErrText(err))
	}
	return c.Flush(w, status)
}

// format reads --format, which must have one %f.
func (n *numfmter) format(s string) error {
	at := strings.IndexByte(s, '%')
	if at < 0 {
		return fmt.Errorf("format ‘%s’ has no %% directive", s)
	}
	for at >= 0 && strings.HasPrefix(s[at:], "%%") {
		next := strings.IndexByte(s[at+2:], '%')
		if next < 0 {
			return fmt.Errorf("format ‘%s’ has no %% directive", s)
		}
		at += 2 + next
	}
	n.before = strings.ReplaceAll(s[:at], "%%", "%")
	rest := s[at+1:]
	if strings.Trim(rest, "-'0123456789.") == "" {
		return fmt.Errorf("format ‘%s’ ends in %%", s)
	}
	for rest != "" && strings.IndexByte("'0", rest[0]) >= 0 {
		n.zero = n.zero || rest[0] == '0'
		n.grouped = n.grouped || rest[0] == '\''
		rest = rest[1:]
	}
	i := strings.IndexByte(rest, 'f')
	if i < 0 {
		return fmt.Errorf("invalid format ‘%s’, directive must be %%[0]['][-][N][.][N]f", s)
	}
	width, prec, has := strings.Cut(rest[:i], ".")
	if has {
		p, err := atoi("0" + prec)
		if err != nil || p > 100 {
			return fmt.Errorf("invalid precision in format ‘%s’", s)
		}
		n.precision = p
	}
	if width != "" {
		p, err := strconv.Atoi(width)
		if err != nil || p > 4096 || p < -4096 {
			return fmt.Errorf("invalid format ‘%s’ (width overflow)", s)
		}
		n.padding = p
	}
	n.after = strings.ReplaceAll(rest[i+1:], "%%", "\x00")
	if strings.Contains(n.after, "%") {
		return fmt.Errorf("format ‘%s’ has too many %% directives", s)
	}
	n.after = strings.ReplaceAll(n.after, "\x00", "%")
	return nil
}

// line converts the fields of a line.
func (n *numfmter) line(l, delim string, fields []span) (string, error) {
	var b strings.Builder
	var failed error
	convert := func(field int, text string) string {
		for _, s := range fields {
			if field >= s.from && field <= s.to {
				x, err := n.parse(strings.TrimSuffix(text, n.suffix))
				if err == nil && n.to == "none" && math.Abs(x/n.toUnit) >= 1e18 {
					err = fmt.Errorf("value too large to be printed: '%s' (consider using --to)", strconv.FormatFloat(x, 'g', 6, 64))
				}
				if err != nil {
					failed = err
					return text
				}
				return n.render(x)
			}
		}
		return text
	}
	if delim != "" {
		for i, p := range strings.Split(l, delim) {
			if i > 0 {
				b.WriteString(delim)
			}
			text := convert(i+1, p)
			if failed != nil && n.abort {
				return b.String(), failed
			}
			b.WriteString(text)
		}
		return b.String(), failed
	}
	for field := 1; ; field++ {
		i := 0
		for i < len(l) && (l[i] == ' ' || l[i] == '\t') {
			i++
		}
		j := i
		for j < len(l) && l[j] != ' ' && l[j] != '\t' {
			j++
		}
		if i == j {
			b.WriteString(l)
			return b.String(), failed
		}
		text := convert(field, l[i:j])
		if failed != nil && n.abort {
			return b.String() + l[:i], failed
		}
		lead := l[:i]
		if field > 1 && text != l[i:j] && len(lead) > 1 || field == 1 && len(lead) > 0 && text != l[i:j] {
			// Blanks before a field count for its width.
			width := j
			if field > 1 {
				lead, width = lead[:1], j-1
			} else {
				lead = ""
			}
			text = fmt.Sprintf("%*s", width, text)
		}
		b.WriteString(lead + text)
		l = l[j:]
	}
}

// numfmtFields reads a list of fields, in which "-" means all.
func numfmtFields(list string) ([]span, error) {
	all := false
	parts := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	parts = slices.DeleteFunc(parts, func(p string) bool { all = all || p == "-"; return p == "-" })
	if all {
		return []span{{1, math.MaxInt}}, nil
	}
	return parseSpans(strings.Join(parts, ","), "field")
}

// unitSize reads the argument of --from-unit: a number with K (1000) or Ki (1024) and so on.
func unitSize(s string) (float64, bool) {
	base := 1000.0
	num := strings.TrimSuffix(s, "i")
	if num != s {
		base = 1024
	}
	x := 1.0
	at := -1
	if num != "" {
		at = strings.IndexByte(units, num[len(num)-1])
	}
	if at >= 0 {
		x, num = math.Pow(base, float64(at+1)), num[:len(num)-1]
	} else if base == 1024 {
		return 0, false
	}
	if num != "" {
		n, err := strconv.ParseUint(num, 10, 64)
		if err != nil || n == 0 {
			return 0, false
		}
		x *= float64(n)
	}
	return x, s != ""
}

func (n *numfmter) parse(s string) (float64, error) {
	i := 0
	digits := func() bool {
		from := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i > from
	}
	if strings.HasPrefix(s, "-") {
		i++
	}
	ok := digits()
	if i < len(s) && s[i] == '.' {
		i++
		ok = digits()
	}
	x, err := strconv.ParseFloat(s[:i], 64)
	if err != nil || !ok {
		return 0, fmt.Errorf("invalid number: ‘%s’", s)
	}
	if x == 0 {
		x = math.Abs(x) // -0 is written without a sign
	}
	rest := strings.TrimRight(s[i:], " \t")
	if len(rest) > 1 && rest[0] == ' ' {
		rest = rest[1:]
	}
	if rest != "" {
		at := strings.IndexByte(units, rest[0])
		if rest[0] == 'k' {
			at = 0
		}
		if at < 0 {
			return 0, fmt.Errorf("invalid suffix in input: ‘%s’", s)
		}
		if n.from == "none" {
			return 0, fmt.Errorf("rejecting suffix in input: ‘%s’ (consider using --from)", s)
		}
		base := 1000.0
		tail := rest[1:]
		switch {
		case n.from == "iec":
			base = 1024
		case n.from == "iec-i":
			if tail != "i" {
				return 0, fmt.Errorf("missing 'i' suffix in input: ‘%s’ (e.g Ki/Mi/Gi)", s)
			}
			base, tail = 1024, ""
		case n.from == "auto" && strings.HasPrefix(tail, "i"):
			base, tail = 1024, tail[1:]
		}
		if tail != "" {
			return 0, fmt.Errorf("invalid suffix in input ‘%s’: ‘%s’", s, tail)
		}
		x *= math.Pow(base, float64(at+1))
	}
	return x * n.fromUnit / 1, nil
}

func (n *numfmter) rounded(x float64) float64 {
	switch n.round {
	case "up":
		return math.Ceil(x)
	case "down":
		return math.Floor(x)
	case "towards-zero":
		return math.Trunc(x)
	case "nearest":
		return math.Round(x)
	}
	if x < 0 {
		return math.Floor(x)
	}
	return math.Ceil(x)
}

func (n *numfmter) render(x float64) string {
	x /= n.toUnit
	text := ""
	if n.to == "none" {
		prec := max(n.precision, 0)
		scale := math.Pow(10, float64(prec))
		text = strconv.FormatFloat(n.rounded(x*scale)/scale, 'f', prec, 64)
		if n.precision < 0 && x != math.Trunc(x) {
			text = strconv.FormatFloat(x, 'f', -1, 64)
		}
	} else {
		base := 1000.0
		if n.to != "si" {
			base = 1024
		}
		power := 0
		v := x
		for math.Abs(v) >= base && power < len(units) {
			v /= base
			power++
		}
		prec := 0
		if n.precision >= 0 {
			prec = n.precision
		} else if power > 0 && math.Abs(v) < 10 {
			prec = 1
		}
		scale := math.Pow(10, float64(prec))
		v = n.rounded(v*scale) / scale
		if math.Abs(v) >= base && power < len(units) {
			v /= base
			power++
		}
		if n.precision < 0 {
			prec = 0
			if power > 0 && math.Abs(v) < 10 {
				prec = 1
			}
		}
		text = strconv.FormatFloat(v, 'f', prec, 64)
		if power > 0 {
			text += units[power-1 : power]
			if n.to == "iec-i" {
				text += "i"
			}
		}
	}
	text += n.suffix
	pad := "%*s"
	if n.zero && len(text) < n.padding {
		text = strings.Repeat("0", n.padding-len(text)) + text
	}
	return n.before + fmt.Sprintf(pad, n.padding, text) + n.after
}

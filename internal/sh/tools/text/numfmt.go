package text

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/tools/text/usage"
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
	formatted          bool
}

func numfmt(c *tool.Call) int {
	f, ok := c.Flags("d:z\x81:\x82:\x83:\x84:\x85:\x86:\x87:\x88:\x89::\x8a:\x8b\x8c", "delimiter=d", "zero-terminated=z", "from=\x81", "to=\x82", "from-unit=\x83", "to-unit=\x84", "round=\x85",
		"suffix=\x86", "padding=\x87", "format=\x88", "header=\x89", "field=\x8a", "grouping=\x8b", "debug=\x8c", "invalid=\x8d:")
	if !ok {
		return 1
	}
	n := &numfmter{from: f.Value('\x81', "none"), to: f.Value('\x82', "none"), fromUnit: 1, toUnit: 1, round: f.Value('\x85', "from-zero"), suffix: f.Value('\x86', ""), precision: -1}
	for _, s := range []string{n.from, n.to} {
		if strings.Index(" none si iec iec-i auto ", " "+s+" ") < 0 {
			c.Errorf(1, "invalid argument ‘%s’ for ‘--from’", s)
			return usage.Try(c, 1)
		}
	}
	for _, u := range []struct {
		l  byte
		to *float64
	}{{'\x83', &n.fromUnit}, {'\x84', &n.toUnit}} {
		if v := f.Value(u.l, ""); v != "" {
			p := &numfmter{from: "auto", fromUnit: 1}
			x, err := p.parse(v)
			if err != nil || x <= 0 {
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
	fields, err := parseSpans(strings.Replace(f.Value('\x8a', "1"), "-", "-", 1), "field")
	if f.Value('\x8a', "") == "-" {
		fields, err = []span{{1, math.MaxInt}}, nil
	}
	if err != nil {
		return c.Errorf(1, "%v", err)
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
	line := func(l string) error {
		out, err := n.line(l, f.Value('d', ""), fields)
		if err != nil {
			if mode == "abort" || mode == "fail" || mode == "warn" {
				c.Errorf(2, "%v", err)
			}
			if mode == "abort" {
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

// format reads --format, which has one %f.
func (n *numfmter) format(s string) error {
	at := strings.IndexByte(s, '%')
	if at < 0 {
		return fmt.Errorf("format ‘%s’ has no %% directive", s)
	}
	n.before = s[:at]
	rest := s[at+1:]
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
	n.after = rest[i+1:]
	n.formatted = true
	return nil
}

// line converts the fields of a line.
func (n *numfmter) line(l, delim string, fields []span) (string, error) {
	var b strings.Builder
	var failed error
	convert := func(field int, text string, auto int) string {
		for _, s := range fields {
			if field >= s.from && field <= s.to {
				x, err := n.parse(strings.TrimSuffix(text, n.suffix))
				if err != nil {
					failed = err
					return text
				}
				return n.render(x, auto)
			}
		}
		return text
	}
	if delim != "" {
		for i, p := range strings.Split(l, delim) {
			if i > 0 {
				b.WriteString(delim)
			}
			b.WriteString(convert(i+1, p, 0))
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
		text := convert(field, l[i:j], 0)
		lead := l[:i]
		if field > 1 && text != l[i:j] && len(lead) > 1 || field == 1 && len(lead) > 0 && text != l[i:j] {
			// The blanks before a field count as its width.
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

func (n *numfmter) parse(s string) (float64, error) {
	i := 0
	for i < len(s) && strings.IndexByte("0123456789.-+", s[i]) >= 0 {
		i++
	}
	x, err := strconv.ParseFloat(s[:i], 64)
	if err != nil || i == 0 || s[0] == '+' {
		return 0, fmt.Errorf("invalid number: ‘%s’", s)
	}
	if rest := s[i:]; rest != "" {
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
		case n.from == "auto" && tail == "i":
			base, tail = 1024, ""
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

func (n *numfmter) render(x float64, _ int) string {
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

package sh

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// sortKey is one -k of sort.
type sortKey struct {
	from, to     int // fields, from 1; to 0 is the end of the line
	numeric, rev bool
	fold, human  bool
}

func parseKey(s string, dflt sortKey) (sortKey, error) {
	k := dflt
	start, end, has := strings.Cut(s, ",")
	number := func(s string) (int, error) {
		i := 0
		for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
			i++
		}
		for _, l := range s[i:] {
			switch l {
			case 'n':
				k.numeric = true
			case 'r':
				k.rev = true
			case 'f':
				k.fold = true
			case 'h':
				k.human = true
			case 'b', 'd', 'i':
			default:
				return 0, errors.New("bad key")
			}
		}
		field, _, _ := strings.Cut(s[:i], ".")
		return strconv.Atoi(field)
	}
	var err error
	if k.from, err = number(start); err != nil || k.from < 1 {
		return k, errors.New("bad key")
	}
	if has {
		k.to, err = number(end)
	}
	return k, err
}

// of returns the part of a line that a key compares.
func (k sortKey) of(line, sep string) string {
	if k.from == 0 {
		return line
	}
	if sep != "" {
		f := strings.Split(line, sep)
		to := k.to
		if to == 0 || to > len(f) {
			to = len(f)
		}
		if k.from > to {
			return ""
		}
		return strings.Join(f[k.from-1:to], sep)
	}
	// Fields begin at the blanks before them.
	pos, field := 0, 0
	start := len(line)
	for pos < len(line) {
		begin := pos
		for pos < len(line) && (line[pos] == ' ' || line[pos] == '\t') {
			pos++
		}
		for pos < len(line) && line[pos] != ' ' && line[pos] != '\t' {
			pos++
		}
		if field++; field == k.from {
			start = begin
		}
		if k.to > 0 && field == k.to {
			return line[min(start, pos):pos]
		}
	}
	return line[start:]
}

// leadingNumber is what sort -n sees: a number at the front, else 0.
func leadingNumber(s string, human bool) float64 {
	s = strings.TrimLeft(s, " \t")
	i := 0
	if i < len(s) && s[i] == '-' {
		i++
	}
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	f, _ := strconv.ParseFloat(s[:i], 64) // what is no number counts as 0
	if human && i < len(s) {
		if p := strings.IndexByte("KMGTPE", s[i]&^0x20); p >= 0 {
			f *= math.Pow(1024, float64(p+1))
		}
	}
	return f
}

func (k sortKey) compare(a, b string) int {
	var d int
	switch {
	case k.numeric || k.human:
		d = cmp.Compare(leadingNumber(a, k.human), leadingNumber(b, k.human))
	case k.fold:
		d = strings.Compare(strings.ToUpper(a), strings.ToUpper(b))
	default:
		d = strings.Compare(a, b)
	}
	if k.rev {
		return -d
	}
	return d
}

func toolSort(c *call) int {
	f, ok := c.flags("nrufhbdiVscz:k:t:o:", "numeric-sort=n", "reverse=r", "unique=u", "key=k", "field-separator=t", "output=o", "human-numeric-sort=h")
	if !ok {
		return 2
	}
	base := sortKey{numeric: f.has('n'), rev: f.has('r'), fold: f.has('f'), human: f.has('h')}
	keys := []sortKey{}
	for i := 0; i < len(c.args); i++ { // -k may be given more than once
		a := c.args[i]
		if a == "-k" && i+1 < len(c.args) {
			a = "-k" + c.args[i+1]
		}
		if v, is := strings.CutPrefix(a, "-k"); is && v != "" {
			k, err := parseKey(v, sortKey{})
			if err != nil {
				return c.complain(2, "invalid key: %s", v)
			}
			if !k.numeric && !k.rev && !k.fold && !k.human {
				k.numeric, k.rev, k.fold, k.human = base.numeric, base.rev, base.fold, base.human
			}
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		keys = []sortKey{base}
	}
	lines, status := c.sortInput(f.args)
	sep := f.val['t']
	less := func(a, b string) int {
		for _, k := range keys {
			if d := k.compare(k.of(a, sep), k.of(b, sep)); d != 0 {
				return d
			}
		}
		return 0
	}
	last := func(a, b string) int {
		d := less(a, b)
		if d == 0 && !f.has('u') && !f.has('s') {
			if d = strings.Compare(a, b); base.rev {
				d = -d
			}
		}
		return d
	}
	if f.has('c') {
		if !sort.SliceIsSorted(lines, func(i, j int) bool { return last(lines[i], lines[j]) < 0 }) {
			return c.complain(1, "disorder")
		}
		return status
	}
	sort.SliceStable(lines, func(i, j int) bool { return last(lines[i], lines[j]) < 0 })
	w, done, err := c.output(f.val['o'])
	if err != nil {
		return c.complain(2, "%s: %s", f.val['o'], errText(err))
	}
	for i, l := range lines {
		if f.has('u') && i > 0 && less(lines[i-1], l) == 0 {
			continue
		}
		w.WriteString(l)
		w.WriteByte('\n')
	}
	return max(status, boolStatus(done() == nil))
}

// sortInput reads all lines.
func (c *call) sortInput(names []string) (lines []string, status int) {
	status = c.eachInput(names, func(_ string, in io.Reader) error {
		data, err := c.slurp(in)
		if err != nil || len(data) == 0 {
			return err
		}
		lines = append(lines, strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")...)
		c.r.pay(16 * len(lines))
		return nil
	})
	return lines, status
}

// output is a buffered standard output, or a file; done flushes and closes it.
func (c *call) output(name string) (w *bufio.Writer, done func() error, err error) {
	if name == "" {
		w = c.buffered()
		return w, w.Flush, nil
	}
	d, err := c.r.openFile(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate)
	if err != nil {
		return nil, nil, err
	}
	w = bufio.NewWriter(descWriter{c.r, d})
	return w, func() error { err := w.Flush(); d.drop(); return err }, nil
}

package sh

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
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

func toolUniq(c *call) int {
	f, ok := c.flags("cdui", "count=c", "repeated=d", "unique=u", "ignore-case=i")
	if !ok {
		return 1
	}
	w := c.buffered()
	var prev []byte
	n := 0
	emit := func() {
		if n == 0 || f.has('d') && n < 2 || f.has('u') && n > 1 {
			return
		}
		if f.has('c') {
			fmt.Fprintf(w, "%7d ", n)
		}
		w.Write(prev)
		w.WriteByte('\n')
	}
	same := bytes.Equal
	if f.has('i') {
		same = bytes.EqualFold
	}
	status := c.eachInput(f.args[:min(1, len(f.args))], func(_ string, in io.Reader) error {
		return c.eachLine(in, func(l []byte) error {
			if n > 0 && same(prev, l) {
				n++
				return nil
			}
			emit()
			prev, n = append(prev[:0], l...), 1
			return nil
		})
	})
	emit()
	return max(status, boolStatus(w.Flush() == nil))
}

// ranges are the lists of cut: 1,3-5,7-.
type ranges [][2]int

func parseRanges(s string) (ranges, error) {
	var out ranges
	for part := range strings.SplitSeq(s, ",") {
		a, b, has := strings.Cut(part, "-")
		r := [2]int{1, math.MaxInt}
		var err error
		if a != "" {
			r[0], err = strconv.Atoi(a)
		}
		if err == nil && b != "" {
			r[1], err = strconv.Atoi(b)
		}
		if !has {
			r[1] = r[0]
		}
		if err != nil || r[0] < 1 || r[1] < r[0] || a == "" && b == "" {
			return nil, fmt.Errorf("invalid range %q", part)
		}
		out = append(out, r)
	}
	return out, nil
}

func (r ranges) has(n int) bool {
	for _, x := range r {
		if n >= x[0] && n <= x[1] {
			return true
		}
	}
	return false
}

func toolCut(c *call) int {
	f, ok := c.flags("d:f:c:b:s", "delimiter=d", "fields=f", "characters=c", "bytes=b", "only-delimited=s", "output-delimiter=O")
	if !ok {
		return 1
	}
	delim := "\t"
	if f.has('d') {
		delim = f.val['d']
	}
	list := f.val['f'] + f.val['c'] + f.val['b']
	if list == "" {
		return c.complain(1, "you must specify a list of bytes, characters, or fields")
	}
	if f.has('f') && len(delim) != 1 {
		return c.complain(1, "the delimiter must be a single character")
	}
	rs, err := parseRanges(list)
	if err != nil {
		return c.complain(1, "%s", err)
	}
	outDelim := delim
	if f.has('O') {
		outDelim = f.val['O']
	}
	w := c.buffered()
	status := c.eachInput(f.args, func(_ string, in io.Reader) error {
		return c.eachLine(in, func(l []byte) error {
			line := string(l)
			switch {
			case !f.has('f'):
				for i := range len(line) {
					if rs.has(i + 1) {
						w.WriteByte(line[i])
					}
				}
			case !strings.Contains(line, delim):
				if f.has('s') {
					return nil
				}
				w.WriteString(line)
			default:
				first := true
				for i, p := range strings.Split(line, delim) {
					if !rs.has(i + 1) {
						continue
					}
					if !first {
						w.WriteString(outDelim)
					}
					w.WriteString(p)
					first = false
				}
			}
			return w.WriteByte('\n')
		})
	})
	return max(status, boolStatus(w.Flush() == nil))
}

// trSet expands tr's sets: ranges, classes, escapes.
func trSet(s string) []byte {
	s, _ = unescape(s, escDollar)
	var out []byte
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], "[:") {
			if e := strings.Index(s[i:], ":]"); e > 0 {
				for b := range 256 {
					if inClass(s[i+2:i+e], byte(b)) {
						out = append(out, byte(b))
					}
				}
				i += e + 1
				continue
			}
		}
		if i+2 < len(s) && s[i+1] == '-' && s[i+2] >= s[i] {
			for b := int(s[i]); b <= int(s[i+2]); b++ {
				out = append(out, byte(b))
			}
			i += 2
			continue
		}
		out = append(out, s[i])
	}
	return out
}

func inClass(name string, b byte) bool {
	lower, upper, digit := b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9'
	switch name {
	case "lower":
		return lower
	case "upper":
		return upper
	case "alpha":
		return lower || upper
	case "digit":
		return digit
	case "alnum":
		return lower || upper || digit
	case "xdigit":
		return digit || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F'
	case "space":
		return b == ' ' || b >= '\t' && b <= '\r'
	case "blank":
		return b == ' ' || b == '\t'
	case "punct":
		return b > ' ' && b < 0x7f && !lower && !upper && !digit
	case "cntrl":
		return b < ' ' || b == 0x7f
	case "print":
		return b >= ' ' && b < 0x7f
	case "graph":
		return b > ' ' && b < 0x7f
	}
	return false
}

func toolTr(c *call) int {
	f, ok := c.flags("cCds", "delete=d", "squeeze-repeats=s", "complement=c")
	if !ok {
		return 1
	}
	if len(f.args) == 0 || len(f.args) < 2 && !f.has('d') && !f.has('s') {
		return c.complain(1, "missing operand")
	}
	from := trSet(f.args[0])
	var in [256]bool
	for _, b := range from {
		in[b] = true
	}
	if f.has('c') || f.has('C') {
		from = from[:0]
		for b := range in {
			if in[b] = !in[b]; in[b] {
				from = append(from, byte(b))
			}
		}
	}
	var to [256]byte
	for b := range to {
		to[b] = byte(b)
	}
	squeeze := in
	if len(f.args) > 1 {
		set2 := trSet(f.args[1])
		squeeze = [256]bool{}
		for _, b := range set2 {
			squeeze[b] = true
		}
		if !f.has('d') {
			if len(set2) == 0 {
				return c.complain(1, "when not truncating set1, string2 must be non-empty")
			}
			for i, b := range from {
				to[b] = set2[min(i, len(set2)-1)]
			}
		}
	}
	buf := make([]byte, 32<<10)
	out := make([]byte, 0, len(buf))
	last := -1
	for {
		n, err := c.in.Read(buf)
		out = out[:0]
		for _, b := range buf[:n] {
			if f.has('d') && in[b] {
				continue
			}
			if !f.has('d') && in[b] {
				b = to[b]
			}
			if f.has('s') && squeeze[b] && int(b) == last {
				continue
			}
			last = int(b)
			out = append(out, b)
		}
		if _, werr := c.out.Write(out); werr != nil && len(out) > 0 {
			return 1
		}
		if err != nil {
			return boolStatus(err == io.EOF)
		}
	}
}

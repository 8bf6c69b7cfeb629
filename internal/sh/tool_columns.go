package sh

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

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

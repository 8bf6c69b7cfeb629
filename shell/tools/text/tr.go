package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// trItem is a part of a set of tr.
type trItem struct {
	chars  []byte
	class  string // of [:class:]
	equiv  bool   // [=c=]
	fill   bool   // [c*]
	repeat bool   // [c*n]
}

// parseSet parses a set.
func parseSet(s string) (out []trItem, err error) {
	type char struct {
		b       byte
		escaped bool
	}
	var cs []char
	const maxSet = 1 << 16 // limit on repeats; more than the number of bytes has no effect
	total := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			cs = append(cs, char{s[i], false})
			continue
		}
		i++
		if at := strings.IndexByte(`abfnrtv\`, s[i]); at >= 0 {
			cs = append(cs, char{"\a\b\f\n\r\t\v\\"[at], true})
			continue
		}
		if s[i] >= '0' && s[i] <= '7' {
			v, n := 0, 0
			for n < 3 && i < len(s) && s[i] >= '0' && s[i] <= '7' && v*8+int(s[i]-'0') <= 255 {
				v, n, i = v*8+int(s[i]-'0'), n+1, i+1
			}
			i--
			cs = append(cs, char{byte(v), true})
			continue
		}
		cs = append(cs, char{s[i], true})
	}
	is := func(i int, b byte) bool { return i < len(cs) && cs[i].b == b && !cs[i].escaped }
	text := func(from, to int) string {
		var b strings.Builder
		for _, c := range cs[from:to] {
			b.WriteByte(c.b)
		}
		return b.String()
	}
	for i := 0; i < len(cs); {
		if is(i, '[') && (is(i+1, ':') || is(i+1, '=')) {
			kind, end := cs[i+1].b, -1
			for j := i + 2; j+1 < len(cs); j++ {
				if is(j, kind) && is(j+1, ']') {
					end = j
					break
				}
			}
			if end >= 0 && (kind == ':' || end > i+2) {
				name := text(i+2, end)
				if kind == '=' {
					if len(name) == 1 {
						out = append(out, trItem{chars: []byte(name), equiv: true})
						i = end + 2
						continue
					}
					if !is(i+3, '*') {
						return nil, fmt.Errorf("%s: equivalence class operand must be a single character", name)
					}
				} else if members := class(name); members != nil {
					out = append(out, trItem{chars: members, class: name})
					i = end + 2
					continue
				} else if !is(i+2, '*') {
					return nil, fmt.Errorf("invalid character class ‘%s’", name)
				}
			}
		}
		if is(i, '[') && i+2 < len(cs) && is(i+2, '*') {
			end := i + 3
			for end < len(cs) && !is(end, ']') && !cs[end].escaped {
				end++
			}
			if is(end, ']') {
				num := text(i+3, end)
				if num == "" {
					out = append(out, trItem{chars: []byte{cs[i+1].b}, fill: true})
					i = end + 1
					continue
				}
				n, ok := repeatCount(num)
				if !ok {
					return nil, fmt.Errorf("invalid repeat count ‘%s’ in [c*n] construct", num)
				}
				if n == 0 {
					out = append(out, trItem{chars: []byte{cs[i+1].b}, fill: true})
				} else {
					n = min(n, maxSet-total)
					total += n
					out = append(out, trItem{chars: bytes.Repeat([]byte{cs[i+1].b}, n), repeat: true})
				}
				i = end + 1
				continue
			}
		}
		if is(i+1, '-') && i+2 < len(cs) {
			a, b := cs[i].b, cs[i+2].b
			if a > b {
				return nil, fmt.Errorf("range-endpoints of '%s-%s' are in reverse collating sequence order", showChar(a), showChar(b))
			}
			it := trItem{}
			for c := int(a); c <= int(b); c++ {
				it.chars = append(it.chars, byte(c))
			}
			out = append(out, it)
			i += 3
			continue
		}
		out = append(out, trItem{chars: []byte{cs[i].b}})
		i++
	}
	return out, nil
}

func showChar(c byte) string {
	if c < ' ' || c >= 0x7f {
		return fmt.Sprintf("\\%03o", c)
	}
	return string(c)
}

// repeatCount reads the n of [c*n]. With a leading zero it is octal. Any count above the number of
// bytes has the same effect.
func repeatCount(s string) (int, bool) {
	base := 10
	if s[0] == '0' {
		base = 8
	}
	n := 0
	for i := range len(s) {
		d := int(s[i]) - '0'
		if d < 0 || d >= base {
			return 0, false
		}
		n = min(n*base+d, 1<<16)
	}
	return n, true
}

// class returns the members of a character class, nil for an unknown one.
func class(name string) []byte {
	var in func(c byte) bool
	between := func(c, a, b byte) bool { return c >= a && c <= b }
	switch name {
	case "alnum":
		in = alnum
	case "alpha":
		in = func(c byte) bool { return alnum(c) && c > '9' }
	case "blank":
		in = func(c byte) bool { return c == ' ' || c == '\t' }
	case "cntrl":
		in = func(c byte) bool { return c < ' ' || c == 0x7f }
	case "digit":
		in = func(c byte) bool { return between(c, '0', '9') }
	case "graph":
		in = func(c byte) bool { return between(c, '!', '~') }
	case "lower":
		in = func(c byte) bool { return between(c, 'a', 'z') }
	case "print":
		in = func(c byte) bool { return between(c, ' ', '~') }
	case "punct":
		in = func(c byte) bool { return between(c, '!', '~') && !alnum(c) }
	case "space":
		in = func(c byte) bool { return space[c] }
	case "upper":
		in = func(c byte) bool { return between(c, 'A', 'Z') }
	case "xdigit":
		in = func(c byte) bool { return between(c, '0', '9') || between(c|0x20, 'a', 'f') }
	default:
		return nil
	}
	out := []byte{}
	for c := range 256 {
		if in(byte(c)) {
			out = append(out, byte(c))
		}
	}
	return out
}

// members joins the items, except fills.
func members(items []trItem) []byte {
	var out []byte
	for _, it := range items {
		if !it.fill {
			out = append(out, it.chars...)
		}
	}
	return out
}

func complementSet(set []byte) []byte {
	var out []byte
	for c := range 256 {
		if bytes.IndexByte(set, byte(c)) < 0 {
			out = append(out, byte(c))
		}
	}
	return out
}

// trTable makes the translation table.
func trTable(first, second []trItem, comp, truncate bool) (table [256]byte, err error) {
	for i := range table {
		table[i] = byte(i)
	}
	from := members(first)
	if comp {
		from = complementSet(from)
	}
	fills := 0
	at := 0
	for _, it := range second {
		switch {
		case it.fill:
			fills++
		case it.equiv:
			return table, errors.New("[=c=] expressions may not appear in string2 when translating")
		case it.class != "" && it.class != "upper" && it.class != "lower":
			return table, errors.New("when translating, the only character classes that may appear in\nstring2 are 'upper' and 'lower'")
		case it.class != "":
			if comp {
				return table, errors.New("when translating with complemented character classes,\nstring2 must map all characters in the domain to one")
			}
			if fills == 0 && !aligned(first, at) {
				return table, errors.New("misaligned [:upper:] and/or [:lower:] construct")
			}
		}
		at += len(it.chars)
	}
	if fills > 1 {
		return table, errors.New("only one [c*] repeat construct may appear in string2")
	}
	var to []byte
	for _, it := range second {
		if it.fill {
			to = append(to, bytes.Repeat(it.chars, max(len(from)-len(members(second)), 0))...)
			continue
		}
		to = append(to, it.chars...)
	}
	switch {
	case len(to) >= len(from):
	case truncate:
		from = from[:len(to)]
	case len(to) == 0:
		return table, errors.New("when not truncating set1, string2 must be non-empty")
	default:
		if last := second[len(second)-1]; last.class != "" {
			return table, errors.New("when translating with string1 longer than string2,\nthe latter string must not end with a character class")
		}
		to = append(to, bytes.Repeat(to[len(to)-1:], len(from)-len(to))...)
	}
	for i, c := range from {
		table[c] = to[i]
	}
	return table, nil
}

// aligned reports whether a case class begins at position at of the first set.
func aligned(first []trItem, at int) bool {
	n := 0
	for _, it := range first {
		if n == at {
			return it.class == "upper" || it.class == "lower"
		}
		n += len(it.chars)
	}
	return false
}

func tr(c *tool.Call) int {
	f, ok := c.Flags("+cCdst", "complement=c", "delete=d", "squeeze-repeats=s", "truncate-set1=t")
	if !ok {
		return 1
	}
	del, squeeze, comp := f.Has('d'), f.Has('s'), f.Has('c') || f.Has('C')
	want := 2
	if del != squeeze {
		want = 1
	}
	most := 2
	if del && !squeeze {
		most = 1
	}
	switch {
	case len(f.Args) == 0:
		return usage.Missing(c, 1)
	case len(f.Args) < want:
		c.Errorf(1, "missing operand after ‘%s’", f.Args[0])
		what := "Two strings must be given when translating."
		if del {
			what = "Two strings must be given when both deleting and squeezing repeats."
		}
		_, _ = io.WriteString(c.Err, what+"\n") // a message
		return usage.Try(c, 1)
	case len(f.Args) > most:
		c.Errorf(1, "extra operand ‘%s’", f.Args[most])
		if most == 1 {
			_, _ = io.WriteString(c.Err, "Only one string may be given when deleting without squeezing repeats.\n") // a message
		}
		return usage.Try(c, 1)
	}
	var sets [2][]trItem
	for i, a := range f.Args {
		var err error
		if sets[i], err = parseSet(a); err != nil {
			return c.Errorf(1, "%v", err)
		}
	}
	for _, it := range sets[0] {
		if it.fill {
			return c.Errorf(1, "the [c*] repeat construct may not appear in string1")
		}
	}
	translate := !del && len(f.Args) == 2
	t := &translator{}
	for i := range t.table {
		t.table[i] = byte(i)
	}
	set := members(sets[0])
	if comp {
		set = complementSet(set)
	}
	var squeezed []byte
	switch {
	case translate:
		var err error
		if t.table, err = trTable(sets[0], sets[1], comp, f.Has('t')); err != nil {
			return c.Errorf(1, "%v", err)
		}
		squeezed = members(sets[1])
		for _, it := range sets[1] {
			if it.fill {
				squeezed = append(squeezed, it.chars...)
			}
		}
	case del:
		t.dels = true
		for _, b := range set {
			t.del[b] = true
		}
		squeezed = members(sets[1])
	default:
		squeezed = set
	}
	if squeeze {
		t.squeezes = true
		for _, b := range squeezed {
			t.squeeze[b] = true
		}
	}
	return t.run(c)
}

// translator runs tr on blocks.
type translator struct {
	table          [256]byte
	del, squeeze   [256]bool
	dels, squeezes bool
	last           int // the last written byte, if it may be squeezed
}

func (t *translator) run(c *tool.Call) int {
	t.last = -1
	buf := make([]byte, 64<<10)
	for {
		n, err := c.In.Read(buf)
		if !c.Step(1 + n>>8) {
			return 1
		}
		if _, werr := c.Out.Write(t.block(buf[:n])); werr != nil {
			if !c.Stopped(werr) {
				c.Errorf(1, "write error: %s", tool.ErrText(werr))
			}
			return 1
		}
		if err == io.EOF {
			return 0
		}
		if err != nil {
			return c.Errorf(1, "read error: %s", tool.ErrText(err))
		}
	}
}

// block changes a block in place.
func (t *translator) block(b []byte) []byte {
	if !t.dels && !t.squeezes {
		for i, c := range b {
			b[i] = t.table[c]
		}
		return b
	}
	n := 0
	for _, c := range b {
		if t.dels && t.del[c] {
			continue
		}
		c = t.table[c]
		if t.squeezes && t.squeeze[c] {
			if t.last == int(c) {
				continue
			}
			t.last = int(c)
		} else {
			t.last = -1
		}
		b[n] = c
		n++
	}
	return b[:n]
}

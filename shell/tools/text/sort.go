package text

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// sortLine is a line of a sorter's data, with the values that decide most comparisons.
type sortLine struct {
	prefix     uint64 // the first key's beginning, in a form that keeps the order
	start, end uint32 // in data, without its end
	from, to   uint32 // the first key
}

// sorter is one run of sort.
type sorter struct {
	c       *tool.Call
	purse   *usage.Purse
	keys    []sortKey
	all     ordering // the options outside of keys
	tab     int      // -1: blanks part fields
	end     byte
	unique  bool
	stable  bool
	data    []byte
	lines   []sortLine
	salt    uint64
	n       int // comparisons since the last Step
	stopped bool
}

var sortLong = []string{"ignore-leading-blanks=b", "check=\x81::", "dictionary-order=d", "debug=\x82", "ignore-case=f", "files0-from=\x83:", "general-numeric-sort=g",
	"ignore-nonprinting=i", "key=k", "merge=m", "month-sort=M", "numeric-sort=n", "human-numeric-sort=h", "version-sort=V", "random-sort=R", "random-source=\x84:",
	"sort=\x85:", "output=o", "reverse=r", "stable=s", "batch-size=\x86:", "buffer-size=S", "field-separator=t", "temporary-directory=T", "unique=u",
	"zero-terminated=z", "parallel=\x87:", "compress-program=\x88:"}

func sortCommand(c *tool.Call) int {
	f, ok := c.Flags("bcCdfghik:mMno:rRsS:t:T:uVz", sortLong...)
	if !ok {
		return 2
	}
	s := &sorter{c: c, purse: usage.NewPurse(c), tab: -1, end: '\n'}
	defer s.purse.Free()
	if status := s.options(f); status != 0 {
		return status
	}
	names := f.Args
	if f.Has('\x83') {
		if len(names) > 0 {
			c.Errorf(2, "extra operand '%s'", names[0])
			fmt.Fprintln(c.Err, "file operands cannot be combined with --files0-from")
			return usage.Try(c, 2)
		}
		in, err := usage.Open(c, f.Value('\x83', ""))
		if err != nil {
			return c.Errorf(2, "open failed: %s: %s", f.Value('\x83', ""), tool.ErrText(err))
		}
		list, err := s.purse.ReadAll(in)
		_ = in.Close() // only read
		if err != nil {
			return 2
		}
		names = strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	}
	if f.Has('c') || f.Has('C') || f.Has('\x81') {
		if len(names) > 1 {
			return usageExtra(c, names[1])
		}
		quiet := f.Has('C') || f.Value('\x81', "") == "quiet" || f.Value('\x81', "") == "silent"
		return s.check(names, quiet)
	}
	var pieces []int // ends of the inputs' lines, for -m
	for _, name := range append(slices.Clip(names), []string{"-"}[min(len(names), 1):]...) {
		if err := s.read(name); err != nil {
			if c.Stopped(err) {
				return 2
			}
			return c.Errorf(2, "cannot read: %s: %s", name, tool.ErrText(err))
		}
		pieces = append(pieces, len(s.lines))
	}
	s.prepare()
	if f.Has('m') {
		s.merge(pieces)
	} else {
		slices.SortFunc(s.lines, func(a, b sortLine) int { return s.order(&a, &b) })
	}
	if s.stopped {
		return 2
	}
	return s.write(f.Value('o', ""))
}

func usageExtra(c *tool.Call, name string) int {
	return c.Errorf(2, "extra operand '%s' not allowed with -c", name)
}

// options reads the options. A result other than 0 is the exit status.
func (s *sorter) options(f tool.Flags) int {
	c := s.c
	for _, o := range f.All {
		switch o.Letter {
		case 'k':
			k, err := parseKey(o.Value)
			if err != nil {
				return c.Errorf(2, "%v", err)
			}
			s.keys = append(s.keys, k)
		case 't':
			switch {
			case o.Value == "":
				return c.Errorf(2, "empty tab")
			case o.Value == `\0`:
				s.tab = 0
			case len(o.Value) > 1:
				return c.Errorf(2, "multi-character tab ‘%s’", o.Value)
			default:
				s.tab = int(o.Value[0])
			}
		case 'z':
			s.end = 0
		case 'u':
			s.unique = true
		case 's':
			s.stable = true
		case '\x85':
			words := map[string]byte{"general-numeric": 'g', "human-numeric": 'h', "month": 'M', "numeric": 'n', "random": 'R', "version": 'V'}
			l, ok := words[o.Value]
			if !ok {
				return c.Errorf(2, "invalid argument ‘%s’ for ‘--sort’", o.Value)
			}
			s.all.set(l)
		default:
			s.all.set(o.Letter)
		}
	}
	for i := range s.keys {
		if k := &s.keys[i]; k.ordering == (ordering{}) && !k.blanksStart && !k.blanksEnd {
			k.ordering = s.all
			k.blanksStart, k.blanksEnd = s.all.blanks, s.all.blanks
		}
		if err := s.keys[i].incompatible(); err != "" {
			return c.Errorf(2, "options '-%s' are incompatible", err)
		}
	}
	if len(s.keys) == 0 {
		if err := s.all.incompatible(); err != "" {
			return c.Errorf(2, "options '-%s' are incompatible", err)
		}
		whole := s.all
		whole.reverse = false
		if whole != (ordering{}) {
			s.keys = []sortKey{{ordering: s.all, whole: true, endWord: -1, blanksStart: s.all.blanks, blanksEnd: s.all.blanks}}
		}
	}
	var salt [8]byte
	c.Random(salt[:])
	for _, b := range salt {
		s.salt = s.salt<<8 | uint64(b)
	}
	return 0
}

// read adds the lines of an input.
func (s *sorter) read(name string) error {
	in, err := usage.Open(s.c, name)
	if err != nil {
		return err
	}
	data, err := s.purse.ReadAll(in)
	_ = in.Close() // only read
	if err != nil {
		return err
	}
	if len(data) > 0 && data[len(data)-1] != s.end {
		data = append(data, s.end)
	}
	base := len(s.data)
	if base == 0 {
		s.data = data
	} else {
		if err := s.purse.Pay(len(data)); err != nil {
			return err
		}
		s.data = append(s.data, data...)
	}
	if len(s.data) > 1<<32-1 {
		return fmt.Errorf("more than 4 GiB")
	}
	n := bytes.Count(data, []byte{s.end})
	if err := s.purse.Pay(n * 24); err != nil {
		return err
	}
	s.lines = slices.Grow(s.lines, n)
	for at := base; at < len(s.data); {
		end := at + bytes.IndexByte(s.data[at:], s.end)
		s.lines = append(s.lines, sortLine{start: uint32(at), end: uint32(end)})
		at = end + 1
	}
	return nil
}

// prepare finds the first key of every line.
func (s *sorter) prepare() {
	for i := range s.lines {
		if i%1024 == 0 && !s.c.Step(1024) {
			s.stopped = true
			return
		}
		s.index(&s.lines[i])
	}
}

func (s *sorter) index(l *sortLine) {
	line := s.data[l.start:l.end]
	l.from, l.to = l.start, l.end
	if len(s.keys) == 0 {
		l.prefix = bytesPrefix(line)
		return
	}
	k := &s.keys[0]
	from, to := k.bounds(line, s.tab)
	l.from, l.to = l.start+uint32(from), l.start+uint32(to)
	l.prefix = k.prefix(line[from:to])
}

// order compares two lines by all criteria. The last is the position in the input.
func (s *sorter) order(a, b *sortLine) int {
	if s.n++; s.n&0xfff == 0 && !s.c.Step(0x1000) {
		s.stopped = true
	}
	if s.stopped {
		return 0
	}
	if d := s.equal(a, b); d != 0 {
		return d
	}
	if !s.stable && !s.unique && len(s.keys) > 0 {
		if d := bytes.Compare(s.data[a.start:a.end], s.data[b.start:b.end]); d != 0 {
			if s.all.reverse {
				return -d
			}
			return d
		}
	}
	if a.start < b.start {
		return -1
	}
	if a.start > b.start {
		return 1
	}
	return 0
}

// equal compares two lines only by their keys.
func (s *sorter) equal(a, b *sortLine) int {
	if len(s.keys) == 0 {
		d := 0
		switch {
		case a.prefix < b.prefix:
			d = -1
		case a.prefix > b.prefix:
			d = 1
		default:
			d = bytes.Compare(s.data[a.start:a.end], s.data[b.start:b.end])
		}
		if s.all.reverse {
			return -d
		}
		return d
	}
	k := &s.keys[0]
	d := 0
	pa, pb := a.prefix, b.prefix
	if k.kind != 0 { // the last bit of the prefix is not part of the order
		pa, pb = pa>>1, pb>>1
	}
	switch {
	case pa < pb:
		d = -1
	case pa > pb:
		d = 1
	case !k.exact(a.prefix & b.prefix):
		d = k.compare(s.data[a.from:a.to], s.data[b.from:b.to], s.salt)
	}
	if d != 0 {
		if k.reverse {
			return -d
		}
		return d
	}
	for i := 1; i < len(s.keys); i++ {
		k := &s.keys[i]
		la, lb := s.data[a.start:a.end], s.data[b.start:b.end]
		af, at := k.bounds(la, s.tab)
		bf, bt := k.bounds(lb, s.tab)
		if d := k.compare(la[af:at], lb[bf:bt], s.salt); d != 0 {
			if k.reverse {
				return -d
			}
			return d
		}
	}
	return 0
}

// merge merges inputs that are already sorted.
func (s *sorter) merge(ends []int) {
	heads := make([]int, len(ends))
	for i := 1; i < len(ends); i++ {
		heads[i] = ends[i-1]
	}
	out := make([]sortLine, 0, len(s.lines))
	if s.purse.Pay(cap(out)*24) != nil {
		s.stopped = true
		return
	}
	for len(out) < len(s.lines) && !s.stopped {
		best := -1
		for i, h := range heads {
			if h < ends[i] && (best < 0 || s.order(&s.lines[h], &s.lines[heads[best]]) < 0) {
				best = i
			}
		}
		out = append(out, s.lines[heads[best]])
		heads[best]++
	}
	s.lines = out
}

// write writes the result.
func (s *sorter) write(name string) int {
	w := s.c.Buffered()
	if name != "" {
		file, err := s.c.Open(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			return s.c.Errorf(2, "open failed: %s: %s", name, tool.ErrText(err))
		}
		defer func() { _ = file.Close() }() // the flush reports
		w.Reset(file)
	}
	for i := range s.lines {
		l := &s.lines[i]
		if i%1024 == 0 && !s.c.Step(1024) {
			return 2
		}
		if s.unique && i > 0 && s.equal(&s.lines[i-1], l) == 0 {
			// Keep the first line of a run of equal ones.
			s.lines[i] = s.lines[i-1]
			continue
		}
		if _, err := w.Write(s.data[l.start : l.end+1]); err != nil {
			break
		}
	}
	if s.c.Flush(w, 0) != 0 {
		return 2
	}
	return 0
}

// check checks whether the input is sorted.
func (s *sorter) check(names []string, quiet bool) int {
	name := "-"
	if len(names) > 0 {
		name = names[0]
	}
	if err := s.read(name); err != nil {
		if s.c.Stopped(err) {
			return 2
		}
		return s.c.Errorf(2, "cannot read: %s: %s", name, tool.ErrText(err))
	}
	s.prepare()
	for i := 1; i < len(s.lines); i++ {
		a, b := &s.lines[i-1], &s.lines[i]
		d := s.equal(a, b)
		if d == 0 && !s.unique && !s.stable && len(s.keys) > 0 {
			d = bytes.Compare(s.data[a.start:a.end], s.data[b.start:b.end])
			if s.all.reverse {
				d = -d
			}
		}
		if d > 0 || d == 0 && s.unique {
			if !quiet {
				s.c.Errorf(1, "%s:%s: disorder: %s", name, strconv.Itoa(i+1), s.data[b.start:b.end])
			}
			return 1
		}
		if i%1024 == 0 && !s.c.Step(1024) {
			return 2
		}
	}
	return 0
}

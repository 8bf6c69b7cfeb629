package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// joinLine is a line in fields.
type joinLine struct {
	line   []byte
	fields [][]byte
}

// joinSide is one input of join.
type joinSide struct {
	p      *puller
	field  int        // counted from 0
	group  []joinLine // lines of one key
	ahead  *joinLine  // the line after them
	prev   []byte     // the key of the group before
	name   string
	n      int // the number of the line ahead
	warned bool
	eof    bool
}

// joiner is one run of join.
type joiner struct {
	c            *tool.Call
	w            io.Writer
	side         [2]*joinSide
	tab          int // -1: blanks, '\n': the whole line is one field
	fold         bool
	unpaired     [2]bool
	noPairs      bool
	empty        []byte
	auto         bool
	autoCount    [2]int
	format       [][2]int // side and field; side -1 is the key
	end          byte
	strict, lax  bool
	seenUnpaired bool
	status       int
	out          []byte
	err          error
}

func (j *joiner) split(l []byte) joinLine {
	line := bytes.Clone(l)
	var fields [][]byte
	switch {
	case j.tab == '\n':
		fields = [][]byte{line}
	case j.tab >= 0:
		fields = bytes.Split(line, []byte{byte(j.tab)})
	default:
		skip := func(b []byte) []byte {
			for len(b) > 0 && blank(b[0]) {
				b = b[1:]
			}
			return b
		}
		for rest := skip(line); len(line) > 0; {
			i := 0
			for i < len(rest) && !blank(rest[i]) {
				i++
			}
			fields = append(fields, rest[:i]) // an empty field after blanks at the end
			if i == len(rest) {
				break
			}
			rest = skip(rest[i:])
		}
	}
	return joinLine{line, fields}
}

func (l *joinLine) at(n int) []byte {
	if n < len(l.fields) {
		return l.fields[n]
	}
	return nil
}

func (j *joiner) compare(a, b []byte) int {
	if j.fold {
		a, b = bytes.ToUpper(a), bytes.ToUpper(b)
	}
	return bytes.Compare(a, b)
}

// read reads the next line of a side into ahead, which is nil at the end.
func (j *joiner) read(i int) {
	s := j.side[i]
	l, _, err := s.p.next()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			j.err = err
		}
		s.ahead, s.eof = nil, true
		return
	}
	line := j.split(l)
	s.n++
	s.ahead = &line
}

// check writes a message, only once, when the line ahead belongs before lines that were already
// read.
func (j *joiner) check(i int) {
	s := j.side[i]
	if s.ahead == nil || s.prev == nil || s.warned || j.lax || !j.strict && !j.seenUnpaired || j.compare(s.prev, s.ahead.at(s.field)) <= 0 {
		return
	}
	s.warned = true
	j.status = j.c.Errorf(1, "%s:%d: is not sorted: %s", s.name, s.n, s.ahead.line)
	if j.strict {
		j.err = tool.ErrStop
	}
}

// fill collects all lines of one side with the next key.
func (j *joiner) fill(i int) {
	s := j.side[i]
	s.group = s.group[:0]
	if s.ahead == nil {
		return
	}
	if j.check(i); j.err != nil {
		s.group = s.group[:0]
		return
	}
	s.prev = append([]byte{}, s.ahead.at(s.field)...)
	s.group = append(s.group, *s.ahead)
	j.read(i)
	for j.err == nil && s.ahead != nil && j.compare(s.ahead.at(s.field), s.group[0].at(s.field)) == 0 {
		if j.err = j.c.Pay(int64(len(s.ahead.line)) + 64); j.err != nil {
			return
		}
		s.group = append(s.group, *s.ahead)
		j.read(i)
	}
}

// add appends one output field.
func (j *joiner) add(b []byte, first bool) {
	if !first {
		sep := byte(' ')
		if j.tab >= 0 {
			sep = byte(j.tab)
		}
		j.out = append(j.out, sep)
	}
	if len(b) == 0 {
		b = j.empty
	}
	j.out = append(j.out, b...)
}

// put prints a pair, or a single line: then the other is nil.
func (j *joiner) put(a, b *joinLine) {
	j.out = j.out[:0]
	pair := [2]*joinLine{a, b}
	key := func() []byte {
		if a != nil {
			return a.at(j.side[0].field)
		}
		return b.at(j.side[1].field)
	}
	if j.format != nil {
		for n, f := range j.format {
			switch {
			case f[0] < 0:
				j.add(key(), n == 0)
			case pair[f[0]] == nil:
				j.add(nil, n == 0)
			default:
				j.add(pair[f[0]].at(f[1]), n == 0)
			}
		}
	} else {
		j.add(key(), true)
		for i, l := range pair {
			if l == nil && !j.auto {
				continue
			}
			n := 0
			if l != nil {
				n = len(l.fields)
			}
			if j.auto {
				n = j.autoCount[i]
			}
			for k := range n {
				if k == j.side[i].field {
					continue
				}
				if l == nil {
					j.add(nil, false)
				} else {
					j.add(l.at(k), false)
				}
			}
		}
	}
	j.out = append(j.out, j.end)
	if _, err := j.w.Write(j.out); err != nil {
		j.err = err
	}
}

// alone prints the lines of a side without a partner.
func (j *joiner) alone(i int) {
	if !j.unpaired[i] {
		return
	}
	for k := range j.side[i].group {
		if i == 0 {
			j.put(&j.side[0].group[k], nil)
		} else {
			j.put(nil, &j.side[1].group[k])
		}
	}
}

// unpairable skips lines without a partner. It reads the line after the first one before disorder
// matters.
func (j *joiner) unpairable(i int) {
	j.alone(i)
	j.seenUnpaired = j.seenUnpaired || len(j.side[i].group) > 1
	j.fill(i)
	j.seenUnpaired = true
}

// run joins the lines of both sides.
func (j *joiner) run() {
	j.fill(0)
	j.fill(1)
	a, b := j.side[0], j.side[1]
	for j.err == nil && len(a.group) > 0 && len(b.group) > 0 {
		switch d := j.compare(a.group[0].at(a.field), b.group[0].at(b.field)); {
		case d < 0:
			j.unpairable(0)
		case d > 0:
			j.unpairable(1)
		default:
			for i := range j.side {
				if j.check(i); j.err != nil {
					return
				}
			}
			if !j.noPairs {
				for x := range a.group {
					for y := range b.group {
						if j.put(&a.group[x], &b.group[y]); j.err != nil {
							return
						}
					}
					if !j.c.Step(len(b.group)) {
						j.err = tool.ErrStop
						return
					}
				}
			}
			j.fill(0)
			j.fill(1)
		}
	}
	for i, s := range j.side {
		for j.err == nil && len(s.group) > 0 {
			j.alone(i)
			j.fill(i)
		}
	}
}

func join(c *tool.Call) int {
	f, ok := c.Flags("a:e:i1:2:j:o:t:v:z\x81\x82\x83", "ignore-case=i", "check-order=\x81", "nocheck-order=\x82", "header=\x83", "zero-terminated=z")
	if !ok {
		return 1
	}
	j := &joiner{c: c, tab: -1, end: '\n', fold: f.Has('i'), strict: f.Has('\x81'), lax: f.Has('\x82'), empty: []byte(f.Value('e', ""))}
	if f.Has('z') {
		j.end = 0
	}
	fields := [2]int{}
	for _, o := range f.All {
		if err := j.option(o, &fields, &f.Args); err != nil {
			return c.Errorf(1, "%v", err)
		}
	}
	switch {
	case len(f.Args) == 0:
		return usage.Missing(c, 1)
	case len(f.Args) == 1:
		c.Errorf(1, "missing operand after ‘%s’", f.Args[0])
		return usage.Try(c, 1)
	case len(f.Args) > 2:
		return usage.Extra(c, 1, f.Args[2])
	}
	if f.Args[0] == "-" && f.Args[1] == "-" {
		return c.Errorf(1, "both files cannot be standard input")
	}
	for i, name := range f.Args {
		in, err := usage.Open(c, name)
		if err != nil {
			return c.Errorf(1, "%s: %s", name, tool.ErrText(err))
		}
		defer func() { _ = in.Close() }() // only read
		j.side[i] = &joinSide{p: newPuller(c, in, j.end), field: fields[i], name: name}
	}
	w := c.Buffered()
	j.w = w
	j.read(0)
	j.read(1)
	for i, s := range j.side {
		if s.ahead != nil {
			j.autoCount[i] = len(s.ahead.fields)
		}
	}
	if f.Has('\x83') {
		a, b := j.side[0].ahead, j.side[1].ahead
		if a != nil || b != nil {
			j.put(a, b)
		}
		for i, s := range j.side {
			if s.ahead != nil {
				j.read(i)
			}
		}
	}
	j.run()
	if j.err != nil && !c.Stopped(j.err) {
		return c.Errorf(1, "read error: %s", tool.ErrText(j.err))
	}
	if j.status != 0 && !j.strict {
		_ = w.Flush() // the flush at the end reports
		c.Errorf(1, "input is not in sorted order")
	}
	return c.Flush(w, j.status)
}

// option reads one option.
func (j *joiner) option(o tool.Flag, fields *[2]int, args *[]string) error {
	file := func() (int, error) {
		if o.Value != "1" && o.Value != "2" {
			return 0, fmt.Errorf("invalid field number: ‘%s’", o.Value)
		}
		return int(o.Value[0] - '1'), nil
	}
	field := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if errors.Is(err, strconv.ErrRange) && n > 0 {
			err = nil // no line has that many
		}
		if err != nil || n < 1 {
			return 0, fmt.Errorf("invalid field number: ‘%s’", s)
		}
		return n - 1, nil
	}
	switch o.Letter {
	case 'a', 'v':
		n, err := file()
		if err != nil {
			return err
		}
		j.unpaired[n] = true
		j.noPairs = j.noPairs || o.Letter == 'v'
	case '1', '2', 'j':
		n, err := field(o.Value)
		if err != nil {
			return err
		}
		if o.Letter != '2' {
			fields[0] = n
		}
		if o.Letter != '1' {
			fields[1] = n
		}
	case 't':
		switch {
		case o.Value == "":
			j.tab = '\n'
		case o.Value == `\0`:
			j.tab = 0
		case len(o.Value) > 1:
			return fmt.Errorf("multi-character tab ‘%s’", o.Value)
		default:
			j.tab = int(o.Value[0])
		}
	case 'o':
		if o.Value == "auto" {
			j.auto = true
			return nil
		}
		for len(*args) > 0 && isFieldList((*args)[0]) && len(*args) > 2 {
			o.Value += "," + (*args)[0]
			*args = (*args)[1:]
		}
		for p := range strings.FieldsFuncSeq(o.Value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
			if p == "0" {
				j.format = append(j.format, [2]int{-1, 0})
				continue
			}
			side, num, found := strings.Cut(p, ".")
			if side != "1" && side != "2" || !found {
				return fmt.Errorf("invalid file number in field spec: ‘%s’", p)
			}
			n, err := field(num)
			if err != nil {
				return err
			}
			j.format = append(j.format, [2]int{int(side[0] - '1'), n})
		}
	}
	return nil
}

// isFieldList reports whether an operand continues -o, as POSIX allows.
func isFieldList(s string) bool {
	return len(s) > 2 && (s[0] == '1' || s[0] == '2') && s[1] == '.' && strings.Trim(s, "012.,3456789") == "" || s == "0"
}

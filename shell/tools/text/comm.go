package text

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// sortedInput is one of two sorted inputs.
type sortedInput struct {
	*puller
	line, prev, before []byte // the last three
	has, seen, had     bool   // which of them there are
	bad                bool   // it was found not to be sorted
	err                error
}

// openSorted opens one input of comm.
func openSorted(c *tool.Call, name string, end byte) (*sortedInput, func(), error) {
	in, err := usage.Open(c, name)
	if err != nil {
		return nil, nil, err
	}
	return &sortedInput{puller: newPuller(c, in, end)}, func() { _ = in.Close() }, nil // only read
}

// advance reads the next line, and reports whether it is in order.
func (s *sortedInput) advance() bool {
	s.before, s.had = append(s.before[:0], s.prev...), s.seen
	s.prev, s.seen = append(s.prev[:0], s.line...), s.has
	l, _, err := s.next()
	s.has = err == nil
	s.line = append(s.line[:0], l...)
	if err != nil && err != io.EOF {
		s.err = err
	}
	if !s.has && s.had && s.seen { // check the last two lines again: they may have been read before their order mattered
		return bytes.Compare(s.before, s.prev) <= 0
	}
	return !s.has || !s.seen || bytes.Compare(s.prev, s.line) <= 0
}

func comm(c *tool.Call) int {
	f, ok := c.Flags("123z\x81\x82\x83:\x84", "check-order=\x81", "nocheck-order=\x82", "output-delimiter=\x83", "total=\x84", "zero-terminated=z")
	if !ok {
		return 1
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
	end := byte('\n')
	if f.Has('z') {
		end = 0
	}
	delim := f.Value('\x83', "\t")
	if f.Has('\x83') && delim == "" {
		delim = "\x00"
	}
	var in [2]*sortedInput
	for i, name := range f.Args {
		s, done, err := openSorted(c, name, end)
		if err != nil {
			return c.Errorf(1, "%s: %s", name, tool.ErrText(err))
		}
		defer done()
		in[i] = s
	}
	w := c.Buffered()
	strict, lax := f.Has('\x81'), f.Has('\x82')
	unpaired, status := false, 0
	step := func(i int) bool {
		if in[i].advance() || lax || in[i].bad || !strict && !unpaired {
			return in[i].err == nil
		}
		in[i].bad = true
		status = c.Errorf(1, "file %d is not in sorted order", i+1)
		return !strict
	}
	var prefix [3]string
	if !f.Has('1') {
		prefix[1] += delim
		prefix[2] += delim
	}
	if !f.Has('2') {
		prefix[2] += delim
	}
	var total [3]int
	put := func(col int, line []byte) bool {
		total[col]++
		if f.Has("123"[col]) {
			return true
		}
		_, _ = w.WriteString(prefix[col]) // the last one reports
		_, _ = w.Write(line)
		return w.WriteByte(end) == nil
	}
	going := step(0) && step(1)
	for going && (in[0].has || in[1].has) {
		d := 0
		switch {
		case !in[0].has:
			d = 1
		case !in[1].has:
			d = -1
		default:
			d = bytes.Compare(in[0].line, in[1].line)
		}
		switch {
		case d == 0:
			going = put(2, in[0].line) && step(0) && step(1)
		case d < 0:
			unpaired = true
			going = put(0, in[0].line) && step(0)
		default:
			unpaired = true
			going = put(1, in[1].line) && step(1)
		}
	}
	for i, s := range in {
		if s.err != nil {
			if c.Stopped(s.err) {
				return 1
			}
			status = c.Errorf(1, "%s: %s", f.Args[i], tool.ErrText(s.err))
		}
	}
	if f.Has('\x84') && going {
		fmt.Fprintf(w, "%s%s%s%s%s%stotal%c", strconv.Itoa(total[0]), delim, strconv.Itoa(total[1]), delim, strconv.Itoa(total[2]), delim, end)
	}
	if status != 0 && !strict {
		_ = w.Flush() // the flush at the end reports
		c.Errorf(1, "input is not in sorted order")
	}
	return c.Flush(w, status)
}

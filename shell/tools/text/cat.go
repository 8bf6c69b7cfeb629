package text

import (
	"bytes"
	"io"
	"strconv"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// copyAll copies in to c.Out.
func copyAll(c *tool.Call, out io.Writer, in io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if !c.Step(1 + n>>10) {
				return tool.ErrStop
			}
			if _, werr := out.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// catter is the state of cat from file to file.
type catter struct {
	number, nonblank, squeeze bool
	ends, tabs, control       bool

	line    int
	blanks  int  // empty lines so far in a row
	midLine bool // the last file did not end with a newline
	buf     []byte
}

func cat(c *tool.Call) int {
	f, ok := c.Flags("AbeEnstTuv", "show-all=A", "number-nonblank=b", "show-ends=E", "number=n", "squeeze-blank=s",
		"show-tabs=T", "show-nonprinting=v")
	if !ok {
		return 1
	}
	t := &catter{number: f.Has('n') && !f.Has('b'), nonblank: f.Has('b'), squeeze: f.Has('s'),
		ends: f.Has('A') || f.Has('E') || f.Has('e'), tabs: f.Has('A') || f.Has('T') || f.Has('t'),
		control: f.Has('A') || f.Has('v') || f.Has('e') || f.Has('t')}
	if !t.number && !t.nonblank && !t.squeeze && !t.ends && !t.tabs && !t.control {
		return usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error { return copyAll(c, c.Out, in) })
	}
	w := c.Buffered()
	status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
		err := c.Lines(in, '\n', func(l []byte, whole bool) error {
			t.render(l, whole)
			_, err := w.Write(t.buf)
			return err
		})
		if ferr := w.Flush(); err == nil {
			err = ferr
		}
		return err
	})
	return c.Flush(w, status)
}

// render puts a line into buf in the form in which it is printed.
func (t *catter) render(l []byte, whole bool) {
	b := t.buf[:0]
	defer func() { t.buf = b }()
	if len(l) == 0 && !t.midLine {
		if t.blanks++; t.squeeze && t.blanks > 1 {
			return
		}
	} else {
		t.blanks = 0
	}
	if !t.midLine && (t.number || t.nonblank && len(l) > 0) {
		t.line++
		n := strconv.Itoa(t.line)
		for range 6 - len(n) {
			b = append(b, ' ')
		}
		b = append(append(b, n...), '\t')
	}
	if !t.control && !t.tabs {
		b = append(b, l...)
		if t.ends && whole && len(l) > 0 && l[len(l)-1] == '\r' {
			b = append(b[:len(b)-1], "^M"...)
		}
	} else {
		for _, c := range l {
			b = t.show(b, c)
		}
	}
	if whole {
		if t.ends {
			b = append(b, '$')
		}
		b = append(b, '\n')
	}
	t.midLine = !whole
}

// show appends one byte in the notation of -v.
func (t *catter) show(b []byte, c byte) []byte {
	if c == '\t' {
		if t.tabs {
			return append(b, "^I"...)
		}
		return append(b, c)
	}
	if !t.control {
		return append(b, c)
	}
	if c >= 0x80 {
		b = append(b, "M-"...)
		c -= 0x80
	}
	switch {
	case c < 0x20:
		return append(b, '^', c+'@')
	case c == 0x7f:
		return append(b, "^?"...)
	}
	return append(b, c)
}

func tac(c *tool.Call) int {
	f, ok := c.Flags("brs:", "before=b", "regex=r", "separator=s")
	if !ok {
		return 1
	}
	sep := f.Value('s', "\n")
	if sep == "" {
		if f.Has('r') {
			return c.Errorf(1, "separator cannot be empty")
		}
		sep = "\x00"
	}
	var re *bre
	if f.Has('r') {
		var err error
		if re, err = compileBRE(sep); err != nil {
			return c.Errorf(1, "%v", err)
		}
	}
	w := c.Buffered()
	status := usage.Inputs(c, f.Args, "failed to open '%s' for reading", 1, func(_ string, in io.Reader) error {
		purse := usage.NewPurse(c)
		defer purse.Free()
		data, err := purse.ReadAll(in)
		if err != nil {
			return err
		}
		find := func(d []byte) (int, int) {
			at := bytes.LastIndex(d, []byte(sep))
			return at, at + len(sep)
		}
		if re != nil {
			find = func(d []byte) (int, int) { return re.last(c, d) }
		}
		return tacData(c, w, data, f.Has('b'), find)
	})
	return c.Flush(w, status)
}

// tacData writes the pieces of data from the last to the first. find returns the last separator in
// its argument.
func tacData(c *tool.Call, w io.Writer, data []byte, before bool, find func([]byte) (int, int)) error {
	// end is the end of the next piece to write. The separator to find must end before limit.
	end, limit := len(data), len(data)
	for limit > 0 {
		from, to := find(data[:limit])
		if from < 0 {
			break
		}
		if !c.Step(1 + (limit-from)>>6) {
			return tool.ErrStop
		}
		cut := to
		if before {
			cut = from
		}
		if cut < end || before {
			if _, err := w.Write(data[cut:end]); err != nil {
				return err
			}
		}
		end, limit = cut, from
	}
	_, err := w.Write(data[:end])
	return err
}

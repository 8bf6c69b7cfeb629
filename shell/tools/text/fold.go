package text

import (
	"errors"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// oldWidth converts -72 to an option with an argument.
func oldWidth(args []string, opt string) []string {
	for i, a := range args {
		if a == "--" {
			break
		}
		if len(a) > 1 && a[0] == '-' && strings.Trim(a[1:], "0123456789") == "" {
			out := append([]string{}, args[:i]...)
			return append(append(out, opt+a[1:]), args[i+1:]...)
		}
	}
	return args
}

// columnAfter returns the column after a byte.
func columnAfter(col int, b byte) int {
	switch b {
	case '\b':
		return max(col-1, 0)
	case '\r':
		return 0
	case '\t':
		return col + 8 - col%8
	}
	return col + 1
}

func fold(c *tool.Call) int {
	c.Args = oldWidth(c.Args, "-w")
	f, ok := c.Flags("bsw:", "bytes=b", "spaces=s", "width=w")
	if !ok {
		return 1
	}
	width, err := atoi(f.Value('w', "80"))
	if err != nil || width == 0 {
		return c.Errorf(1, "invalid number of columns: ‘%s’", f.Value('w', ""))
	}
	after := columnAfter
	if f.Has('b') {
		after = func(col int, _ byte) int { return col + 1 }
	}
	spaces := f.Has('s')
	w := c.Buffered()
	var out []byte
	status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
		return c.Lines(in, '\n', func(l []byte, whole bool) error {
			out = out[:0]
			start, col, broken := 0, 0, -1 // start of the output line, current column, last possible break
			for i := 0; i < len(l); i++ {
				next := after(col, l[i])
				if next > width && i > start {
					at := i
					if spaces && broken > start {
						at = broken
					}
					out = append(append(out, l[start:at]...), '\n')
					start, broken = at, -1
					col = 0
					for _, b := range l[at:i] {
						col = after(col, b)
					}
					i--
					continue
				}
				col = next
				if l[i] == ' ' || l[i] == '\t' {
					broken = i + 1
				}
			}
			out = append(out, l[start:]...)
			if whole {
				out = append(out, '\n')
			}
			_, err := w.Write(out)
			return err
		})
	})
	return c.Flush(w, status)
}

// tabStops are the tab stops of expand and unexpand.
type tabStops struct {
	list  []int
	every int // after the list; 0: none
	from  int // start column for the multiples
}

func parseTabs(lists []string) (t tabStops, err error) {
	for _, l := range lists {
		for p := range strings.FieldsFuncSeq(l, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
			mark := byte(0)
			if p[0] == '/' || p[0] == '+' {
				mark, p = p[0], p[1:]
			}
			n, err := atoi(p)
			if err != nil {
				return t, errors.New("tab size contains invalid character(s): ‘" + p + "’")
			}
			if n == 0 && mark == 0 {
				return t, errors.New("tab size cannot be 0")
			}
			if mark != 0 {
				t.every = n
				if mark == '+' && len(t.list) > 0 {
					t.from = t.list[len(t.list)-1]
				}
				continue
			}
			if k := len(t.list); k > 0 && t.list[k-1] >= n {
				return t, errors.New("tab sizes must be ascending")
			}
			t.list = append(t.list, n)
		}
	}
	if len(t.list) == 1 && t.every == 0 {
		t.list, t.every = nil, t.list[0]
	}
	if len(t.list) == 0 && t.every == 0 {
		t.every = 8
	}
	return t, nil
}

// next returns the stop after a column. last is true when there is none.
func (t tabStops) next(col int) (stop int, last bool) {
	for _, s := range t.list {
		if s > col {
			return s, false
		}
	}
	if t.every > 0 {
		return col + t.every - (col-t.from)%t.every, false
	}
	return col + 1, true
}

// tabArgs converts -4 and -4,8 to -t.
func tabArgs(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if len(a) > 1 && a[0] == '-' && a[1] >= '0' && a[1] <= '9' {
			a = "-t" + a[1:]
		}
		out[i] = a
	}
	return out
}

func expand(c *tool.Call) int {
	c.Args = tabArgs(c.Args)
	f, ok := c.Flags("it:", "initial=i", "tabs=t")
	if !ok {
		return 1
	}
	tabs, err := parseTabs(f.Values('t'))
	if err != nil {
		return c.Errorf(1, "%v", err)
	}
	initial := f.Has('i')
	w := c.Buffered()
	var out []byte
	status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
		return c.Lines(in, '\n', func(l []byte, whole bool) error {
			out = out[:0]
			col, lead := 0, true
			for _, b := range l {
				switch {
				case b == '\t' && (lead || !initial):
					stop, _ := tabs.next(col)
					if stop-col > tool.MaxLine {
						return errors.New("line too long")
					}
					for ; col < stop; col++ {
						out = append(out, ' ')
					}
					continue
				case b == '\b':
					col = max(col-1, 0)
				default:
					col++
				}
				lead = lead && (b == ' ' || b == '\t')
				out = append(out, b)
			}
			if whole {
				out = append(out, '\n')
			}
			_, err := w.Write(out)
			return err
		})
	})
	return c.Flush(w, status)
}

func unexpand(c *tool.Call) int {
	c.Args = tabArgs(c.Args)
	f, ok := c.Flags("at:\x81", "all=a", "tabs=t", "first-only=\x81")
	if !ok {
		return 1
	}
	tabs, err := parseTabs(f.Values('t'))
	if err != nil {
		return c.Errorf(1, "%v", err)
	}
	all := (f.Has('a') || f.Has('t')) && !f.Has('\x81')
	w := c.Buffered()
	var out []byte
	status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
		return c.Lines(in, '\n', func(l []byte, whole bool) error {
			out = unexpandLine(out[:0], l, tabs, all)
			if whole {
				out = append(out, '\n')
			}
			_, err := w.Write(out)
			return err
		})
	})
	return c.Flush(w, status)
}

func unexpandLine(out, l []byte, tabs tabStops, all bool) []byte {
	for col, i := 0, 0; i < len(l); {
		if b := l[i]; b != ' ' && b != '\t' {
			if b == '\b' {
				col = max(col-1, 0)
			} else {
				col++
			}
			out = append(out, b)
			i++
			if !all {
				return append(out, l[i:]...)
			}
			continue
		}
		// Write a run of blanks as tabs up to its last stop, then as spaces.
		pending := 0 // columns since the last stop
		for i < len(l) && (l[i] == ' ' || l[i] == '\t') {
			stop, none := tabs.next(col)
			if none {
				out = append(out, l[i:]...)
				return out
			}
			if l[i] == '\t' {
				out = append(out, '\t')
				col, pending = stop, 0
				i++
				continue
			}
			col++
			pending++
			i++
			if col == stop {
				// A single blank before a stop stays a space, unless more blanks follow.
				if pending == 1 && (i == len(l) || l[i] != ' ' && l[i] != '\t') && !(len(out) > 0 && out[len(out)-1] == '\t') {
					out = append(out, ' ')
				} else {
					out = append(out, '\t')
				}
				pending = 0
			}
		}
		for range pending {
			out = append(out, ' ')
		}
	}
	return out
}

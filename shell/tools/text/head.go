package text

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// section prints the headers of files for head and tail.
type section struct {
	c    *tool.Call
	show bool
	any  bool
}

func newSection(c *tool.Call, f tool.Flags) *section {
	show := len(f.Args) > 1
	switch f.Last("qv") {
	case 'q':
		show = false
	case 'v':
		show = true
	}
	return &section{c: c, show: show}
}

func (s *section) begin(w io.Writer, name string) {
	if !s.show {
		return
	}
	if name == "-" {
		name = "standard input"
	}
	nl := ""
	if s.any {
		nl = "\n"
	}
	s.any = true
	fmt.Fprintf(w, "%s==> %s <==\n", nl, name)
}

// oldCount converts head -5, tail -5, tail +5 and -5c to modern options.
func oldCount(args []string, plus bool) []string {
	if len(args) == 0 || len(args[0]) < 2 {
		return args
	}
	a := args[0]
	sign := ""
	switch {
	case a[0] == '-' && a[1] >= '0' && a[1] <= '9':
	case plus && a[0] == '+' && a[1] >= '0' && a[1] <= '9' && len(args) <= 2:
		sign = "+"
	default:
		return args
	}
	end := 1
	for end < len(a) && a[end] >= '0' && a[end] <= '9' {
		end++
	}
	opt, num, more := "-n", sign+a[1:end], []string(nil)
	for _, l := range a[end:] {
		switch l {
		case 'c':
			opt = "-c"
		case 'b':
			opt, num = "-c", num+"b"
		case 'k':
			opt, num = "-c", num+"K"
		case 'm':
			opt, num = "-c", num+"M"
		case 'l':
			opt = "-n"
		case 'q', 'v', 'f', 'z':
			more = append(more, "-"+string(l))
		default:
			return args
		}
	}
	return append(append([]string{opt, num}, more...), args[1:]...)
}

// count is the value of -n or -c.
type count struct {
	n     int64
	bytes bool
	minus bool // head: all but the last n
	plus  bool // tail: from the n-th
}

func readCount(c *tool.Call, f tool.Flags) (count, bool) {
	k := count{n: 10}
	for _, o := range f.All {
		if o.Letter != 'n' && o.Letter != 'c' {
			continue
		}
		v := o.Value
		k = count{bytes: o.Letter == 'c', minus: strings.HasPrefix(v, "-"), plus: strings.HasPrefix(v, "+")}
		if k.minus || k.plus {
			v = v[1:]
		}
		n, err := parseSize(v)
		if err != nil || v == "" || v[0] < '0' || v[0] > '9' {
			what := "lines"
			if k.bytes {
				what = "bytes"
			}
			c.Errorf(1, "invalid number of %s: ‘%s’", what, o.Value)
			return k, false
		}
		k.n = n
	}
	return k, true
}

func head(c *tool.Call) int {
	c.Args = oldCount(c.Args, false)
	f, ok := c.Flags("c:n:qvz", "bytes=c", "lines=n", "quiet=q", "silent=q", "verbose=v", "zero-terminated=z")
	if !ok {
		return 1
	}
	k, ok := readCount(c, f)
	if !ok {
		return 1
	}
	end := byte('\n')
	if f.Has('z') {
		end = 0
	}
	sec := newSection(c, f)
	w := c.Buffered()
	status := usage.Inputs(c, f.Args, "cannot open '%s' for reading", 1, func(name string, in io.Reader) error {
		sec.begin(w, name)
		if k.minus {
			return allBut(c, w, in, k, end)
		}
		seek, _ := in.(io.Seeker)
		if name == "-" {
			if file := usage.Stdin(c); file != nil {
				defer func() { _ = file.Close() }() // only read
				in, seek = file, file
			} else {
				seek = nil
			}
		}
		return headOf(c, w, in, seek, k, end)
	})
	return c.Flush(w, status)
}

// headOf copies the beginning of in. If in can seek, it moves back to the end of that part, because
// the next program may continue from there.
func headOf(c *tool.Call, w io.Writer, in io.Reader, seek io.Seeker, k count, end byte) error {
	left := k.n
	size := int64(64 << 10)
	if k.bytes {
		size = min(size, left)
	}
	buf := make([]byte, size)
	for left > 0 {
		n, err := in.Read(buf)
		if !c.Step(1 + n>>10) {
			return tool.ErrStop
		}
		use := n
		if k.bytes {
			use = int(min(int64(n), left))
			left -= int64(use)
		} else {
			use = 0
			for left > 0 && use < n {
				at := bytes.IndexByte(buf[use:n], end)
				if at < 0 {
					use = n
					break
				}
				use += at + 1
				left--
			}
		}
		if _, werr := w.Write(buf[:use]); werr != nil {
			return werr
		}
		if use < n && seek != nil {
			_, _ = seek.Seek(int64(use-n), io.SeekCurrent) // a device can't, and needn't
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("error reading: %w", err)
		}
	}
	return nil
}

// allBut copies everything except the last n lines or bytes.
func allBut(c *tool.Call, w io.Writer, in io.Reader, k count, end byte) error {
	purse := usage.NewPurse(c)
	defer purse.Free()
	data, err := purse.ReadAll(in)
	if err != nil {
		return err
	}
	_, err = w.Write(data[:lastLines(data, k, end)])
	return err
}

// lastLines returns the start of the last n lines or bytes of data.
func lastLines(data []byte, k count, end byte) int {
	if k.n == 0 {
		return len(data)
	}
	if k.bytes {
		return int(max(int64(len(data))-k.n, 0))
	}
	at := len(data)
	if at > 0 && data[at-1] == end {
		at--
	}
	for left := k.n; ; {
		at = bytes.LastIndexByte(data[:at], end)
		if left--; left == 0 || at < 0 {
			return at + 1
		}
	}
}

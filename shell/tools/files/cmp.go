package files

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// cmp compares two files byte by byte.
func cmp(c *tool.Call) int {
	f, ok := c.Flags("bi:ln:sv", "print-bytes=b", "ignore-initial=i", "verbose=l", "bytes=n", "quiet=s", "silent=s")
	if !ok {
		return 2
	}
	wrong := func(format string, args ...any) int {
		c.Errorf(2, format, args...)
		return c.Errorf(2, "Try '%s --help' for more information.", c.Base())
	}
	args := f.Args
	switch {
	case len(args) == 0:
		return wrong("missing operand after '%s'", c.Base())
	case len(args) > 4:
		return wrong("extra operand '%s'", args[4])
	}
	if f.Has('l') && f.Has('s') {
		return wrong("options -l and -s are incompatible")
	}
	names := [2]string{args[0], "-"}
	var skips [2]int64
	number := func(s string) (int64, bool) {
		n, ok := sizeArg(s)
		return n, ok && n >= 0
	}
	if f.Has('i') {
		a, b, two := strings.Cut(f.Value('i', ""), ":")
		if !two {
			b = a
		}
		x, okX := number(a)
		y, okY := number(b)
		if !okX || !okY {
			return wrong("invalid --ignore-initial value '%s'", f.Value('i', ""))
		}
		skips = [2]int64{x, y}
	}
	if len(args) > 1 {
		names[1] = args[1]
	}
	for i, s := range args[min(2, len(args)):] {
		n, ok := number(s)
		if !ok {
			return wrong("invalid --ignore-initial value '%s'", s)
		}
		skips[i] = n
	}
	limit := int64(-1)
	if f.Has('n') {
		if limit, ok = number(f.Value('n', "")); !ok {
			return wrong("invalid --bytes value '%s'", f.Value('n', ""))
		}
	}
	var in [2]*bufio.Reader
	for i, name := range names {
		r, err := c.OpenIn(name)
		if err == nil {
			if fi, serr := statOf(c, name); serr == nil && fi.Mode.IsDir() && name != "-" {
				_ = r.Close()
				return c.Errorf(2, "%s: Is a directory", name)
			}
		}
		if err != nil {
			if !f.Has('s') {
				c.Errorf(2, "%s: %s", name, errText(err))
			}
			return 2
		}
		defer r.Close()
		in[i] = bufio.NewReaderSize(r, 64<<10)
		if skips[i] > 0 {
			if _, err := io.CopyN(io.Discard, in[i], skips[i]); err != nil && err != io.EOF {
				return c.Errorf(2, "%s: %s", name, errText(err))
			}
		}
	}
	return compare(c, names, in, limit, f)
}

// compare is the loop of cmp.
func compare(c *tool.Call, names [2]string, in [2]*bufio.Reader, limit int64, f tool.Flags) int {
	out := c.Buffered()
	var at, line int64 = 0, 1
	status := 0
	last := byte('\n')
	wide := 0
	if f.Has('l') {
		size := int64(1) << 62
		for _, n := range names {
			if i, err := statOf(c, n); err == nil && i.Mode.IsRegular() && n != "-" {
				size = min(size, i.Size)
			}
		}
		if limit >= 0 {
			size = min(size, limit)
		}
		if size < 1<<62 {
			wide = len(strconv.FormatInt(size, 10))
		} else {
			wide = 19
		}
	}
	for limit < 0 || at < limit {
		var part [2][]byte
		var errs [2]error
		for i, r := range in {
			_, errs[i] = r.Peek(1)
			part[i], _ = r.Peek(max(r.Buffered(), 1)) // what there is
			if errs[i] != nil && errs[i] != io.EOF {
				return c.Errorf(2, "%s: %s", names[i], errText(errs[i]))
			}
		}
		n := min(len(part[0]), len(part[1]))
		if limit >= 0 {
			n = int(min(int64(n), limit-at))
		}
		if !c.Step(1 + n>>8) {
			return 2
		}
		a, b := part[0][:n], part[1][:n]
		if !bytes.Equal(a, b) {
			for i := range a {
				if a[i] == b[i] {
					if a[i] == '\n' {
						line++
					}
					continue
				}
				status = 1
				switch {
				case f.Has('s'):
				case f.Has('l') && f.Has('b'):
					fmt.Fprintf(out, "%*d %3o %-4s %3o %s\n", wide, at+int64(i)+1, a[i], visible(a[i]), b[i], visible(b[i]))
				case f.Has('l'):
					fmt.Fprintf(out, "%*d %3o %3o\n", wide, at+int64(i)+1, a[i], b[i])
				case f.Has('b'):
					fmt.Fprintf(out, "%s %s differ: byte %d, line %d is %3o %s %3o %s\n", names[0], names[1], at+int64(i)+1, line, a[i], visible(a[i]), b[i], visible(b[i]))
				default:
					fmt.Fprintf(out, "%s %s differ: byte %d, line %d\n", names[0], names[1], at+int64(i)+1, line)
				}
				if !f.Has('l') {
					return flush(c, out, 1)
				}
				if a[i] == '\n' {
					line++
				}
			}
		} else {
			line += int64(bytes.Count(a, []byte{'\n'}))
		}
		if n > 0 {
			last = a[n-1]
		}
		at += int64(n)
		for _, r := range in {
			_, _ = r.Discard(n) // it was peeked at
		}
		if n > 0 {
			continue
		}
		if errs[0] == io.EOF && errs[1] == io.EOF {
			break
		}
		short := 0
		if errs[1] == io.EOF {
			short = 1
		}
		if !f.Has('s') {
			_ = out.Flush()
			switch {
			case at == 0:
				c.Errorf(1, "EOF on %s which is empty", names[short])
			case f.Has('l'):
				c.Errorf(1, "EOF on %s after byte %d", names[short], at)
			case last == '\n':
				c.Errorf(1, "EOF on %s after byte %d, line %d", names[short], at, line-1)
			default:
				c.Errorf(1, "EOF on %s after byte %d, in line %d", names[short], at, line)
			}
		}
		return flush(c, out, 1)
	}
	return flush(c, out, status)
}

// visible shows a byte as cat -v does.
func visible(b byte) string {
	s := ""
	if b >= 0x80 {
		s, b = "M-", b-0x80
	}
	switch {
	case b < 0x20:
		return s + "^" + string(rune(b+64))
	case b == 0x7f:
		return s + "^?"
	}
	return s + string(rune(b))
}

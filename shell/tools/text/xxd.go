package text

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// xxder is one run of xxd.
type xxder struct {
	c                                       *tool.Call
	w                                       io.Writer
	cols, group                             int
	plain, include, bits, little, upper     bool
	reverse, decimal, ebcdic, skip, capital bool
	seek, offset, length                    int64
	name                                    string
}

func xxdNumber(s string) (int64, error) {
	neg := strings.HasPrefix(s, "-")
	n, err := strconv.ParseInt(strings.TrimLeft(s, "+-"), 0, 62)
	if neg {
		n = -n
	}
	return n, err
}

func xxd(c *tool.Call) int {
	x := &xxder{c: c, cols: -1, group: -1, length: -1}
	args := c.Args
	var names []string
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		if len(a) < 2 || a[0] != '-' || len(names) > 0 && a == "-" {
			names = append(names, a)
			continue
		}
		if a == "--" {
			names = append(names, args...)
			break
		}
		opt := strings.TrimLeft(a, "-")
		value := func(letters int) (string, bool) {
			if len(opt) > letters && (opt[letters] == '+' || opt[letters] == '-' || opt[letters] >= '0' && opt[letters] <= '9') {
				return opt[letters:], true
			}
			if len(args) == 0 {
				return "", false
			}
			v := args[0]
			args = args[1:]
			return v, true
		}
		number := func() (int64, bool) {
			v, ok := value(1)
			n, err := xxdNumber(v)
			return n, ok && err == nil
		}
		ok := true
		var n int64
		switch opt[0] {
		case 'a':
			x.skip = !x.skip
		case 'b':
			x.bits = true
		case 'C':
			x.capital = true
		case 'c':
			if strings.HasPrefix(opt, "capitalize") {
				x.capital = true
				break
			}
			n, ok = number()
			x.cols = int(min(n, 256))
		case 'd':
			x.decimal = true
		case 'E':
			x.ebcdic = true
		case 'e':
			x.little = true
		case 'g':
			n, ok = number()
			x.group = int(min(n, 256))
		case 'i':
			x.include = true
		case 'l':
			x.length, ok = number()
		case 'n':
			x.name, ok = value(1)
		case 'o':
			x.offset, ok = number()
		case 'p':
			x.plain = true
		case 'r':
			x.reverse = true
		case 's':
			x.seek, ok = number()
		case 'u':
			x.upper = true
		case 'v':
			fmt.Fprintln(c.Out, "xxd 2022-01-14 by Juergen Weigert et al. (Carrel's own)")
			return 0
		default:
			ok = false
		}
		if !ok {
			fmt.Fprint(c.Err, "Usage:\n       xxd [options] [infile [outfile]]\n    or\n       xxd -r [-s [-]offset] [-c cols] [-ps] [infile [outfile]]\n")
			return 1
		}
	}
	x.defaults()
	if len(names) == 0 {
		names = []string{"-"}
	}
	in, err := usage.Open(c, names[0])
	if err != nil {
		return c.Errorf(2, "%s: %s", names[0], tool.ErrText(err))
	}
	defer func() { _ = in.Close() }() // only read
	if x.name == "" && names[0] != "-" {
		x.name = names[0]
	}
	w := c.Buffered()
	var seek io.Seeker
	if len(names) > 1 && names[1] != "-" {
		flags := vfs.WriteOnly | vfs.CreateNew
		if !x.reverse {
			flags |= vfs.Truncate
		}
		out, err := c.Open(names[1], flags, 0o666)
		if err != nil {
			return c.Errorf(3, "%s: %s", names[1], tool.ErrText(err))
		}
		defer func() { _ = out.Close() }() // the flush reports
		w.Reset(out)
		seek = out
	}
	x.w = w
	switch {
	case x.reverse:
		err = x.restore(in, func(at int64) error {
			if seek == nil {
				return fmt.Errorf("sorry, cannot seek backwards")
			}
			if err := w.Flush(); err != nil {
				return err
			}
			_, err := seek.Seek(at, io.SeekStart)
			return err
		})
	default:
		err = x.begin(in)
	}
	if err != nil && !c.Stopped(err) {
		return c.Flush(w, c.Errorf(5, "%s", tool.ErrText(err)))
	}
	return c.Flush(w, 0)
}

func (x *xxder) defaults() {
	if x.cols <= 0 {
		switch {
		case x.plain:
			x.cols = 30
		case x.include:
			x.cols = 12
		case x.bits:
			x.cols = 6
		default:
			x.cols = 16
		}
	}
	if x.group < 0 {
		switch {
		case x.bits:
			x.group = 1
		case x.little:
			x.group = 4
		default:
			x.group = 2
		}
	}
	if x.group == 0 || x.group > x.cols {
		x.group = x.cols
	}
}

// begin skips the start that the options exclude, and dumps the rest.
func (x *xxder) begin(in io.Reader) error {
	if x.seek < 0 {
		if s, ok := in.(io.Seeker); ok {
			at, err := s.Seek(x.seek, io.SeekEnd)
			if err != nil {
				return fmt.Errorf("sorry, cannot seek")
			}
			x.seek = at
		} else {
			return fmt.Errorf("sorry, cannot seek")
		}
	} else if x.seek > 0 {
		if _, err := io.CopyN(counting{x.c}, in, x.seek); err != nil {
			if err == io.EOF {
				return fmt.Errorf("sorry, cannot seek")
			}
			return err
		}
	}
	if x.length >= 0 {
		in = io.LimitReader(in, x.length)
	}
	switch {
	case x.include:
		return x.header(in)
	case x.plain:
		return x.hex(in)
	}
	return x.dump(in)
}

func (x *xxder) digits() string {
	if x.upper {
		return "0123456789ABCDEF"
	}
	return "0123456789abcdef"
}

// hex is -p.
func (x *xxder) hex(in io.Reader) error {
	d := x.digits()
	buf := make([]byte, x.cols)
	out := make([]byte, 0, 2*x.cols+1)
	for {
		n, err := io.ReadFull(in, buf)
		if !x.c.Step(2 + n>>3) {
			return tool.ErrStop
		}
		out = out[:0]
		for _, b := range buf[:n] {
			out = append(out, d[b>>4], d[b&15])
		}
		if n > 0 {
			if _, werr := x.w.Write(append(out, '\n')); werr != nil {
				return werr
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// header is -i.
func (x *xxder) header(in io.Reader) error {
	name := []byte(x.name)
	for i, b := range name {
		if !alnum(b) && b != '_' {
			name[i] = '_'
		}
	}
	if len(name) > 0 && name[0] >= '0' && name[0] <= '9' {
		name = append([]byte("__"), name...)
	}
	if x.capital {
		name = []byte(strings.ToUpper(string(name)))
	}
	if len(name) > 0 {
		fmt.Fprintf(x.w, "unsigned char %s[] = {\n", name)
	}
	format := "0x%02x"
	if x.upper {
		format = "0X%02X"
	}
	total := 0
	n, err := eachBlock(x.c, in, func(b []byte) {
		for _, v := range b {
			switch {
			case total == 0:
				_, _ = io.WriteString(x.w, "  ") // the flush reports
			case total%x.cols == 0:
				_, _ = io.WriteString(x.w, ",\n  ")
			default:
				_, _ = io.WriteString(x.w, ", ")
			}
			fmt.Fprintf(x.w, format, v)
			total++
		}
	})
	if err != nil {
		return err
	}
	if n > 0 {
		_, _ = io.WriteString(x.w, "\n") // the flush reports
	}
	if len(name) > 0 {
		suffix := "len"
		if x.capital {
			suffix = "LEN"
		}
		fmt.Fprintf(x.w, "};\nunsigned int %s_%s = %d;\n", name, suffix, n)
	}
	return nil
}

// dump writes the usual format, and the formats of -b and -e.
func (x *xxder) dump(in io.Reader) error {
	d := x.digits()
	buf := make([]byte, x.cols)
	at := x.seek + x.offset
	per := 2
	if x.bits {
		per = 8
	}
	groups := (x.cols + x.group - 1) / x.group
	room := x.cols*per + groups - 1
	if x.little {
		room = groups*(2*x.group+1) - 1
	}
	zeros, pending := 0, ""
	var out []byte
	for {
		n, err := io.ReadFull(in, buf)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		if n == 0 {
			break
		}
		if !x.c.Step(4 + n>>2) {
			return tool.ErrStop
		}
		format := "%08x: "
		if x.decimal {
			format = "%08d: "
		}
		out = fmt.Appendf(out[:0], format, at)
		start := len(out)
		for i := 0; i < n; i += x.group {
			if i > 0 {
				out = append(out, ' ')
			}
			g := buf[i:min(i+x.group, n)]
			if x.little {
				for k := x.group - 1; k >= 0; k-- {
					if k >= len(g) || i+k >= x.cols {
						out = append(out, "  "...)
					} else {
						out = append(out, d[g[k]>>4], d[g[k]&15])
					}
				}
				continue
			}
			for _, b := range g {
				if x.bits {
					out = fmt.Appendf(out, "%08b", b)
				} else {
					out = append(out, d[b>>4], d[b&15])
				}
			}
		}
		for len(out)-start < room+2 {
			out = append(out, ' ')
		}
		nul := true
		for _, b := range buf[:n] {
			nul = nul && b == 0
			if b < ' ' || b >= 0x7f {
				b = '.'
			}
			out = append(out, b)
		}
		out = append(out, '\n')
		at += int64(n)
		if x.skip && nul && n == x.cols {
			zeros++
			if zeros == 2 {
				pending = string(out)
				continue
			}
			if zeros > 2 {
				if zeros == 3 {
					_, _ = io.WriteString(x.w, "*\n") // the next write reports
				}
				pending = string(out)
				continue
			}
		} else {
			zeros = 0
			if pending != "" {
				// A single repeated line is printed. If there are more, they stay hidden.
				pending = ""
			}
		}
		if _, werr := x.w.Write(out); werr != nil {
			return werr
		}
		if n < x.cols {
			break
		}
	}
	if pending != "" {
		_, err := io.WriteString(x.w, pending)
		return err
	}
	return nil
}

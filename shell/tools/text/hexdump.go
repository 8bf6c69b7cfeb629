package text

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// hexdump prints bytes in the formats of -C, -b, -c, -d, -o and -x. The default is two-byte
// hexadecimal. Formats of -e may have one directive with a count and text: '/1 "%02x "'.
func hexdump(c *tool.Call) int {
	f, ok := c.Flags("bcCde:f:n:os:vxL::", "canonical=C", "length=n", "skip=s", "no-squeezing=v", "one-byte-octal=b", "one-byte-char=c", "two-bytes-decimal=d", "two-bytes-octal=o", "two-bytes-hex=x",
		"format=e")
	if !ok {
		return 1
	}
	limit, skip := int64(-1), int64(0)
	for _, o := range f.All {
		var err error
		switch o.Letter {
		case 'n':
			limit, err = odSize(o.Value)
		case 's':
			skip, err = odSize(o.Value)
		}
		if err != nil {
			return c.Errorf(1, "failed to parse '%s'", o.Value)
		}
	}
	var readers []io.Reader
	status := 0
	names := f.Args
	if len(names) == 0 {
		names = []string{"-"}
	}
	for _, name := range names {
		in, err := usage.Open(c, name)
		if err != nil {
			status = c.Errorf(1, "%s: %s", name, tool.ErrText(err))
			continue
		}
		defer func() { _ = in.Close() }() // only read
		readers = append(readers, in)
	}
	if len(readers) == 0 {
		return c.Errorf(1, "all input file arguments failed")
	}
	in := io.MultiReader(readers...)
	if skip > 0 {
		if _, err := io.CopyN(counting{c}, in, skip); err != nil && err != io.EOF {
			return 1
		}
	}
	if limit >= 0 {
		in = io.LimitReader(in, limit)
	}
	w := c.Buffered()
	if e := f.Value('e', ""); f.Has('e') {
		units, err := parseHexdump(e)
		if err != nil {
			return c.Errorf(1, "%v", err)
		}
		purse := usage.NewPurse(c)
		defer purse.Free()
		data, err := purse.ReadAll(in)
		if err != nil {
			return 1
		}
		for len(data) > 0 {
			before := len(data)
			for _, u := range units {
				data = u.print(w, data)
			}
			if len(data) == before || !c.Step(4) {
				break
			}
		}
		return c.Flush(w, status)
	}
	kind := f.Last("bcCdox")
	buf := make([]byte, 16)
	var prev []byte
	starred := false
	at := skip
	width := 7
	if kind == 'C' {
		width = 8
	}
	total := 0
	for {
		n, err := io.ReadFull(in, buf)
		if n == 0 {
			break
		}
		if err != nil && err != io.ErrUnexpectedEOF || !c.Step(6) {
			return c.Flush(w, 1)
		}
		total += n
		if !f.Has('v') && n == 16 && bytes.Equal(prev, buf) {
			if !starred {
				_, _ = w.WriteString("*\n") // the flush reports
			}
			starred = true
		} else {
			starred = false
			if _, err := fmt.Fprintf(w, "%0*x%s\n", width, at, hexdumpLine(buf[:n], kind)); err != nil {
				break
			}
			prev = append(prev[:0], buf[:n]...)
		}
		at += int64(n)
	}
	if total > 0 {
		fmt.Fprintf(w, "%0*x\n", width, at)
	}
	return c.Flush(w, status)
}

func hexdumpLine(b []byte, kind byte) string {
	var s strings.Builder
	switch kind {
	case 'C':
		for i := range 16 {
			if i%8 == 0 {
				s.WriteByte(' ')
			}
			if i < len(b) {
				fmt.Fprintf(&s, " %02x", b[i])
			} else {
				s.WriteString("   ")
			}
		}
		s.WriteString("  |")
		for _, c := range b {
			if c < ' ' || c >= 0x7f {
				c = '.'
			}
			s.WriteByte(c)
		}
		s.WriteByte('|')
		return s.String()
	case 'b', 'c':
		for i := range 16 {
			switch {
			case i >= len(b):
				s.WriteString("    ")
			case kind == 'b':
				fmt.Fprintf(&s, " %03o", b[i])
			default:
				fmt.Fprintf(&s, " %3s", odType{kind: 'c', size: 1}.field(b[i:i+1], nil))
			}
		}
		return s.String()
	}
	format, field := " %04x", 5
	switch kind {
	case 'd':
		format, field = "   %05d", 8
	case 'o':
		format, field = "  %06o", 8
	case 'x':
		format, field = "    %04x", 8
	}
	for i := 0; i < 16; i += 2 {
		if i >= len(b) {
			s.WriteString(strings.Repeat(" ", field))
			continue
		}
		var pair [2]byte
		copy(pair[:], b[i:])
		fmt.Fprintf(&s, format, binary.LittleEndian.Uint16(pair[:]))
	}
	return s.String()
}

// hexUnit is one unit of a -e format.
type hexUnit struct {
	count, size int
	text        string // before the directive
	verb, after string
}

// parseHexdump reads [COUNT]/[SIZE] "FORMAT" …
func parseHexdump(s string) (out []hexUnit, err error) {
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		u := hexUnit{count: 1, size: 1}
		at := strings.IndexByte(s, '"')
		if at < 0 {
			return nil, fmt.Errorf("bad format {%s}", s)
		}
		a, b, slash := strings.Cut(strings.TrimSpace(s[:at]), "/")
		if a != "" {
			if u.count, err = atoi(strings.TrimSpace(a)); err != nil || u.count > 1<<16 {
				return nil, fmt.Errorf("bad format {%s}", s)
			}
		}
		if slash && b != "" {
			if u.size, err = atoi(strings.TrimSpace(b)); err != nil || u.size != 1 && u.size != 2 && u.size != 4 && u.size != 8 {
				return nil, fmt.Errorf("bad byte count for conversion character %s", b)
			}
		}
		s = s[at+1:]
		end := strings.IndexByte(s, '"')
		if end < 0 {
			return nil, fmt.Errorf("bad format {%s}", s)
		}
		format := unescape(s[:end])
		s = s[end+1:]
		if p := strings.IndexByte(format, '%'); p >= 0 {
			q := p + 1
			for q < len(format) && strings.IndexByte("0123456789.-+# ", format[q]) >= 0 {
				q++
			}
			if q == len(format) || q-p > 6 || strings.IndexByte("xXoduc", format[q]) < 0 && !strings.HasPrefix(format[q:], "_p") && !strings.HasPrefix(format[q:], "_c") {
				return nil, fmt.Errorf("bad conversion character %%%s", format[q:])
			}
			u.text, u.verb = format[:p], format[p:q+1]
			if format[q] == '_' {
				u.verb, q = format[p:q]+"_", q+1
			}
			u.after = format[q+1:]
		} else {
			u.text = format
		}
		out = append(out, u)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("bad format {}")
	}
	return out, nil
}

// print prints a unit and returns the remaining data.
func (u hexUnit) print(w io.Writer, data []byte) []byte {
	if u.verb == "" {
		fmt.Fprint(w, u.text)
		return data
	}
	for i := range u.count {
		if len(data) == 0 {
			break
		}
		n := min(u.size, len(data))
		var v uint64
		for k := n - 1; k >= 0; k-- {
			v = v<<8 | uint64(data[k])
		}
		after := u.after
		if i == u.count-1 && u.count > 1 {
			after = strings.TrimRight(after, " ")
		}
		switch verb := u.verb[:len(u.verb)-1]; u.verb[len(u.verb)-1] {
		case '_', 'c':
			c := data[0]
			if c < ' ' || c >= 0x7f {
				c = '.'
			}
			fmt.Fprintf(w, "%s"+verb+"c%s", u.text, c, after)
		case 'd':
			shift := 64 - 8*u.size
			fmt.Fprintf(w, "%s"+u.verb+"%s", u.text, int64(v<<shift)>>shift, after)
		case 'u':
			fmt.Fprintf(w, "%s"+verb+"d%s", u.text, v, after)
		default:
			fmt.Fprintf(w, "%s"+u.verb+"%s", u.text, v, after)
		}
		data = data[n:]
	}
	return data
}

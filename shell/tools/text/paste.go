package text

import (
	"errors"
	"fmt"
	"io"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// delimiters reads paste's list. It returns one string per delimiter; \0 is the empty string.
func delimiters(s string) ([]string, error) {
	if s == "" {
		return []string{""}, nil
	}
	var out []string
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i:i+1])
			continue
		}
		if i++; i == len(s) {
			return nil, fmt.Errorf("delimiter list ends with an unescaped backslash: %s", s)
		}
		switch s[i] {
		case '0':
			out = append(out, "")
		case 'b':
			out = append(out, "\b")
		case 'f':
			out = append(out, "\f")
		case 'n':
			out = append(out, "\n")
		case 'r':
			out = append(out, "\r")
		case 't':
			out = append(out, "\t")
		case 'v':
			out = append(out, "\v")
		default:
			out = append(out, s[i:i+1])
		}
	}
	return out, nil
}

func paste(c *tool.Call) int {
	f, ok := c.Flags("d:sz", "delimiters=d", "serial=s", "zero-terminated=z")
	if !ok {
		return 1
	}
	delims, err := delimiters(f.Value('d', "\t"))
	if err != nil {
		return c.Errorf(1, "%v", err)
	}
	end := byte('\n')
	if f.Has('z') {
		end = 0
	}
	w := c.Buffered()
	if f.Has('s') {
		status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
			n := 0
			err := c.Lines(in, end, func(l []byte, _ bool) error {
				if n > 0 {
					_, _ = w.WriteString(delims[(n-1)%len(delims)]) // the next write reports
				}
				n++
				_, err := w.Write(l)
				return err
			})
			return errors.Join(err, w.WriteByte(end))
		})
		return c.Flush(w, status)
	}
	names := f.Args
	if len(names) == 0 {
		names = []string{"-"}
	}
	var stdin *puller
	pulls := make([]*puller, len(names))
	if c.Pay(int64(len(names))*(32<<10)) != nil {
		return 1
	}
	defer func() { _ = c.Pay(-int64(len(names)) * (32 << 10)) }() // giving back can't fail
	for i, name := range names {
		if name == "-" {
			if stdin == nil {
				stdin = newPuller(c, c.In, end)
			}
			pulls[i] = stdin
			continue
		}
		in, err := usage.Open(c, name)
		if err != nil {
			return c.Errorf(1, "%s: %s", name, tool.ErrText(err))
		}
		defer func() { _ = in.Close() }() // only read
		pulls[i] = newPuller(c, in, end)
	}
	status := 0
	var row []byte
	for {
		row = row[:0]
		any := false
		for i, p := range pulls {
			if p != nil {
				l, _, err := p.next()
				switch {
				case err == nil:
					any = true
					row = append(row, l...)
				case errors.Is(err, io.EOF):
					pulls[i] = nil
				case c.Stopped(err):
					return 1
				default:
					status = c.Errorf(1, "%s: %s", names[i], tool.ErrText(err))
					pulls[i] = nil
				}
			}
			if i < len(pulls)-1 {
				row = append(row, delims[i%len(delims)]...)
			}
		}
		if !any {
			break
		}
		if _, err := w.Write(append(row, end)); err != nil {
			break
		}
	}
	return c.Flush(w, status)
}

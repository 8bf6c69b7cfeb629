package text

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

func rev(c *tool.Call) int {
	f, ok := c.Flags("0", "zero=0")
	if !ok {
		return 1
	}
	end := byte('\n')
	if f.Has('0') {
		end = 0
	}
	w := c.Buffered()
	var out []byte
	status := usage.Inputs(c, f.Args, "cannot open %s", 1, func(_ string, in io.Reader) error {
		return c.Lines(in, end, func(l []byte, whole bool) error {
			out = out[:0]
			for len(l) > 0 {
				_, n := utf8.DecodeLastRune(l)
				out = append(out, l[len(l)-n:]...)
				l = l[:len(l)-n]
			}
			if whole {
				out = append(out, end)
			}
			_, err := w.Write(out)
			return err
		})
	})
	return c.Flush(w, status)
}

// fanOut writes to several files. After a failed write it leaves that file out.
type fanOut struct {
	c      *tool.Call
	to     []io.Writer
	names  []string
	pipes  bool // -p: go on when a pipe has no reader
	status int
}

// Write implements io.Writer.
func (o *fanOut) Write(b []byte) (int, error) {
	open := 0
	for i, w := range o.to {
		if w == nil {
			continue
		}
		_, err := w.Write(b)
		switch {
		case err == nil:
			open++
			continue
		case i == 0 && o.c.Stopped(err) && !o.pipes:
			return 0, err
		case !o.c.Stopped(err):
			o.status = o.c.Errorf(1, "'%s': %s", o.names[i], tool.ErrText(err))
		}
		o.to[i] = nil
	}
	if open == 0 {
		return 0, tool.ErrStop
	}
	return len(b), nil
}

func tee(c *tool.Call) int {
	f, ok := c.Flags("aip", "append=a", "ignore-interrupts=i", "output-error=p::")
	if !ok {
		return 1
	}
	flags := vfs.WriteOnly | vfs.CreateNew
	if f.Has('a') {
		flags |= vfs.Append
	} else {
		flags |= vfs.Truncate
	}
	out := &fanOut{c: c, to: []io.Writer{c.Out}, names: []string{"standard output"}, pipes: f.Has('p')}
	for _, name := range f.Args {
		file, err := c.Open(name, flags, 0o666)
		if err != nil {
			out.status = c.Errorf(1, "%s: %s", name, tool.ErrText(err))
			continue
		}
		defer func() { _ = file.Close() }() // each write was reported
		out.to, out.names = append(out.to, file), append(out.names, name)
	}
	if err := copyAll(c, out, c.In); err != nil && !errors.Is(err, tool.ErrStop) && !c.Stopped(err) {
		return c.Errorf(1, "read error: %s", tool.ErrText(err))
	}
	return out.status
}

func yes(c *tool.Call) int {
	line := []byte("y\n")
	args := c.Args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) > 0 {
		line = []byte(strings.Join(args, " ") + "\n")
	}
	block := bytes.Repeat(line, max(16<<10/len(line), 1))
	for c.Step(len(block) >> 8) {
		if _, err := c.Out.Write(block); err != nil {
			return 1
		}
	}
	return 1
}

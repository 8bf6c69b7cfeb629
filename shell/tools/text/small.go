package text

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/system/gnudate"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// stringsCommand prints the printable strings in files.
func stringsCommand(c *tool.Call) int {
	for i, a := range c.Args {
		if len(a) > 1 && a[0] == '-' && strings.Trim(a[1:], "0123456789") == "" {
			c.Args = append([]string{}, c.Args...)
			c.Args[i] = "-n" + a[1:]
		}
	}
	f, ok := c.Flags("adfe:n:os:t:wT:", "all=a", "data=d", "print-file-name=f", "bytes=n", "radix=t", "encoding=e", "include-all-whitespace=w", "output-separator=s")
	if !ok {
		return 1
	}
	least, err := atoi(f.Value('n', "4"))
	if err != nil || least < 1 {
		return c.Errorf(1, "invalid minimum string length %s", f.Value('n', ""))
	}
	radix := f.Value('t', "")
	if f.Has('o') {
		radix = "o"
	}
	sep := f.Value('s', "\n")
	w := c.Buffered()
	status := usage.Inputs(c, f.Args, "'%s'", 1, func(name string, in io.Reader) error {
		var run []byte
		at := int64(0)
		start := int64(0)
		put := func() {
			if len(run) >= least {
				if f.Has('f') {
					fmt.Fprintf(w, "%s: ", name)
				}
				if radix != "" {
					fmt.Fprintf(w, "%7"+radix[:1]+" ", start)
				}
				_, _ = w.Write(run) // the flush reports
				_, _ = w.WriteString(sep)
			}
			run = run[:0]
		}
		_, err := eachBlock(c, in, func(b []byte) {
			for _, x := range b {
				if x >= ' ' && x < 0x7f || x == '\t' || f.Has('w') && space[x] {
					if len(run) == 0 {
						start = at
					}
					if len(run) < tool.MaxLine {
						run = append(run, x)
					}
				} else {
					put()
				}
				at++
			}
		})
		put()
		return err
	})
	return c.Flush(w, status)
}

// convertLines makes dos2unix or unix2dos. Both change files in place.
func convertLines(toDos bool) tool.Command {
	return func(c *tool.Call) int {
		f, ok := c.Flags("bc:efhikmnoqrsuv1237l", "add-eol=e", "force=f", "keepdate=k", "newfile=n", "oldfile=o", "quiet=q", "keep-bom=b", "remove-bom=r", "convmode=c", "safe=s", "follow-symlink=F", "verbose=v", "add-bom=m", "newline=l")
		if !ok {
			return 1
		}
		convert := func(b []byte) []byte {
			b = bytes.ReplaceAll(b, []byte("\r\n"), newline)
			if toDos {
				b = bytes.ReplaceAll(b, newline, []byte("\r\n"))
			} else if !f.Has('b') {
				b = bytes.TrimPrefix(b, []byte("\ufeff"))
			}
			return b
		}
		purse := usage.NewPurse(c)
		defer purse.Free()
		if len(f.Args) == 0 {
			data, err := purse.ReadAll(c.In)
			if err != nil {
				return 1
			}
			_, err = c.Out.Write(convert(data))
			return boolInt(err != nil)
		}
		status := 0
		for i := 0; i < len(f.Args); i++ {
			name := f.Args[i]
			out := name
			if f.Has('n') && i+1 < len(f.Args) {
				i++
				out = f.Args[i]
			}
			in, err := usage.Open(c, name)
			if err != nil {
				if !f.Has('q') {
					status = c.Errorf(2, "%s: %s", name, tool.ErrText(err))
				}
				continue
			}
			data, err := purse.ReadAll(in)
			_ = in.Close() // only read
			if err != nil {
				return 1
			}
			if bytes.IndexByte(data, 0) >= 0 && !f.Has('f') {
				if !f.Has('q') {
					c.Errorf(0, "Binary symbol 0x00 found at line %d\n%s: Skipping binary file %s", 1+bytes.Count(data[:bytes.IndexByte(data, 0)], newline), c.Base(), name)
				}
				continue
			}
			file, err := c.Open(out, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
			if err == nil {
				_, err = file.Write(convert(data))
				_ = file.Close() // the write reported
			}
			if err != nil {
				status = c.Errorf(2, "%s: %s", out, tool.ErrText(err))
				continue
			}
			if !f.Has('q') {
				kind := "Unix"
				if toDos {
					kind = "DOS"
				}
				c.Errorf(0, "converting file %s to %s format...", name, kind)
			}
		}
		return status
	}
}

// look prints the lines that begin with a text.
func look(c *tool.Call) int {
	f, ok := c.Flags("abdft:", "alphanum=d", "ignore-case=f", "terminate=t", "alternative=a")
	if !ok || len(f.Args) == 0 {
		fmt.Fprintln(c.Err, "Usage: look [options] <string> [<file>...]")
		return 1
	}
	name := "/usr/share/dict/words"
	dict := len(f.Args) < 2
	if !dict {
		name = f.Args[1]
	}
	fold, alnums := f.Has('f') || dict, f.Has('d') || dict
	clean := func(b []byte) []byte {
		out := make([]byte, 0, len(b))
		for _, x := range b {
			if alnums && !alnum(x) && !blank(x) {
				continue
			}
			if fold {
				x = upper(x)
			}
			out = append(out, x)
		}
		return out
	}
	want := []byte(f.Args[0])
	if t := f.Value('t', ""); t != "" {
		if at := bytes.IndexByte(want, t[0]); at >= 0 {
			want = want[:at+1]
		}
	}
	want = clean(want)
	in, err := usage.Open(c, name)
	if err != nil {
		return c.Errorf(1, "%s: %s", name, tool.ErrText(err))
	}
	defer func() { _ = in.Close() }() // only read
	w := c.Buffered()
	status := 1
	err = c.Lines(in, '\n', func(l []byte, _ bool) error {
		if !bytes.HasPrefix(clean(l), want) {
			return nil
		}
		status = 0
		_, err := fmt.Fprintf(w, "%s\n", l)
		return err
	})
	if err != nil {
		return 1
	}
	return c.Flush(w, status)
}

// colrm removes columns.
func colrm(c *tool.Call) int {
	f, ok := c.Flags("")
	if !ok {
		return 1
	}
	first, last := 0, 1<<30
	for i, a := range f.Args {
		n, err := atoi(a)
		if err != nil {
			return c.Errorf(1, "%s argument: '%s'", []string{"first", "last"}[min(i, 1)], a)
		}
		if i == 0 {
			first = n
		} else {
			last = n
		}
	}
	w := c.Buffered()
	err := c.Lines(c.In, '\n', func(l []byte, whole bool) error {
		col := 0
		for len(l) > 0 {
			r, n := utf8.DecodeRune(l)
			if r == '\t' {
				col += 8 - col%8
			} else if r == '\b' {
				col = max(col-1, 0)
			} else {
				col += max(tool.RuneWidth(r), 1)
			}
			if first == 0 || col < first || col > last {
				_, _ = w.Write(l[:n]) // the last one reports
			}
			l = l[n:]
		}
		if whole {
			return w.WriteByte('\n')
		}
		return nil
	})
	if err != nil {
		return 1
	}
	return c.Flush(w, 0)
}

// envsubst puts in variables.
func envsubst(c *tool.Call) int {
	f, ok := c.Flags("v", "variables=v")
	if !ok {
		return 1
	}
	names := func(s string, each func(name string, from, to int)) {
		for i := 0; i+1 < len(s); i++ {
			if s[i] != '$' {
				continue
			}
			j := i + 1
			brace := s[j] == '{'
			if brace {
				j++
			}
			start := j
			for j < len(s) && (alnum(s[j]) || s[j] == '_') && (j > start || s[j] < '0' || s[j] > '9') {
				j++
			}
			if j == start || brace && (j == len(s) || s[j] != '}') {
				continue
			}
			end := j
			if brace {
				j++
			}
			each(s[start:end], i, j)
			i = j - 1
		}
	}
	var only map[string]bool
	if len(f.Args) > 0 {
		only = map[string]bool{}
		names(f.Args[0], func(n string, _, _ int) {
			only[n] = true
			if f.Has('v') {
				fmt.Fprintln(c.Out, n)
			}
		})
	}
	if f.Has('v') {
		return 0
	}
	w := c.Buffered()
	err := c.Lines(c.In, '\n', func(l []byte, whole bool) error {
		s, at := string(l), 0
		names(s, func(n string, from, to int) {
			if only != nil && !only[n] {
				return
			}
			_, _ = w.WriteString(s[at:from] + c.Getenv(n)) // the last one reports
			at = to
		})
		_, err := w.WriteString(s[at:])
		if whole {
			err = w.WriteByte('\n')
		}
		return err
	})
	if err != nil {
		return 1
	}
	return c.Flush(w, 0)
}

// sponge reads all its input before it opens its output.
func sponge(c *tool.Call) int {
	f, ok := c.Flags("a")
	if !ok {
		return 1
	}
	purse := usage.NewPurse(c)
	defer purse.Free()
	data, err := purse.ReadAll(c.In)
	if err != nil {
		return 1
	}
	if len(f.Args) == 0 {
		_, err = c.Out.Write(data)
		return boolInt(err != nil)
	}
	flags := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
	if f.Has('a') {
		flags = vfs.WriteOnly | vfs.CreateNew | vfs.Append
	}
	file, err := c.Open(f.Args[0], flags, 0o666)
	if err == nil {
		_, err = file.Write(data)
		_ = file.Close() // the write reported
	}
	if err != nil {
		return c.Errorf(1, "error opening output file: %s: %s", f.Args[0], tool.ErrText(err))
	}
	return 0
}

// ts prints the time before each line.
func ts(c *tool.Call) int {
	f, ok := c.Flags("ismr")
	if !ok {
		return 1
	}
	format := "%b %d %H:%M:%S"
	if f.Has('i') || f.Has('s') {
		format = "%H:%M:%S"
	}
	if len(f.Args) > 0 {
		format = strings.NewReplacer("%.S", "%S.%6N", "%.s", "%s.%6N", "%.T", "%T.%6N").Replace(f.Args[0])
	}
	loc := gnudate.Location(c.Getenv("TZ"))
	start := c.Now()
	err := c.Lines(c.In, '\n', func(l []byte, _ bool) error {
		now := c.Now()
		t := now.In(loc)
		if f.Has('i') || f.Has('s') {
			t = time.Unix(0, 0).UTC().Add(now.Sub(start))
		}
		if f.Has('i') {
			start = now
		}
		_, err := fmt.Fprintf(c.Out, "%s %s\n", gnudate.Format(format, t), l)
		return err
	})
	return boolInt(err != nil)
}

// pv copies its input. Without a terminal it shows no progress.
func pv(c *tool.Call) int {
	f, ok := c.Flags("pterabTA:fnqWD:s:li:w:H:N:L:B:CSRP:d:0FIv", "quiet=q", "size=s", "line-mode=l", "rate-limit=L", "force=f", "numeric=n", "name=N", "progress=p", "timer=t", "eta=e", "rate=r", "bytes=b", "width=w", "interval=i", "wait=W", "stop-at-size=S")
	if !ok {
		return 1
	}
	total := int64(0)
	status := usage.Inputs(c, f.Args, "%s", 2, func(_ string, in io.Reader) error {
		n := int64(0)
		err := copyAll(c, io.MultiWriter(c.Out, countWriter{&n}), in)
		total += n
		return err
	})
	if _, _, tty := c.Terminal(2); (tty || f.Has('f')) && !f.Has('q') {
		fmt.Fprintf(c.Err, "%s\n", strconv.FormatInt(total, 10))
	}
	return status
}

type countWriter struct{ n *int64 }

// Write implements io.Writer.
func (w countWriter) Write(b []byte) (int, error) {
	*w.n += int64(len(b))
	return len(b), nil
}

package text

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

func tail(c *tool.Call) int {
	c.Args = oldCount(c.Args, true)
	f, ok := c.Flags("c:fFn:qs:vz\x81:\x82\x83:", "bytes=c", "follow=f::", "lines=n", "quiet=q", "silent=q", "sleep-interval=s", "verbose=v",
		"zero-terminated=z", "pid=\x81", "retry=\x82", "max-unchanged-stats=\x83")
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
	if f.Has('f') || f.Has('F') {
		return follow(c, f, k, end, sec)
	}
	w := c.Buffered()
	status := usage.Inputs(c, f.Args, "cannot open '%s' for reading", 1, func(name string, in io.Reader) error {
		sec.begin(w, name)
		if name == "-" {
			if file := usage.Stdin(c); file != nil {
				defer func() { _ = file.Close() }() // only read
				in = file
			}
		}
		return tailOf(c, w, in, k, end)
	})
	return c.Flush(w, status)
}

// tailOf copies the end of in.
func tailOf(c *tool.Call, w io.Writer, in io.Reader, k count, end byte) error {
	if k.plus {
		return fromLine(c, w, in, k, end)
	}
	if file, ok := in.(tool.File); ok {
		if done, err := tailFile(c, w, file, k, end); done {
			return err
		}
	}
	return tailStream(c, w, in, k, end)
}

// tailFile searches for the last lines from the end of a regular file.
func tailFile(c *tool.Call, w io.Writer, file tool.File, k count, end byte) (done bool, err error) {
	info, err := file.Stat()
	if err != nil || !info.Mode.IsRegular() {
		return false, nil
	}
	start, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return false, nil
	}
	from := start
	if k.bytes {
		from = max(start, info.Size-k.n)
	} else if from, err = lastLineOf(c, file, start, info.Size, k.n, end); err != nil {
		return true, err
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return true, err
	}
	return true, copyAll(c, w, file)
}

// lastLineOf returns the offset of the last n lines of a file.
func lastLineOf(c *tool.Call, file tool.File, start, size, n int64, end byte) (int64, error) {
	buf := make([]byte, 16<<10)
	if n == 0 || size <= start {
		return max(size, start), nil
	}
	n++ // search for the end of the line before them
	for at := size; at > start; {
		from := max(start, at-int64(len(buf)))
		if _, err := file.Seek(from, io.SeekStart); err != nil {
			return 0, err
		}
		b := buf[:at-from]
		if _, err := io.ReadFull(file, b); err != nil {
			return 0, err
		}
		if !c.Step(1 + len(b)>>8) {
			return 0, tool.ErrStop
		}
		if at == size && b[len(b)-1] != end {
			n-- // a last line without its end
		}
		for i := len(b); ; {
			if i = bytes.LastIndexByte(b[:i], end); i < 0 {
				break
			}
			if n--; n == 0 {
				return from + int64(i) + 1, nil
			}
		}
		at = from
	}
	return start, nil
}

// fromLine copies everything from the n-th line or byte on.
func fromLine(c *tool.Call, w io.Writer, in io.Reader, k count, end byte) error {
	skip := max(k.n-1, 0)
	buf := make([]byte, 64<<10)
	for skip > 0 {
		n, err := in.Read(buf)
		if !c.Step(1 + n>>10) {
			return tool.ErrStop
		}
		b := buf[:n]
		for skip > 0 && len(b) > 0 {
			if k.bytes {
				drop := min(skip, int64(len(b)))
				b, skip = b[drop:], skip-drop
				continue
			}
			at := bytes.IndexByte(b, end)
			if at < 0 {
				b = nil
				break
			}
			b, skip = b[at+1:], skip-1
		}
		if _, werr := w.Write(b); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return copyAll(c, w, in)
}

// tailStream stores the last lines of an input that can't seek.
func tailStream(c *tool.Call, w io.Writer, in io.Reader, k count, end byte) error {
	purse := usage.NewPurse(c)
	defer purse.Free()
	var kept []byte
	buf := make([]byte, 64<<10)
	trimAt := 1 << 20
	paid := 0
	for {
		n, err := in.Read(buf)
		if !c.Step(1 + n>>8) {
			return tool.ErrStop
		}
		kept = append(kept, buf[:n]...)
		if len(kept) > trimAt {
			kept = append(kept[:0], kept[lastLines(kept, k, end):]...)
			trimAt = max(1<<20, 2*len(kept))
		}
		if cap(kept) > paid {
			if perr := purse.Pay(cap(kept) - paid); perr != nil {
				return perr
			}
			paid = cap(kept)
		}
		if err == io.EOF {
			_, err = w.Write(kept[lastLines(kept, k, end):])
			return err
		}
		if err != nil {
			return err
		}
	}
}

// followed is a file that tail -f watches.
type followed struct {
	name string
	file tool.File // nil while it can't be opened
	ino  uint64
	pos  int64
}

// follow prints the ends of files, and then all text that is added to them. It ends when it is
// interrupted, when the process of --pid has ended, or when no file is left.
func follow(c *tool.Call, f tool.Flags, k count, end byte, sec *section) int {
	byName := f.Has('F')
	for _, o := range f.All {
		byName = byName || o.Letter == 'f' && o.Value == "name"
	}
	retry := f.Has('F') || f.Has('\x82')
	every := 20 * time.Millisecond
	if s := f.Value('s', ""); s != "" {
		secs, err := strconv.ParseFloat(s, 64)
		if err != nil || secs < 0 {
			return c.Errorf(1, "invalid number of seconds: ‘%s’", s)
		}
		every = max(time.Duration(min(secs, 3600)*float64(time.Second)), time.Millisecond)
	}
	pid, _ := strconv.Atoi(f.Value('\x81', "0")) // nonsense: as without
	names := f.Args
	if len(names) == 0 {
		names = []string{"-"}
	}
	status := 0
	var all []*followed
	var last *followed
	for _, name := range names {
		t := &followed{name: name}
		if name == "-" {
			sec.begin(c.Out, name)
			if err := tailOf(c, c.Out, c.In, k, end); err != nil {
				return 1
			}
			continue
		}
		if err := t.open(c); err != nil {
			status = c.Errorf(1, "cannot open '%s' for reading: %s", name, tool.ErrText(err))
			if retry {
				all = append(all, t)
			}
			continue
		}
		sec.begin(c.Out, name)
		if err := tailOf(c, c.Out, t.file, k, end); err != nil {
			return 1
		}
		t.pos, _ = t.file.Seek(0, io.SeekCurrent) // stays 0 on a pipe
		all, last = append(all, t), t
	}
	defer func() {
		for _, t := range all {
			t.close()
		}
	}()
	for len(all) > 0 {
		gone := pid > 0 && c.Machine().Kill(pid, 0, 0) != nil
		for _, t := range all {
			if byName {
				t.reopen(c, retry)
			}
			if t.file == nil {
				continue
			}
			grown, err := t.more(c)
			if err != nil {
				return 1
			}
			if len(grown) == 0 {
				continue
			}
			if t != last {
				sec.begin(c.Out, t.name)
				last = t
			}
			if _, err := c.Out.Write(grown); err != nil {
				return 1
			}
		}
		if gone {
			return status
		}
		if !c.Sleep(every) || !c.Step(1) {
			return 1
		}
	}
	if f.Has('f') || f.Has('F') {
		if len(f.Args) > 0 {
			c.Errorf(1, "no files remaining")
			return 1
		}
	}
	return status
}

func (t *followed) open(c *tool.Call) error {
	file, err := c.Open(t.name, vfs.ReadOnly, 0)
	if err != nil {
		return err
	}
	t.file, t.pos = file, 0
	if i, err := file.Stat(); err == nil {
		t.ino = i.Ino
	}
	return nil
}

func (t *followed) close() {
	if t.file != nil {
		_ = t.file.Close() // only read
		t.file = nil
	}
}

// reopen opens the file that has the name now.
func (t *followed) reopen(c *tool.Call, retry bool) {
	i, err := c.FS().Stat(c.Abs(t.name))
	switch {
	case err != nil:
		if t.file != nil {
			c.Errorf(0, "'%s' has become inaccessible: %s", t.name, tool.ErrText(err))
			t.close()
		}
	case t.file == nil && retry:
		if t.open(c) == nil {
			c.Errorf(0, "'%s' has appeared;  following new file", t.name)
		}
	case t.file != nil && i.Ino != t.ino:
		t.close()
		if t.open(c) == nil {
			c.Errorf(0, "'%s' has been replaced;  following new file", t.name)
		}
	}
}

// more reads what was added.
func (t *followed) more(c *tool.Call) ([]byte, error) {
	if i, err := t.file.Stat(); err == nil && i.Mode.IsRegular() {
		if i.Size < t.pos {
			c.Errorf(0, "%s: file truncated", t.name)
			if t.pos, err = t.file.Seek(0, io.SeekStart); err != nil {
				return nil, err
			}
		}
		if i.Size == t.pos {
			return nil, nil
		}
	}
	buf := make([]byte, 64<<10)
	n, err := t.file.Read(buf)
	t.pos += int64(n)
	if err == io.EOF || err != nil && strings.Contains(err.Error(), "EOF") {
		err = nil
	}
	return buf[:n], err
}

package sh

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

func toolCat(c *call) int {
	f, ok := c.flags("nbsEAuv", "number=n")
	if !ok {
		return 1
	}
	n := 0
	return c.eachInput(f.args, func(_ string, in io.Reader) error {
		if !f.has('n') && !f.has('b') && !f.has('E') && !f.has('A') {
			return copyAll(c.out, in)
		}
		w := c.buffered()
		err := c.eachLine(in, func(l []byte) error {
			if f.has('n') && !f.has('b') || f.has('b') && len(l) > 0 {
				n++
				fmt.Fprintf(w, "%6d\t", n)
			}
			w.Write(l)
			if f.has('E') || f.has('A') {
				w.WriteByte('$')
			}
			return w.WriteByte('\n')
		})
		return errors.Join(err, w.Flush())
	})
}

// copyAll copies; a failed write ends it silently, since the shell has dealt with it.
func copyAll(out io.Writer, in io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if _, werr := out.Write(buf[:n]); werr != nil {
				if errText(werr) == "No space left on device" {
					return werr
				}
				return errStop
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

// count reads head's and tail's number, with the old form -5.
func (c *call) count(dflt string) (f flags, n int64, bytes, ok bool) {
	for i, a := range c.args {
		if len(a) > 1 && a[0] == '-' && a[1] >= '0' && a[1] <= '9' {
			c.args = append(append(append([]string(nil), c.args[:i]...), "-n", a[1:]), c.args[i+1:]...)
			break
		}
	}
	f, ok = c.flags("n:c:qvfF", "lines=n", "bytes=c", "quiet=q")
	if !ok {
		return
	}
	text := dflt
	if f.has('n') {
		text = f.val['n']
	}
	if bytes = f.has('c'); bytes {
		text = f.val['c']
	}
	n, err := parseSize(text)
	if err != nil {
		c.complain(1, "invalid number of lines: '%s'", text)
		ok = false
	}
	return f, n, bytes, ok
}

// parseSize reads 10, 2K, 1M; a leading + or - is kept for the caller in the sign.
func parseSize(s string) (int64, error) {
	unit := int64(1)
	if s != "" {
		if at := strings.IndexByte("KMG", s[len(s)-1]&^0x20); at >= 0 {
			unit = 1 << (10 * (at + 1))
			s = s[:len(s)-1]
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && (n > 1<<40 || n < -1<<40) {
		err = strconv.ErrRange
	}
	return n * unit, err
}

func (c *call) header(f flags, name string, first *bool) {
	if len(f.args) > 1 && !f.has('q') {
		if name == "-" {
			name = "standard input"
		}
		if !*first {
			c.print("\n")
		}
		c.print("==> " + name + " <==\n")
	}
	*first = false
}

func toolHead(c *call) int {
	f, n, bytewise, ok := c.count("10")
	if !ok {
		return 1
	}
	first := true
	return c.eachInput(f.args, func(name string, in io.Reader) error {
		c.header(f, name, &first)
		if n < 0 {
			return c.allBut(in, -n, bytewise)
		}
		if bytewise {
			return copyAll(c.out, io.LimitReader(in, n))
		}
		if n == 0 {
			return nil
		}
		w := c.buffered()
		left := n
		err := c.eachLine(in, func(l []byte) error {
			w.Write(l)
			w.WriteByte('\n')
			if left--; left == 0 {
				return errStop
			}
			return nil
		})
		if errors.Is(err, errStop) && c.r.flow == flowNone {
			err = nil
		}
		return errors.Join(err, w.Flush())
	})
}

// allBut prints all but the last n lines or bytes.
func (c *call) allBut(in io.Reader, n int64, bytewise bool) error {
	data, err := c.slurp(in)
	if err != nil {
		return err
	}
	if bytewise {
		_, err = c.out.Write(data[:max(int64(len(data))-n, 0)])
		return err
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	_, err = c.out.Write(bytes.Join(lines[:max(int64(len(lines))-n, 0)], nil))
	return err
}

func toolTail(c *call) int {
	from := false
	for i, a := range c.args {
		if strings.HasPrefix(a, "+") && i > 0 && (c.args[i-1] == "-n" || c.args[i-1] == "-c") || strings.HasPrefix(a, "-n+") || strings.HasPrefix(a, "-c+") {
			from = true
		}
	}
	f, n, bytewise, ok := c.count("10")
	if !ok {
		return 1
	}
	if f.has('f') || f.has('F') {
		return c.follow(f.args)
	}
	n = max(n, -n)
	first := true
	return c.eachInput(f.args, func(name string, in io.Reader) error {
		c.header(f, name, &first)
		data, err := c.slurp(in)
		if err != nil {
			return err
		}
		if bytewise {
			at := int64(len(data)) - n
			if from {
				at = n - 1
			}
			at = min(max(at, 0), int64(len(data)))
			_, err = c.out.Write(data[at:])
			return err
		}
		lines := bytes.SplitAfter(data, []byte("\n"))
		if len(lines[len(lines)-1]) == 0 {
			lines = lines[:len(lines)-1]
		}
		at := int64(len(lines)) - n
		if from {
			at = n - 1
		}
		at = min(max(at, 0), int64(len(lines)))
		_, err = c.out.Write(bytes.Join(lines[at:], nil))
		return err
	})
}

func toolWc(c *call) int {
	f, ok := c.flags("lwcm", "lines=l", "words=w", "bytes=c", "chars=m")
	if !ok {
		return 1
	}
	all := !f.has('l') && !f.has('w') && !f.has('c') && !f.has('m')
	type counts struct{ lines, words, chars, bytes int64 }
	width := 7
	if len(f.on) == 1 && len(f.args) < 2 {
		width = 1
	}
	if len(f.args) > 0 {
		var size int64
		for _, a := range f.args {
			if i, err := c.stat(a); err == nil {
				size += i.Size
			}
		}
		if width != 1 {
			width = len(strconv.FormatInt(size, 10))
		}
	}
	show := func(n counts, name string) {
		var cols []string
		add := func(on bool, v int64) {
			if on {
				cols = append(cols, fmt.Sprintf("%*d", width, v))
			}
		}
		add(all || f.has('l'), n.lines)
		add(all || f.has('w'), n.words)
		add(f.has('m'), n.chars)
		add(all || f.has('c'), n.bytes)
		line := strings.Join(cols, " ")
		if name != "" {
			line += " " + name
		}
		c.print(line + "\n")
	}
	var total counts
	status := c.eachInput(f.args, func(name string, in io.Reader) error {
		var n counts
		if i, err := c.stat(name); err == nil && f.has('c') && len(f.on) == 1 && i.Mode.IsRegular() && name != "-" {
			total.bytes += i.Size // no need to read it
			show(counts{bytes: i.Size}, name)
			return nil
		}
		inWord := false
		buf := make([]byte, 32<<10)
		for {
			k, err := in.Read(buf)
			for _, b := range buf[:k] {
				n.bytes++
				if b&0xc0 != 0x80 {
					n.chars++
				}
				space := b == ' ' || b >= '\t' && b <= '\r'
				if b == '\n' {
					n.lines++
				}
				if !space && !inWord {
					n.words++
				}
				inWord = !space
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
		}
		total.lines, total.words, total.chars, total.bytes = total.lines+n.lines, total.words+n.words, total.chars+n.chars, total.bytes+n.bytes
		if len(f.args) == 0 {
			name = ""
		}
		show(n, name)
		return nil
	})
	if len(f.args) > 1 {
		show(total, "total")
	}
	return status
}

func toolTee(c *call) int {
	f, ok := c.flags("ai", "append=a")
	if !ok {
		return 1
	}
	outs := []io.Writer{c.out}
	status := 0
	for _, name := range f.args {
		fl := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
		if f.has('a') {
			fl = vfs.WriteOnly | vfs.CreateNew | vfs.Append
		}
		d, err := c.r.openFile(name, fl)
		if err != nil {
			status = c.complain(1, "%s: %s", name, errText(err))
			continue
		}
		defer d.drop()
		outs = append(outs, descWriter{c.r, d})
	}
	if err := copyAll(io.MultiWriter(outs...), c.in); err != nil && !errors.Is(err, errStop) {
		return c.complain(1, "%s", errText(err))
	}
	return status
}

// descWriter writes to a description that has no number.
type descWriter struct {
	r *runner
	d *desc
}

func (w descWriter) Write(b []byte) (int, error) { return w.d.Write(w.r.ctx, b) }

func toolTac(c *call) int {
	return c.eachInput(c.args, func(_ string, in io.Reader) error {
		data, err := c.slurp(in)
		if err != nil {
			return err
		}
		lines := strings.SplitAfter(string(data), "\n")
		w := c.buffered()
		for i := len(lines) - 1; i >= 0; i-- {
			w.WriteString(lines[i])
		}
		return w.Flush()
	})
}

func toolRev(c *call) int {
	w := c.buffered()
	status := c.eachInput(c.args, func(_ string, in io.Reader) error {
		return c.eachLine(in, func(l []byte) error {
			out := make([]byte, 0, len(l)+1)
			for len(l) > 0 {
				_, n := utf8.DecodeLastRune(l)
				out = append(out, l[len(l)-n:]...)
				l = l[:len(l)-n]
			}
			_, err := w.Write(append(out, '\n'))
			return err
		})
	})
	return max(status, boolStatus(w.Flush() == nil))
}

func toolNl(c *call) int {
	f, ok := c.flags("b:w:s:n:")
	if !ok {
		return 1
	}
	w := c.buffered()
	n := 0
	status := c.eachInput(f.args, func(_ string, in io.Reader) error {
		return c.eachLine(in, func(l []byte) error {
			if len(l) == 0 && f.val['b'] != "a" {
				_, err := w.WriteString("       \n")
				return err
			}
			n++
			_, err := fmt.Fprintf(w, "%6d\t%s\n", n, l)
			return err
		})
	})
	return max(status, boolStatus(w.Flush() == nil))
}

func toolPaste(c *call) int {
	f, ok := c.flags("d:s", "delimiters=d", "serial=s")
	if !ok {
		return 1
	}
	delim := "\t"
	if f.has('d') {
		delim, _ = unescape(f.val['d'], escDollar)
	}
	var cols [][]string
	status := c.eachInput(f.args, func(_ string, in io.Reader) error {
		data, err := c.slurp(in)
		if err != nil {
			return err
		}
		cols = append(cols, strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"))
		return nil
	})
	w := c.buffered()
	sep := func(i int) string {
		if delim == "" {
			return ""
		}
		return string(delim[i%len(delim)])
	}
	if f.has('s') {
		for _, col := range cols {
			for i, s := range col {
				if i > 0 {
					w.WriteString(sep(i - 1))
				}
				w.WriteString(s)
			}
			w.WriteByte('\n')
		}
		return max(status, boolStatus(w.Flush() == nil))
	}
	rows := 0
	for _, col := range cols {
		rows = max(rows, len(col))
	}
	for row := range rows {
		for i, col := range cols {
			if i > 0 {
				w.WriteString(sep(i - 1))
			}
			if row < len(col) {
				w.WriteString(col[row])
			}
		}
		w.WriteByte('\n')
	}
	return max(status, boolStatus(w.Flush() == nil))
}

// follow prints the end of a file and then what is added to it, until it is
// interrupted.
func (c *call) follow(names []string) int {
	if len(names) != 1 {
		return c.complain(1, "-f takes one file in the simulated tier")
	}
	in, err := c.openIn(names[0])
	if err != nil {
		return c.complain(1, "cannot open '%s' for reading: %s", names[0], errText(err))
	}
	defer in.Close()
	const every = 50 * time.Millisecond
	for {
		if err := copyAll(c.out, in); err != nil {
			return 1
		}
		if !c.r.nap(every) {
			return 1
		}
	}
}

package text

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// counts are what wc counts.
type counts struct{ lines, words, chars, bytes, longest int64 }

// counter counts in one input.
type counter struct {
	counts
	chars, longest, words bool
	inWord                bool
	column                int64
	rest                  []byte // an unfinished character
}

func wc(c *tool.Call) int {
	f, ok := c.Flags("clLmw\x81:\x82:", "bytes=c", "chars=m", "lines=l", "words=w", "max-line-length=L", "files0-from=\x81", "total=\x82")
	if !ok {
		return 1
	}
	show := [5]bool{f.Has('l'), f.Has('w'), f.Has('m'), f.Has('c'), f.Has('L')}
	if show == [5]bool{} {
		show = [5]bool{true, true, false, true, false}
	}
	when := f.Value('\x82', "auto")
	names := f.Args
	status := 0
	if f.Has('\x81') {
		if len(names) > 0 {
			c.Errorf(1, "extra operand '%s'", names[0])
			fmt.Fprintln(c.Err, "file operands cannot be combined with --files0-from")
			return usage.Try(c, 1)
		}
		in, err := usage.Open(c, f.Value('\x81', ""))
		if err != nil {
			return c.Errorf(1, "cannot open '%s' for reading: %s", f.Value('\x81', ""), tool.ErrText(err))
		}
		number := 0
		err = c.Lines(in, 0, func(l []byte, _ bool) error {
			if number++; len(l) == 0 {
				status = c.Errorf(1, "%s:%d: invalid zero-length file name", f.Value('\x81', ""), number)
				return nil
			}
			names = append(names, string(l))
			return c.Pay(int64(len(l)) + 16)
		})
		_ = in.Close() // only read
		if err != nil {
			return 1
		}
		if len(names) == 0 {
			return status
		}
	}
	only := 0
	for _, on := range show {
		if on {
			only++
		}
	}
	width := wcWidth(c, names, only, when)
	w := c.Buffered()
	var total counts
	for _, name := range names { // a directory can be opened, and has no content
		if i, err := c.FS().Stat(c.Abs(name)); err == nil && i.Mode.IsDir() && name != "-" && len(names) == 1 {
			c.Errorf(1, "%s: Is a directory", name)
			total.print(w, show, width, name)
			return c.Flush(w, 1)
		}
	}
	status = max(status, usage.Inputs(c, names, "%s", 1, func(name string, in io.Reader) error {
		k := counter{chars: show[2], longest: show[4], words: show[1]}
		err := k.read(c, in, show)
		total.add(k.counts)
		if len(names) == 0 {
			name = ""
		}
		if when != "only" {
			k.print(w, show, width, name)
		}
		return err
	}))
	switch {
	case when == "only":
		total.print(w, show, 1, "")
	case when == "always" || when == "auto" && len(names) > 1:
		total.print(w, show, width, "total")
	}
	return c.Flush(w, status)
}

// wcWidth returns the width of a number in the output: the width of the sum of all sizes, or 7 if
// the sizes are not known in advance.
func wcWidth(c *tool.Call, names []string, columns int, when string) int {
	if when == "only" || columns == 1 && len(names) <= 1 {
		return 1
	}
	if len(names) == 0 {
		names = []string{"-"}
	}
	width, size := 1, int64(0)
	for _, name := range names {
		if name == "-" {
			file := usage.Stdin(c)
			if file == nil {
				width = 7
				continue
			}
			if i, err := file.Stat(); err == nil && i.Mode.IsRegular() {
				size += i.Size
			} else {
				width = 7
			}
			_ = file.Close() // only looked at
			continue
		}
		i, err := c.FS().Stat(c.Abs(name))
		switch {
		case err != nil:
		case i.Mode.IsRegular():
			size += i.Size
		default:
			width = 7
		}
	}
	return max(width, len(strconv.FormatInt(size, 10)))
}

func (k *counts) add(o counts) {
	k.lines, k.words, k.chars, k.bytes = k.lines+o.lines, k.words+o.words, k.chars+o.chars, k.bytes+o.bytes
	k.longest = max(k.longest, o.longest)
}

func (k *counts) print(w io.Writer, show [5]bool, width int, name string) {
	var cols []string
	for i, n := range [5]int64{k.lines, k.words, k.chars, k.bytes, k.longest} {
		if show[i] {
			cols = append(cols, fmt.Sprintf("%*d", width, n))
		}
	}
	if name != "" {
		cols = append(cols, name)
	}
	fmt.Fprintln(w, strings.Join(cols, " "))
}

// read counts the content of in. It counts only the columns that are shown.
func (k *counter) read(c *tool.Call, in io.Reader, show [5]bool) error {
	if show == [5]bool{3: true} {
		if file, ok := in.(tool.File); ok {
			if i, err := file.Stat(); err == nil && i.Mode.IsRegular() {
				if at, err := file.Seek(0, io.SeekCurrent); err == nil {
					k.bytes = max(i.Size-at, 0)
					return nil
				}
			}
		}
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if !c.Step(1 + n>>9) {
			return tool.ErrStop
		}
		b := buf[:n]
		k.bytes += int64(n)
		switch {
		case k.longest || k.chars:
			k.slow(b)
		case k.words:
			k.fast(b)
		default:
			k.lines += int64(bytes.Count(b, newline))
		}
		if err == io.EOF {
			k.counts.longest = max(k.counts.longest, k.column)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var newline = []byte{'\n'}

// space says which bytes separate words.
var space = [256]bool{' ': true, '\t': true, '\n': true, '\v': true, '\f': true, '\r': true}

// fast counts lines and words. White space beyond ASCII can separate words too, so it passes blocks
// with other bytes to slow.
func (k *counter) fast(b []byte) {
	if len(k.rest) > 0 || !ascii(b) {
		k.slow(b)
		return
	}
	in, words, lines := k.inWord, int64(0), int64(0)
	for _, c := range b {
		if space[c] {
			in = false
			if c == '\n' {
				lines++
			}
		} else if c >= ' ' && c != 0x7f { // others are neither
			if !in {
				words++
			}
			in = true
		}
	}
	k.inWord, k.lines = in, k.lines+lines
	k.counts.words += words
}

func ascii(b []byte) bool {
	for len(b) >= 8 {
		if (b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7])&0x80 != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// slow also counts characters and columns. Bytes that are not UTF-8 do not count as characters.
func (k *counter) slow(b []byte) {
	if len(k.rest) > 0 {
		b = append(k.rest, b...)
		k.rest = nil
	}
	for len(b) > 0 {
		r, n := rune(b[0]), 1
		if r >= utf8.RuneSelf {
			if r, n = utf8.DecodeRune(b); r == utf8.RuneError && n == 1 {
				if !utf8.FullRune(b) {
					k.rest = bytes.Clone(b)
					return
				}
				b = b[1:]
				k.word(true)
				continue
			}
		}
		b = b[n:]
		k.counts.chars++
		switch r {
		case '\n':
			k.lines++
			fallthrough
		case '\r', '\f':
			k.counts.longest = max(k.counts.longest, k.column)
			k.column = 0
			k.inWord = false
		case '\t':
			k.column += 8 - k.column%8
			k.inWord = false
		case ' ':
			k.column++
			k.inWord = false
		case '\v':
			k.inWord = false
		default:
			k.column += int64(tool.RuneWidth(r))
			if r >= utf8.RuneSelf && unicode.IsSpace(r) && r != 0xa0 && r != 0x2007 && r != 0x202f {
				k.inWord = false
			} else {
				k.word(unicode.IsPrint(r) || r >= utf8.RuneSelf)
			}
		}
	}
}

// word counts a character that is part of a word. A character that can't be printed does not begin
// or end a word.
func (k *counter) word(printable bool) {
	if printable && !k.inWord {
		k.counts.words++
		k.inWord = true
	}
}

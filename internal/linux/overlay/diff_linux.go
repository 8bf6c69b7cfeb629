package overlay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// maxText is the largest size of a file that is compared line by line.
const maxText = 8 << 20

// emptyBlob is git's name of an empty file. It tells patch that a file without lines is added or
// removed.
const emptyBlob = "e69de29"

// Diff writes the changes as a unified diff that "git apply" and "patch -p1" read. Of binary files,
// and of those of more than 8 MiB, it writes only the names. A diff can't express permissions other
// than "executable", empty directories and special files. Diff names them in lines that both
// programs skip.
func Diff(ctx context.Context, w io.Writer, lower, upper string, changes []Change) (err error) {
	d := &differ{w: bufio.NewWriterSize(w, 64<<10)}
	if d.lower, err = openTree(lower, false); err != nil {
		return err
	}
	defer d.lower.Close()
	if d.upper, err = openTree(upper, true); err != nil {
		return err
	}
	defer d.upper.Close()
	for _, c := range order(changes) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.change(c); err != nil {
			return err
		}
		if d.w.Buffered() > 48<<10 {
			if err := d.w.Flush(); err != nil {
				return err
			}
		}
	}
	return d.w.Flush()
}

// order moves the content of a directory before the file that took the directory's place, because
// patch works in the order of the diff.
func order(changes []Change) []Change {
	out := make([]Change, 0, len(changes))
	for i := 0; i < len(changes); i++ {
		c := changes[i]
		n := i + 1
		if c.Kind == Modified && !c.Mode.IsDir() {
			for n < len(changes) && changes[n].Kind == Removed && strings.HasPrefix(changes[n].Path, c.Path+"/") {
				n++
			}
		}
		out = append(append(out, changes[i+1:n]...), c)
		i = n - 1
	}
	return out
}

// differ writes one diff.
type differ struct {
	w            *bufio.Writer
	lower, upper *tree
}

// side is a file before or after the change; the zero value is no file.
type side struct {
	mode   string // as git has it; "" is none
	perm   uint32
	text   []byte
	binary bool
}

// change writes one change.
func (d *differ) change(c Change) error {
	low, err := d.lower.stat(c.Path)
	if err != nil && !errors.Is(err, unix.EXDEV) {
		return err
	}
	var up *node
	if c.Kind != Removed {
		if up, err = d.upper.stat(c.Path); err != nil {
			return err
		}
		if what := up.special(); what != "" {
			_, err := fmt.Fprintf(d.w, "# %s is %s now\n", quotePath("b/"+c.Path), what)
			return err
		}
	}
	a, err := d.read(d.lower, c.Path, low, low)
	if err != nil {
		return err
	}
	b, err := d.read(d.upper, c.Path, up, low)
	if err != nil {
		return err
	}
	if low.isDir() && up.isDir() && c.Kind == Mode {
		d.note(c.Path, low.Mode, newMode(up, low))
	}
	switch {
	case a.mode == "" && b.mode == "":
	case a.mode == "" || b.mode == "" || a.mode[:2] == b.mode[:2]: // the first two digits are the type
		d.file(c.Path, a, b)
	default: // a file became a link, or a link a file
		d.file(c.Path, a, side{})
		d.file(c.Path, side{}, b)
	}
	return nil
}

// note writes a line about a change that a diff can't express.
func (d *differ) note(p string, from, to uint32) {
	_, _ = fmt.Fprintf(d.w, "# the permissions of %s were %04o and are %04o\n", quotePath("b/"+p), from&0o7777, to&0o7777)
}

// read reads one side. For directories and special files it returns no file.
func (d *differ) read(t *tree, p string, n, low *node) (side, error) {
	switch {
	case n.isLink():
		target, err := t.link(p)
		return side{mode: "120000", perm: n.Mode, text: []byte(target)}, err
	case n.isRegular():
		s := side{mode: "100644", perm: newMode(n, low)}
		if n.Mode&0o100 != 0 {
			s.mode = "100755"
		}
		if n.Size > maxText {
			s.binary = true
			return s, nil
		}
		f, err := t.file(p)
		if err != nil {
			return s, err
		}
		defer f.Close()
		if t.private {
			if err := whole(f); err != nil {
				return s, err
			}
		}
		s.text, err = io.ReadAll(io.LimitReader(f, maxText+1))
		s.binary = bytes.IndexByte(s.text, 0) >= 0 || len(s.text) > maxText
		return s, err
	}
	return side{}, nil
}

// file writes the difference between two sides. One of them may be no file.
func (d *differ) file(p string, a, b side) {
	an, bn := quotePath("a/"+p), quotePath("b/"+p)
	executable := a.mode != b.mode
	same := !a.binary && !b.binary && bytes.Equal(a.text, b.text)
	if both := a.mode != "" && b.mode != ""; both && !executable && same {
		if a.perm != b.perm {
			d.note(p, a.perm, b.perm)
		}
		return
	}
	var head strings.Builder
	head.WriteString("diff --git " + an + " " + bn + "\n")
	switch {
	case a.mode == "":
		head.WriteString("new file mode " + b.mode + "\n")
		if same {
			head.WriteString("index 0000000.." + emptyBlob + "\n")
		}
		an = "/dev/null"
	case b.mode == "":
		head.WriteString("deleted file mode " + a.mode + "\n")
		if same {
			head.WriteString("index " + emptyBlob + "..0000000\n")
		}
		bn = "/dev/null"
	case executable:
		head.WriteString("old mode " + a.mode + "\nnew mode " + b.mode + "\n")
	}
	switch {
	case a.binary || b.binary:
		head.WriteString("Binary files " + an + " and " + bn + " differ\n")
	case !same:
		head.WriteString("--- " + an + "\n+++ " + bn + "\n")
	}
	_, _ = d.w.WriteString(head.String())
	if !a.binary && !b.binary && !same {
		writeHunks(d.w, splitLines(a.text), splitLines(b.text))
	}
}

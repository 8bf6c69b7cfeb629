package git

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/carrel-dev/carrel/shell/tool"
)

// quotePath writes a path as git does: in quotes if it has unusual characters.
func quotePath(s string) string {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			plain = false
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// patch writes one change as a patch.
func (r *repo) patch(c change, old, new side, o *diffOptions) error {
	if c.kind == 'U' {
		r.printf("* Unmerged path %s\n", c.new)
		return nil
	}
	if c.kind == 'T' {
		first, second := c, c
		first.kind, first.to = 'D', entry{}
		second.kind, second.from = 'A', entry{}
		if err := r.patch(first, old, new, o); err != nil {
			return err
		}
		return r.patch(second, old, new, o)
	}
	a, b, err := c.contents(old, new)
	if err != nil {
		return err
	}
	left, right := "a/", "b/"
	if o.noPrefix {
		left, right = "", ""
	}
	w := r.w
	fmt.Fprintf(w, "diff --git %s %s\n", quotePath(left+c.old), quotePath(right+c.new))
	switch {
	case c.kind == 'A':
		fmt.Fprintf(w, "new file mode %06o\n", uint32(c.to.mode))
	case c.kind == 'D':
		fmt.Fprintf(w, "deleted file mode %06o\n", uint32(c.from.mode))
	case c.from.mode != c.to.mode:
		fmt.Fprintf(w, "old mode %06o\nnew mode %06o\n", uint32(c.from.mode), uint32(c.to.mode))
	}
	if c.kind == 'R' {
		fmt.Fprintf(w, "similarity index %d%%\nrename from %s\nrename to %s\n", c.score, quotePath(c.old), quotePath(c.new))
	}
	ha, hb := c.from.hash, c.to.hash
	if c.kind != 'D' && hb.IsZero() {
		hb = plumbing.ComputeHash(plumbing.BlobObject, b)
	}
	if ha == hb {
		return nil
	}
	fmt.Fprintf(w, "index %s..%s", abbreviate(ha), abbreviate(hb))
	if c.kind != 'A' && c.kind != 'D' && c.from.mode == c.to.mode {
		fmt.Fprintf(w, " %06o", uint32(c.to.mode))
	}
	fmt.Fprint(w, "\n")
	from, to := quotePath(left+c.old), quotePath(right+c.new)
	if c.kind == 'A' {
		from = "/dev/null"
	}
	if c.kind == 'D' {
		to = "/dev/null"
	}
	if isBinary(a) || isBinary(b) {
		fmt.Fprintf(w, "Binary files %s and %s differ\n", from, to)
		return nil
	}
	if len(a) == 0 && len(b) == 0 {
		return nil
	}
	fmt.Fprintf(w, "--- %s%s\n+++ %s%s\n", from, tab(from), to, tab(to))
	return r.hunks(a, b, o)
}

// tab returns the text that follows a name with a space.
func tab(name string) string {
	if strings.Contains(name, " ") && name[0] != '"' {
		return "\t"
	}
	return ""
}

// hunks writes the differences between two texts.
func (r *repo) hunks(old, new []byte, o *diffOptions) error {
	a, b := splitLines(old), splitLines(new)
	edits, err := r.compare(keyLines(a, o.ignoreSpace), keyLines(b, o.ignoreSpace))
	if err != nil {
		return err
	}
	n := o.context
	for i := 0; i < len(edits); {
		j := i + 1
		for j < len(edits) && edits[j].a1-edits[j-1].a2 <= 2*n {
			j++
		}
		first, last := edits[i], edits[j-1]
		a1, a2 := max(first.a1-n, 0), min(last.a2+n, len(a))
		b1, b2 := max(first.b1-n, 0), min(last.b2+n, len(b))
		fmt.Fprintf(r.w, "@@ -%s +%s @@%s\n", span(a1, a2), span(b1, b2), function(a, a1))
		at := a1
		for _, e := range edits[i:j] {
			for ; at < e.a1; at++ {
				r.line(' ', b[e.b1-(e.a1-at)])
			}
			for ; at < e.a2; at++ {
				r.line('-', a[at])
			}
			for k := e.b1; k < e.b2; k++ {
				r.line('+', b[k])
			}
		}
		for k := 0; at < a2; at, k = at+1, k+1 {
			r.line(' ', b[last.b2+k])
		}
		if !r.Step(20 + a2 - a1 + b2 - b1) {
			return tool.ErrStop
		}
		i = j
	}
	return nil
}

// keyLines returns the form of the lines that is compared.
func keyLines(lines [][]byte, noSpace bool) [][]byte {
	if !noSpace {
		return lines
	}
	out := make([][]byte, len(lines))
	for i, l := range lines {
		out[i] = bytes.Join(bytes.Fields(l), nil)
	}
	return out
}

func (r *repo) line(mark byte, l []byte) {
	fmt.Fprintf(r.w, "%c%s", mark, l)
	if len(l) == 0 || l[len(l)-1] != '\n' {
		fmt.Fprint(r.w, "\n\\ No newline at end of file\n")
	}
}

func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

// function returns the last line above a hunk that begins a function or the like.
func function(lines [][]byte, at int) string {
	for i := at - 1; i >= 0 && i > at-10000; i-- {
		l := lines[i]
		if len(l) > 0 && (l[0]|0x20 >= 'a' && l[0]|0x20 <= 'z' || l[0] == '_' || l[0] == '$') {
			l = bytes.TrimRight(l[:min(len(l), 80)], " \t\r\n")
			return " " + string(l)
		}
	}
	return ""
}

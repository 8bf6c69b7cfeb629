package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

func column(c *tool.Call) int {
	f, ok := c.Flags("tc:dE:eH:i:JLlN:n:O:o:p:R:r:s:T:W:xh", "table=t", "output-width=c", "table-noheadings=d", "table-noextreme=E", "table-header-repeat=e", "table-hide=H",
		"json=J", "keep-empty-lines=L", "table-columns=N", "table-name=n", "table-order=O", "output-separator=o", "table-right=R", "separator=s", "table-truncate=T",
		"table-wrap=W", "fillrows=x", "table-columns-limit=l:", "table-empty-lines=L")
	if !ok {
		return 1
	}
	purse := usage.NewPurse(c)
	defer purse.Free()
	var lines [][]byte
	status := usage.Inputs(c, f.Args, "%s", 1, func(_ string, in io.Reader) error {
		data, err := purse.ReadAll(in)
		if err != nil {
			return err
		}
		for l := range bytes.Lines(data) {
			l = bytes.TrimSuffix(l, newline)
			if len(bytes.TrimSpace(l)) == 0 && !f.Has('L') {
				continue
			}
			if err := purse.Pay(24); err != nil {
				return err
			}
			lines = append(lines, l)
		}
		return nil
	})
	w := c.Buffered()
	if f.Has('t') || f.Has('J') {
		t := &table{c: c, w: w, flags: f, sep: "  "}
		if f.Has('o') {
			t.sep = unescape(f.Value('o', ""))
		}
		if err := t.split(lines); err != nil {
			return c.Errorf(1, "%v", err)
		}
		if f.Has('J') {
			t.json()
		} else {
			t.print()
		}
		return c.Flush(w, status)
	}
	width := 80
	if cols, _, ok := c.Terminal(1); ok && cols > 0 {
		width = cols
	}
	if n, err := strconv.Atoi(c.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	if f.Has('c') {
		n, err := atoi(f.Value('c', ""))
		if err != nil || n == 0 {
			return c.Errorf(1, "invalid columns argument: '%s'", f.Value('c', ""))
		}
		width = n
	}
	fill(w, lines, width, f.Has('x'))
	return c.Flush(w, status)
}

// fill prints lines in as many columns as fit. Tabs separate the columns.
func fill(w io.Writer, lines [][]byte, width int, rows bool) {
	longest := 0
	for _, l := range lines {
		longest = max(longest, tool.Columns(l))
	}
	if longest >= width {
		for _, l := range lines {
			fmt.Fprintf(w, "%s\n", l)
		}
		return
	}
	longest = (longest + 8) &^ 7
	cols := max(width/longest, 1)
	high := (len(lines) + cols - 1) / cols
	var b []byte
	for row := range high {
		b = b[:0]
		at, edge := 0, longest
		for col := range cols {
			i := col*high + row
			if rows {
				i = row*cols + col
			}
			if i >= len(lines) {
				break
			}
			b = append(b, lines[i]...)
			at += tool.Columns(lines[i])
			last := i+high >= len(lines)
			if rows {
				last = i+1 >= len(lines) || col == cols-1
			}
			if last {
				break
			}
			for next := (at + 8) &^ 7; next <= edge; next = (at + 8) &^ 7 {
				b = append(b, '\t')
				at = next
			}
			edge += longest
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return
		}
	}
}

// table is column -t.
type table struct {
	c     *tool.Call
	w     io.Writer
	flags tool.Flags
	sep   string
	names []string
	rows  [][][]byte
	cols  int
	right map[int]bool
	hide  map[int]bool
	order []int
}

// split splits the lines into fields.
func (t *table) split(lines [][]byte) error {
	f := t.flags
	if f.Has('N') {
		t.names = strings.Split(f.Value('N', ""), ",")
	}
	limit := 0
	if v := f.Value('l', ""); v != "" {
		n, err := atoi(v)
		if err != nil || n == 0 {
			return fmt.Errorf("invalid columns limit argument: '%s'", v)
		}
		limit = n
	}
	seps := []byte(unescape(f.Value('s', "")))
	for i, l := range lines {
		if i%64 == 0 && !t.c.Step(64) {
			return tool.ErrStop
		}
		var row [][]byte
		if f.Has('s') {
			for {
				at := bytes.IndexAny(l, string(seps))
				if at < 0 || limit > 0 && len(row) == limit-1 {
					break
				}
				row = append(row, l[:at])
				l = l[at+1:]
			}
			row = append(row, l)
		} else {
			for {
				l = bytes.TrimLeft(l, " \t")
				if len(l) == 0 {
					break
				}
				at := bytes.IndexAny(l, " \t")
				if at < 0 || limit > 0 && len(row) == limit-1 {
					at = len(l)
				}
				row = append(row, l[:at])
				l = l[at:]
			}
		}
		t.cols = max(t.cols, len(row))
		t.rows = append(t.rows, row)
	}
	t.cols = max(t.cols, len(t.names))
	var err error
	if t.right, err = t.columns(f.Value('R', "")); err != nil {
		return err
	}
	if t.hide, err = t.columns(f.Value('H', "")); err != nil {
		return err
	}
	first, err := t.columnList(f.Value('O', ""))
	if err != nil {
		return err
	}
	seen := map[int]bool{}
	for _, n := range first {
		seen[n] = true
	}
	t.order = first
	for n := range t.cols {
		if !seen[n] {
			t.order = append(t.order, n)
		}
	}
	kept := t.order[:0]
	for _, n := range t.order {
		if !t.hide[n] && n < t.cols {
			kept = append(kept, n)
		}
	}
	t.order = kept
	return nil
}

// columnList reads names and numbers of columns.
func (t *table) columnList(s string) (out []int, err error) {
	if s == "" {
		return nil, nil
	}
	for p := range strings.SplitSeq(s, ",") {
		found := -1
		if n, err := strconv.Atoi(p); err == nil {
			found = n - 1
			if n < 0 {
				found = t.cols + n
			}
		}
		for i, name := range t.names {
			if name == p {
				found = i
			}
		}
		if p == "-" || p == "0" {
			for i := len(t.names); i < t.cols; i++ {
				out = append(out, i)
			}
			continue
		}
		if found < 0 || found >= t.cols {
			return nil, fmt.Errorf("undefined column name '%s'", p)
		}
		out = append(out, found)
	}
	return out, nil
}

func (t *table) columns(s string) (map[int]bool, error) {
	list, err := t.columnList(s)
	out := map[int]bool{}
	for _, n := range list {
		out[n] = true
	}
	return out, err
}

func (t *table) print() {
	rows := t.rows
	if len(t.names) > 0 && !t.flags.Has('d') {
		head := make([][]byte, len(t.names))
		for i, n := range t.names {
			head[i] = []byte(n)
		}
		rows = append([][][]byte{head}, rows...)
	}
	width := make([]int, t.cols)
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], tool.Columns(cell))
		}
	}
	var b []byte
	for _, r := range rows {
		b = b[:0]
		for k, n := range t.order {
			var cell []byte
			if n < len(r) {
				cell = r[n]
			}
			pad := width[n] - tool.Columns(cell)
			if t.right[n] {
				b = append(b, strings.Repeat(" ", pad)...)
			}
			b = append(b, cell...)
			if k < len(t.order)-1 {
				if !t.right[n] {
					b = append(b, strings.Repeat(" ", pad)...)
				}
				b = append(b, t.sep...)
			}
		}
		if _, err := t.w.Write(append(b, '\n')); err != nil || !t.c.Step(len(b)>>6) {
			return
		}
	}
}

func (t *table) json() {
	quote := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			return `""`
		}
		return string(b)
	}
	fmt.Fprintf(t.w, "{\n   %s: [\n", quote(strings.ToLower(t.flags.Value('n', "table"))))
	for i, r := range t.rows {
		open := "      {"
		if i > 0 {
			open = ",{"
		}
		fmt.Fprintf(t.w, "%s\n", open)
		for k, n := range t.order {
			name, value := strconv.Itoa(n), "null"
			if n < len(t.names) {
				name = t.names[n]
			}
			if n < len(r) {
				value = quote(string(r[n]))
			}
			comma := ","
			if k == len(t.order)-1 {
				comma = ""
			}
			fmt.Fprintf(t.w, "         %s: %s%s\n", quote(strings.ToLower(name)), value, comma)
		}
		fmt.Fprint(t.w, "      }")
	}
	fmt.Fprint(t.w, "\n   ]\n}\n")
}

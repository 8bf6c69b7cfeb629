package files

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

const noEndText = "\n\\ No newline at end of file\n"

// line writes one line of a file after a sign.
func (d *differ) line(sign string, t text, i int) {
	d.w.WriteString(sign)
	line := t.lines[i]
	if d.expand {
		col := 0
		for _, b := range line {
			if b == '\t' {
				for n := 8 - col%8; n > 0; n-- {
					d.w.WriteByte(' ')
					col++
				}
				continue
			}
			d.w.WriteByte(b)
			if b&0xc0 != 0x80 {
				col++
			}
		}
	} else {
		d.w.Write(line)
	}
	if d.inColor {
		d.w.WriteString("\x1b[0m")
		d.inColor = false
	}
	if t.noEnd && i == len(t.lines)-1 {
		d.w.WriteString(noEndText)
		return
	}
	d.w.WriteByte('\n')
}

// colored writes a line in color if colors are wanted.
func (d *differ) colored(code string, fn func()) {
	if !d.color {
		fn()
		return
	}
	d.w.WriteString("\x1b[" + code + "m")
	d.inColor = true
	fn()
	if d.inColor {
		d.w.WriteString("\x1b[0m")
		d.inColor = false
	}
}

// span returns a range of lines in the normal format. from counts from 0.
func span(from, n int) string {
	if n > 1 {
		return fmt.Sprintf("%d,%d", from+1, from+n)
	}
	if n == 1 {
		return strconv.Itoa(from + 1)
	}
	return strconv.Itoa(from)
}

// letterOf is a, c or d.
func letterOf(ch change) string {
	switch {
	case ch.del == 0:
		return "a"
	case ch.ins == 0:
		return "d"
	}
	return "c"
}

// normal is the default format.
func (d *differ) normal(a, b text, script []change) {
	tab := " "
	if d.initial {
		tab = "\t"
	}
	for _, ch := range script {
		if ch.ignore {
			continue
		}
		if !d.Step(1 + ch.del + ch.ins) {
			return
		}
		head := span(ch.a, ch.del) + letterOf(ch) + span(ch.b, ch.ins)
		d.colored("36", func() { d.w.WriteString(head) })
		d.w.WriteByte('\n')
		for i := range ch.del {
			d.colored("31", func() { d.line("<"+tab, a, ch.a+i) })
		}
		if ch.del > 0 && ch.ins > 0 {
			d.w.WriteString("---\n")
		}
		for i := range ch.ins {
			d.colored("32", func() { d.line(">"+tab, b, ch.b+i) })
		}
	}
}

// plainLine writes a line of a script, and always ends it.
func (d *differ) plainLine(t text, i int) {
	d.w.Write(t.lines[i])
	d.w.WriteByte('\n')
}

// ed writes a script for ed, with the last change first.
func (d *differ) ed(b text, script []change) {
	for n := len(script) - 1; n >= 0; n-- {
		ch := script[n]
		if ch.ignore {
			continue
		}
		if !d.Step(1 + ch.ins) {
			return
		}
		d.w.WriteString(span(ch.a, ch.del) + letterOf(ch) + "\n")
		if ch.ins == 0 {
			continue
		}
		open := true
		for i := range ch.ins {
			line := b.lines[ch.b+i]
			if !open {
				d.w.WriteString("a\n")
				open = true
			}
			if len(line) == 1 && line[0] == '.' {
				d.w.WriteString("..\n.\ns/.//\n")
				open = false
				continue
			}
			d.plainLine(b, ch.b+i)
		}
		if open {
			d.w.WriteString(".\n")
		}
	}
}

// forwardEd is like ed, but in ascending order. ed can't read this format.
func (d *differ) forwardEd(b text, script []change) {
	for _, ch := range script {
		if ch.ignore {
			continue
		}
		if !d.Step(1 + ch.ins) {
			return
		}
		from := span(ch.a, ch.del)
		if ch.del > 1 {
			from = fmt.Sprintf("%d %d", ch.a+1, ch.a+ch.del)
		}
		d.w.WriteString(letterOf(ch) + from + "\n")
		for i := range ch.ins {
			d.plainLine(b, ch.b+i)
		}
		if ch.ins > 0 {
			d.w.WriteString(".\n")
		}
	}
}

// rcs is the format of RCS.
func (d *differ) rcs(b text, script []change) {
	for _, ch := range script {
		if ch.ignore {
			continue
		}
		if !d.Step(1 + ch.ins) {
			return
		}
		if ch.del > 0 {
			fmt.Fprintf(d.w, "d%d %d\n", ch.a+1, ch.del)
		}
		if ch.ins > 0 {
			fmt.Fprintf(d.w, "a%d %d\n", ch.a+ch.del, ch.ins)
			for i := range ch.ins {
				d.w.Write(b.lines[ch.b+i])
				if !b.noEnd || ch.b+i < len(b.lines)-1 {
					d.w.WriteByte('\n')
				}
			}
		}
	}
}

// ifdef merges both files with #ifdef.
func (d *differ) ifdef(a, b text, script []change) {
	at := 0
	put := func(t text, i int) {
		d.w.Write(t.lines[i])
		if !t.noEnd || i < len(t.lines)-1 {
			d.w.WriteByte('\n')
		}
	}
	for _, ch := range script {
		if ch.ignore {
			continue
		}
		for ; at < ch.a; at++ {
			put(a, at)
		}
		if !d.Step(1 + ch.del + ch.ins) {
			return
		}
		if ch.del > 0 {
			fmt.Fprintf(d.w, "#ifndef %s\n", d.define)
			for ; at < ch.a+ch.del; at++ {
				put(a, at)
			}
			if ch.ins > 0 {
				fmt.Fprintf(d.w, "#else /* %s */\n", d.define)
			}
		} else {
			fmt.Fprintf(d.w, "#ifdef %s\n", d.define)
		}
		for i := range ch.ins {
			put(b, ch.b+i)
		}
		if ch.ins > 0 {
			fmt.Fprintf(d.w, "#endif /* %s */\n", d.define)
		} else {
			fmt.Fprintf(d.w, "#endif /* ! %s */\n", d.define)
		}
	}
	for ; at < len(a.lines); at++ {
		put(a, at)
	}
}

// hunk finds a group of changes that are shown together: script[from:to].
func (d *differ) hunk(script []change, from int) (to int) {
	for to = from + 1; to < len(script); to++ {
		prev, ch := script[to-1], script[to]
		threshold := 2*d.context + 1
		if prev.ignore || ch.ignore {
			threshold = d.context
		}
		if ch.a-(prev.a+prev.del) >= threshold {
			break
		}
	}
	return to
}

// contextual writes the unified and the context format.
func (d *differ) contextual(a, b side, ta, tb text, script []change) {
	head := false
	for from := 0; from < len(script); {
		to := d.hunk(script, from)
		hunk := script[from:to]
		from = to
		shown := false
		for _, ch := range hunk {
			shown = shown || !ch.ignore
		}
		if !shown {
			continue
		}
		if !head {
			d.header(a, b)
			head = true
		}
		first, last := hunk[0], hunk[len(hunk)-1]
		a0, a1 := max(first.a-d.context, 0), min(last.a+last.del+d.context, len(ta.lines))
		b0, b1 := max(first.b-d.context, 0), min(last.b+last.ins+d.context, len(tb.lines))
		if !d.Step(1 + a1 - a0 + b1 - b0) {
			return
		}
		function := d.functionOf(ta, a0)
		if d.style == 'u' {
			d.unified(ta, tb, hunk, a0, a1, b0, b1, function)
		} else {
			d.context3(ta, tb, hunk, a0, a1, b0, b1, function)
		}
	}
}

func (d *differ) header(a, b side) {
	signs := [2]string{"---", "+++"}
	if d.style == 'c' {
		signs = [2]string{"***", "---"}
	}
	for i, s := range []side{a, b} {
		text := quoteHeader(s.name) + "\t" + d.stampOf(s)
		if i < len(d.labels) {
			text = d.labels[i]
		}
		d.colored("1", func() { d.w.WriteString(signs[i] + " " + text) })
		d.w.WriteByte('\n')
	}
}

// quoteHeader quotes a name in a header as in C, if necessary.
func quoteHeader(name string) string {
	for i := range len(name) {
		if name[i] < 0x20 || name[i] == '"' || name[i] == '\\' || name[i] == 0x7f {
			return quoteC(name, true)
		}
	}
	for i := range len(name) {
		if name[i] == ' ' {
			return `"` + name + `"`
		}
	}
	return name
}

// functionOf returns the last line before a hunk that looks like the start of a function.
func (d *differ) functionOf(t text, before int) string {
	if d.function == nil {
		return ""
	}
	for i := before - 1; i >= 0; i-- {
		if i%64 == 0 && !d.Step(32) {
			return ""
		}
		if d.function.Match(t.lines[i]) {
			line := t.lines[i]
			for len(line) > 0 && isSpace(line[0]) {
				line = line[1:]
			}
			line = line[:min(len(line), 40)]
			for len(line) > 0 && isSpace(line[len(line)-1]) {
				line = line[:len(line)-1]
			}
			return " " + string(line)
		}
	}
	return ""
}

// unifiedRange returns a range in the format of @@ lines.
func unifiedRange(from, to int) string {
	switch n := to - from; n {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return strconv.Itoa(from + 1)
	default:
		return fmt.Sprintf("%d,%d", from+1, n)
	}
}

func (d *differ) unified(a, b text, hunk []change, a0, a1, b0, b1 int, function string) {
	d.colored("36", func() { fmt.Fprintf(d.w, "@@ -%s +%s @@", unifiedRange(a0, a1), unifiedRange(b0, b1)) })
	d.w.WriteString(function + "\n")
	signs := [3]string{" ", "-", "+"}
	if d.initial {
		signs = [3]string{"\t", "-\t", "+\t"}
	}
	at := a0
	for _, ch := range hunk {
		for ; at < ch.a; at++ {
			d.line(signs[0], a, at)
		}
		for ; at < ch.a+ch.del; at++ {
			d.colored("31", func() { d.line(signs[1], a, at) })
		}
		for i := range ch.ins {
			d.colored("32", func() { d.line(signs[2], b, ch.b+i) })
		}
	}
	for ; at < a1; at++ {
		d.line(signs[0], a, at)
	}
}

// contextRange returns a range in the context format.
func contextRange(from, to int) string {
	if to <= from+1 {
		return strconv.Itoa(to)
	}
	return fmt.Sprintf("%d,%d", from+1, to)
}

// context3 writes one hunk of the context format.
func (d *differ) context3(a, b text, hunk []change, a0, a1, b0, b1 int, function string) {
	fmt.Fprintf(d.w, "***************%s\n*** %s ****\n", function, contextRange(a0, a1))
	hasDel, hasIns := false, false
	for _, ch := range hunk {
		hasDel, hasIns = hasDel || ch.del > 0, hasIns || ch.ins > 0
	}
	tab := " "
	if d.initial {
		tab = "\t"
	}
	if hasDel {
		at := a0
		for _, ch := range hunk {
			for ; at < ch.a; at++ {
				d.line(" "+tab, a, at)
			}
			sign := "-"
			if ch.ins > 0 {
				sign = "!"
			}
			for ; at < ch.a+ch.del; at++ {
				d.line(sign+tab, a, at)
			}
		}
		for ; at < a1; at++ {
			d.line(" "+tab, a, at)
		}
	}
	fmt.Fprintf(d.w, "--- %s ----\n", contextRange(b0, b1))
	if hasIns {
		at := b0
		for _, ch := range hunk {
			for ; at < ch.b; at++ {
				d.line(" "+tab, b, at)
			}
			sign := "+"
			if ch.del > 0 {
				sign = "!"
			}
			for ; at < ch.b+ch.ins; at++ {
				d.line(sign+tab, b, at)
			}
		}
		for ; at < b1; at++ {
			d.line(" "+tab, b, at)
		}
	}
}

// columns2 returns the layout of side by side output: the width of a half, and the column where the
// second half begins.
func (d *differ) columns2() (half, second int) {
	t := 8
	if d.expand {
		t = 1
	}
	w := d.width
	tg := t + 3
	unaligned := w>>1 + tg>>1 + w&tg&1
	off := unaligned - unaligned%t
	if off <= 3 || w <= off {
		return 0, w
	}
	return min(off-3, w-off), off
}

// sideBySide writes both files in two columns.
func (d *differ) sideBySide(a, b text, script []change) {
	i, j := 0, 0
	common := func(toA, toB int) {
		for i < toA || j < toB {
			if !d.Step(2) {
				return
			}
			if !d.noCommon {
				if d.leftOnly && i < toA {
					d.halves(a, i, '(', b, -1)
				} else {
					d.halves(a, pick(i, toA), ' ', b, pick(j, toB))
				}
			}
			i, j = min(i+1, toA), min(j+1, toB)
		}
	}
	for _, ch := range script {
		if ch.ignore {
			continue
		}
		common(ch.a, ch.b)
		for i < ch.a+ch.del && j < ch.b+ch.ins {
			d.halves(a, i, '|', b, j)
			i++
			j++
		}
		for ; j < ch.b+ch.ins; j++ {
			d.halves(a, -1, '>', b, j)
		}
		for ; i < ch.a+ch.del; i++ {
			d.halves(a, i, '<', b, -1)
		}
		if !d.Step(2 * (ch.del + ch.ins)) {
			return
		}
	}
	common(len(a.lines), len(b.lines))
}

func pick(i, end int) int {
	if i < end {
		return i
	}
	return -1
}

// halves writes one line of two columns. An index of -1 means no line.
func (d *differ) halves(a text, i int, sep byte, b text, j int) {
	half, second := d.columns2()
	col := 0
	newline := false
	ended := func(t text, n int) bool { return !t.noEnd || n < len(t.lines)-1 }
	if i >= 0 {
		newline = ended(a, i)
		col = d.half(a.lines[i], 0, half)
	}
	if sep != ' ' {
		col = d.tabTo(col, (half+second-1)/2) + 1
		if sep == '|' && newline != ended(b, j) {
			if newline {
				sep = '/'
			} else {
				sep = '\\'
			}
		}
		d.w.WriteByte(sep)
	}
	if j >= 0 {
		newline = newline || ended(b, j)
		if len(b.lines[j]) > 0 || !ended(b, j) {
			col = d.tabTo(col, second)
			d.half(b.lines[j], col, half)
		}
	}
	if newline {
		d.w.WriteByte('\n')
	}
}

// tabTo moves to a column.
func (d *differ) tabTo(from, to int) int {
	if !d.expand {
		for tab := from + 8 - from%8; tab <= to; tab += 8 {
			d.w.WriteByte('\t')
			from = tab
		}
	}
	for ; from < to; from++ {
		d.w.WriteByte(' ')
	}
	return to
}

// half writes the part of a line that fits.
func (d *differ) half(line []byte, indent, bound int) int {
	in, out := 0, 0
	for n := 0; n < len(line); {
		r, size := utf8.DecodeRune(line[n:])
		switch {
		case r == '\t':
			spaces := 8 - in%8
			if in == out {
				stop := out + spaces
				if d.expand {
					for stop = min(stop, bound); out < stop; out++ {
						d.w.WriteByte(' ')
					}
				} else if stop < bound {
					out = stop
					d.w.WriteByte('\t')
				}
			}
			in += spaces
		case r == '\r':
			d.w.WriteByte('\r')
			d.tabTo(0, indent)
			in, out = 0, 0
		case r == '\b':
			if in > 0 {
				if in--; in < bound {
					if out > in {
						d.w.WriteByte('\b')
						out--
					}
				}
			}
		case r < 0x20:
			if in < bound {
				d.w.WriteByte(line[n])
			}
		default:
			w := 1
			if r != utf8.RuneError || size > 1 {
				w = width(string(r))
			} else {
				w = 0
			}
			if in += w; in <= bound {
				out = in
				d.w.Write(line[n : n+size])
			}
		}
		n += size
	}
	return out
}

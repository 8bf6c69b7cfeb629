package sqlite

import (
	"strings"
	"unicode/utf8"
)

// grid prints the collected rows in columns.
func (p *printer) grid() {
	n := len(p.names)
	widths := make([]int, n)
	right := make([]bool, n)
	wrap := make([]int, n)
	for i := range widths {
		if i < len(p.widths) {
			wrap[i] = p.widths[i]
			if wrap[i] < 0 {
				wrap[i], right[i] = -wrap[i], true
			}
			widths[i] = wrap[i]
		}
	}
	cells := func(row []string) [][]string { // lines of each cell
		out := make([][]string, len(row))
		for i, s := range row {
			out[i] = lines(s, wrap[i])
			for _, l := range out[i] {
				widths[i] = max(widths[i], utf8.RuneCountInString(l))
			}
		}
		return out
	}
	head := cells(p.names)
	rows := make([][][]string, len(p.all))
	multi := false
	for i, r := range p.all {
		rows[i] = cells(r)
		for _, c := range rows[i] {
			multi = multi || len(c) > 1
		}
	}
	switch p.mode {
	case "column":
		p.columns(head, rows, widths, right, multi)
		return
	case "box":
		p.rule(widths, "┌", "─", "┬", "┐")
		p.line(head, widths, right, "│", true)
		p.rule(widths, "├", "─", "┼", "┤")
		for i, r := range rows {
			if multi && i > 0 {
				p.rule(widths, "├", "─", "┼", "┤")
			}
			p.line(r, widths, right, "│", false)
		}
		p.rule(widths, "└", "─", "┴", "┘")
	case "table":
		p.rule(widths, "+", "-", "+", "+")
		p.line(head, widths, right, "|", true)
		p.rule(widths, "+", "-", "+", "+")
		for i, r := range rows {
			if multi && i > 0 {
				p.rule(widths, "+", "-", "+", "+")
			}
			p.line(r, widths, right, "|", false)
		}
		p.rule(widths, "+", "-", "+", "+")
	case "markdown":
		p.line(head, widths, right, "|", true)
		p.rule(widths, "|", "-", "|", "|")
		for _, r := range rows {
			p.line(r, widths, right, "|", false)
		}
	}
}

// lines splits a cell at line ends and at a width.
func lines(s string, width int) (out []string) {
	for _, l := range strings.Split(s, "\n") {
		l = strings.ReplaceAll(l, "\t", "        ")
		for width > 0 && utf8.RuneCountInString(l) > width {
			r := []rune(l)
			out = append(out, string(r[:width]))
			l = string(r[width:])
		}
		out = append(out, l)
	}
	return out
}

func (p *printer) columns(head [][]string, rows [][][]string, widths []int, right []bool, multi bool) {
	if p.headers {
		p.plain(head, widths, right)
		for i, w := range widths {
			if i > 0 {
				p.w.WriteString("  ")
			}
			p.w.WriteString(strings.Repeat("-", w))
		}
		p.w.WriteByte('\n')
	}
	for i, r := range rows {
		if multi && i > 0 {
			p.w.WriteByte('\n')
		}
		p.plain(r, widths, right)
	}
}

func (p *printer) plain(cells [][]string, widths []int, right []bool) {
	for k := range height(cells) {
		for i, c := range cells {
			if i > 0 {
				p.w.WriteString("  ")
			}
			p.w.WriteString(pad(at(c, k), widths[i], right[i], false))
		}
		p.w.WriteByte('\n')
	}
}

func height(cells [][]string) int {
	n := 1
	for _, c := range cells {
		n = max(n, len(c))
	}
	return n
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

// pad fills a text to a width.
func pad(s string, width int, right, center bool) string {
	n := width - utf8.RuneCountInString(s)
	switch {
	case n <= 0:
		return s
	case center:
		return strings.Repeat(" ", n/2) + s + strings.Repeat(" ", n-n/2)
	case right:
		return strings.Repeat(" ", n) + s
	}
	return s + strings.Repeat(" ", n)
}

func (p *printer) rule(widths []int, left, dash, cross, right string) {
	p.w.WriteString(left)
	for i, w := range widths {
		if i > 0 {
			p.w.WriteString(cross)
		}
		p.w.WriteString(strings.Repeat(dash, w+2))
	}
	p.w.WriteString(right + "\n")
}

func (p *printer) line(cells [][]string, widths []int, right []bool, bar string, center bool) {
	for k := range height(cells) {
		p.w.WriteString(bar)
		for i, c := range cells {
			p.w.WriteString(" " + pad(at(c, k), widths[i], right[i], center) + " " + bar)
		}
		p.w.WriteByte('\n')
	}
}

package data

import (
	"strings"
	"unicode/utf8"
)

func xanView(x *xan, args []string) error {
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	limit, err := x.number('l', 0)
	if err != nil {
		return err
	}
	total := len(rows)
	if limit > 0 {
		rows = rows[:min(limit, len(rows))]
	}
	widths := make([]int, len(x.head))
	cell := func(r []string, i int) string {
		if i >= len(r) {
			return ""
		}
		s := strings.ReplaceAll(r[i], "\n", " ")
		if utf8.RuneCountInString(s) > 60 {
			s = string([]rune(s)[:59]) + "…"
		}
		return s
	}
	for _, r := range append([][]string{x.head}, rows...) {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell(r, i)))
		}
	}
	rule := func(l, m, r string) {
		parts := make([]string, len(widths))
		for i, w := range widths {
			parts[i] = strings.Repeat("─", w+2)
		}
		x.text("%s%s%s\n", l, strings.Join(parts, m), r)
	}
	line := func(r []string) error {
		parts := make([]string, len(widths))
		for i, w := range widths {
			s := cell(r, i)
			parts[i] = " " + s + strings.Repeat(" ", w-utf8.RuneCountInString(s)) + " "
		}
		return x.text("│%s│\n", strings.Join(parts, "│"))
	}
	rule("┌", "┬", "┐")
	if err := line(x.head); err != nil {
		return err
	}
	rule("├", "┼", "┤")
	for _, r := range rows {
		if err := line(r); err != nil {
			return err
		}
	}
	rule("└", "┴", "┘")
	if len(rows) < total {
		return x.text("%d of %d rows\n", len(rows), total)
	}
	return nil
}

func xanFlatten(x *xan, args []string) error {
	limit, err := x.number('l', -1)
	if err != nil {
		return err
	}
	n, width := 0, 0
	return x.each(args, func() error {
		for _, h := range x.head {
			width = max(width, utf8.RuneCountInString(h))
		}
		return nil
	}, func(row []string) error {
		if limit >= 0 && n >= limit {
			return errEnd
		}
		if n > 0 {
			x.text("\n")
		}
		x.text("Row n°%d\n%s\n", n, strings.Repeat("─", 40))
		n++
		for i, h := range x.head {
			v := ""
			if i < len(row) {
				v = row[i]
			}
			if err := x.text("%s%s %s\n", h, strings.Repeat(" ", width-utf8.RuneCountInString(h)), v); err != nil {
				return err
			}
		}
		return nil
	})
}

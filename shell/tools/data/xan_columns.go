package data

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// columns reads a selection: names, numbers, a:b, globs, and a ! before the whole.
func (x *xan) columns(sel string) ([]int, error) {
	not := false
	if rest, ok := strings.CutPrefix(sel, "!"); ok {
		not, sel = true, rest
	}
	var out []int
	for _, s := range splitSelection(sel) {
		from, to, ranged := strings.Cut(s, ":")
		switch {
		case s == "*":
			for i := range x.head {
				out = append(out, i)
			}
		case x.col(s) >= 0:
			out = append(out, x.col(s))
		case ranged:
			a, b := 0, len(x.head)-1
			if from != "" {
				a = x.col(from)
			}
			if to != "" {
				b = x.col(to)
			}
			if a < 0 || b < 0 {
				return nil, fmt.Errorf("unknown column in '%s'", s)
			}
			for a != b {
				out = append(out, a)
				if a < b {
					a++
				} else {
					a--
				}
			}
			out = append(out, b)
		case strings.ContainsAny(s, "*?["):
			for i, h := range x.head {
				if ok, _ := path.Match(s, h); ok {
					out = append(out, i)
				}
			}
		default:
			return nil, fmt.Errorf("unknown column '%s'", s)
		}
	}
	if not {
		var rest []int
		for i := range x.head {
			if !slices.Contains(out, i) {
				rest = append(rest, i)
			}
		}
		return rest, nil
	}
	return out, nil
}

// splitSelection splits at commas outside of quotes.
func splitSelection(s string) []string {
	var out []string
	var b strings.Builder
	quoted := false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			out = append(out, b.String())
			b.Reset()
		default:
			b.WriteByte(c)
		}
	}
	return append(out, b.String())
}

func pickFields(row []string, cols []int) []string {
	out := make([]string, len(cols))
	for i, c := range cols {
		if c < len(row) {
			out[i] = row[c]
		}
	}
	return out
}

func xanSelect(x *xan, args []string) error {
	var cols []int
	if x.f.Has('e') {
		return xanMapped(x, args)
	}
	return x.each(args[1:], func() (err error) {
		sel := args[0]
		if x.cmd() == "drop" {
			sel = "!" + sel
		}
		if cols, err = x.columns(sel); err != nil {
			return err
		}
		return x.header(pickFields(x.head, cols))
	}, func(row []string) error { return x.put(pickFields(row, cols)) })
}

func xanRename(x *xan, args []string) error {
	return x.each(args[1:], func() error {
		head := slices.Clone(x.head)
		names := splitSelection(args[0])
		cols := make([]int, len(head))
		for i := range cols {
			cols[i] = i
		}
		if s := x.f.Value('s', ""); s != "" {
			var err error
			if cols, err = x.columns(s); err != nil {
				return err
			}
		}
		if len(names) != len(cols) {
			return fmt.Errorf("%d new names for %d columns", len(names), len(cols))
		}
		for i, c := range cols {
			head[c] = names[i]
		}
		return x.header(head)
	}, x.put)
}

func xanEnum(x *xan, args []string) error {
	n, err := x.number('S', 0)
	if err != nil {
		return err
	}
	return x.each(args, func() error { return x.header(append([]string{x.f.Value('c', "index")}, x.head...)) }, func(row []string) error {
		n++
		return x.put(append([]string{strconv.Itoa(n - 1)}, row...))
	})
}

func xanMap(x *xan, args []string) error { return xanMapped(x, args) }

// xanMapped is map, which adds columns, and select -e, which makes all columns.
func xanMapped(x *xan, args []string) error {
	var cols []named
	at := map[string]int{}
	index := 0
	adding := x.cmd() == "map"
	if adding && len(args) > 2 { // map EXPRESSION NAME FILE
		args = append([]string{args[0] + " as `" + args[1] + "`"}, args[2:]...)
	}
	return x.each(args[1:], func() (err error) {
		if cols, err = x.parser(args[0], &index).parseNamed(); err != nil {
			return err
		}
		var head []string
		if adding {
			head = slices.Clone(x.head)
		}
		for _, c := range cols {
			if i := slices.Index(head, c.name); i >= 0 && x.f.Has('O') {
				at[c.name] = i
				continue
			}
			head = append(head, c.name)
		}
		return x.header(head)
	}, func(row []string) error {
		var out []string
		if adding {
			out = slices.Clone(row)
			for len(out) < len(x.head) {
				out = append(out, "")
			}
		}
		for _, c := range cols {
			v, err := c.run(row)
			if err != nil {
				return err
			}
			if i, ok := at[c.name]; ok {
				out[i] = textOf(v)
			} else {
				out = append(out, textOf(v))
			}
		}
		index++
		return x.put(out)
	})
}

func xanTransform(x *xan, args []string) error {
	var cols []int
	var f expr
	index := 0
	value := ""
	return x.each(args[2:], func() (err error) {
		if cols, err = x.columns(args[0]); err != nil {
			return err
		}
		p := x.parser(args[1], &index)
		p.cols = func(name string) int {
			if name == "_" {
				return len(x.head)
			}
			return x.col(name)
		}
		if f, err = p.whole(); err != nil {
			return err
		}
		head := slices.Clone(x.head)
		if r := x.f.Value('r', ""); r != "" && len(cols) > 0 {
			head[cols[0]] = r
		}
		return x.header(head)
	}, func(row []string) error {
		out := slices.Clone(row)
		for _, c := range cols {
			value = ""
			if c < len(row) {
				value = row[c]
			}
			full := append(slices.Clone(row), make([]string, max(len(x.head)-len(row), 0))...)
			v, err := f(append(full[:len(x.head)], value))
			if err != nil {
				return err
			}
			if c < len(out) {
				out[c] = textOf(v)
			}
		}
		index++
		return x.put(out)
	})
}

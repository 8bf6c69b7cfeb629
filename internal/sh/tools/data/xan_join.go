package data

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/tool"
)

func xanCat(x *xan, args []string) error {
	if len(args) > 0 && (args[0] == "rows" || args[0] == "columns" || args[0] == "cols") {
		if args[0] != "rows" {
			return xanCatColumns(x, args[1:])
		}
		args = args[1:]
	}
	if len(args) == 0 {
		args = []string{"-"}
	}
	var head []string
	for i, a := range args {
		var cols []int
		err := x.each([]string{a}, func() error {
			if i == 0 {
				head = slices.Clone(x.head)
				return x.header(head)
			}
			for _, h := range head {
				cols = append(cols, slices.Index(x.head, h))
			}
			if !x.noHead && slices.Contains(cols, -1) && !x.f.Has('p') {
				return fmt.Errorf("%s: its headers are different", a)
			}
			return nil
		}, func(row []string) error {
			if i == 0 || x.noHead {
				return x.put(row)
			}
			out := make([]string, len(cols))
			for k, c := range cols {
				if c >= 0 && c < len(row) {
					out[k] = row[c]
				}
			}
			return x.put(out)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func xanCatColumns(x *xan, args []string) error {
	var heads []string
	var widths []int
	var tables [][][]string
	n := 0
	for _, a := range args {
		rows, err := x.all([]string{a})
		if err != nil {
			return err
		}
		heads = append(heads, x.head...)
		widths = append(widths, len(x.head))
		tables = append(tables, rows)
		n = max(n, len(rows))
	}
	var out [][]string
	for i := range n {
		var row []string
		for k, t := range tables {
			r := make([]string, widths[k])
			if i < len(t) {
				copy(r, t[i])
			}
			row = append(row, r...)
		}
		out = append(out, row)
	}
	return x.rows(heads, out)
}

// xanJoin is join: COLUMNS FILE COLUMNS FILE, or COLUMNS FILE FILE.
func xanJoin(x *xan, args []string) error {
	if len(args) == 3 {
		args = []string{args[0], args[1], args[0], args[2]}
	}
	if len(args) != 4 {
		return fmt.Errorf("usage: xan join COLUMNS FILE COLUMNS FILE")
	}
	left, err := x.all(args[1:2])
	if err != nil {
		return err
	}
	lh := x.head
	lc, err := x.columns(args[0])
	if err != nil {
		return err
	}
	right, err := x.all(args[3:])
	if err != nil {
		return err
	}
	rh := x.head
	rc, err := x.columns(args[2])
	if err != nil {
		return err
	}
	fold := func(s string) string {
		if x.f.Has('i') {
			return strings.ToLower(s)
		}
		return s
	}
	index := map[string][]int{}
	for i, r := range right {
		k := fold(key(r, rc))
		index[k] = append(index[k], i)
	}
	semi, anti := x.f.Has(0x82), x.f.Has(0x83)
	head := append(slices.Clone(lh), rh...)
	if semi || anti {
		head = lh
	}
	if err := x.header(head); err != nil {
		return err
	}
	full := func(r []string, n int) []string {
		out := make([]string, n)
		copy(out, r)
		return out
	}
	used := make([]bool, len(right))
	for _, l := range left {
		found := index[fold(key(l, lc))]
		if semi || anti {
			if (len(found) > 0) == semi {
				if err := x.put(l); err != nil {
					return err
				}
			}
			continue
		}
		for _, i := range found {
			used[i] = true
			if !x.Step(2 + len(l)) {
				return tool.ErrStop
			}
			if err := x.put(append(full(l, len(lh)), full(right[i], len(rh))...)); err != nil {
				return err
			}
		}
		if len(found) == 0 && (x.f.Has('L') || x.f.Has(0x80)) {
			if err := x.put(append(full(l, len(lh)), make([]string, len(rh))...)); err != nil {
				return err
			}
		}
	}
	if x.f.Has('R') || x.f.Has(0x80) {
		for i, r := range right {
			if !used[i] {
				if err := x.put(append(make([]string, len(lh)), full(r, len(rh))...)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

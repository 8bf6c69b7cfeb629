package data

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
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

// xanJoin is join, with the arguments COLUMNS FILE COLUMNS FILE or COLUMNS FILE FILE.
func xanJoin(x *xan, args []string) error {
	if len(args) == 3 {
		args = []string{args[0], args[1], args[0], args[2]}
	}
	if len(args) != 4 {
		return fmt.Errorf("usage: xan join COLUMNS FILE COLUMNS FILE")
	}
	left, err := x.joinSide(args[0], args[1])
	if err != nil {
		return err
	}
	right, err := x.joinSide(args[2], args[3])
	if err != nil {
		return err
	}
	index := map[string][]int{}
	for i, r := range right.rows {
		k := x.joinKey(r, right.cols)
		index[k] = append(index[k], i)
	}
	semi, anti := x.f.Has(0x82), x.f.Has(0x83)
	head := append(slices.Clone(left.head), right.head...)
	if semi || anti {
		head = left.head
	}
	if err := x.header(head); err != nil {
		return err
	}
	used := make([]bool, len(right.rows))
	for _, l := range left.rows {
		found := index[x.joinKey(l, left.cols)]
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
			if err := x.put(append(left.full(l), right.full(right.rows[i])...)); err != nil {
				return err
			}
		}
		if len(found) == 0 && (x.f.Has('L') || x.f.Has(0x80)) {
			if err := x.put(append(left.full(l), right.full(nil)...)); err != nil {
				return err
			}
		}
	}
	if !x.f.Has('R') && !x.f.Has(0x80) {
		return nil
	}
	for i, r := range right.rows {
		if !used[i] {
			if err := x.put(append(left.full(nil), right.full(r)...)); err != nil {
				return err
			}
		}
	}
	return nil
}

// joinSide is one of the two tables of a join.
type joinSide struct {
	head []string
	rows [][]string
	cols []int // by which it is joined
}

// joinSide reads a table.
func (x *xan) joinSide(columns, file string) (joinSide, error) {
	rows, err := x.all([]string{file})
	if err != nil {
		return joinSide{}, err
	}
	cols, err := x.columns(columns)
	return joinSide{x.head, rows, cols}, err
}

// full returns a row with as many fields as the table has columns.
func (s joinSide) full(row []string) []string {
	out := make([]string, len(s.head))
	copy(out, row)
	return out
}

// joinKey returns the key that two rows must share.
func (x *xan) joinKey(row []string, cols []int) string {
	k := key(row, cols)
	if x.f.Has('i') {
		return strings.ToLower(k)
	}
	return k
}

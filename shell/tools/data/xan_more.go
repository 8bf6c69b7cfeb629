package data

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

func xanSort(x *xan, args []string) error {
	top := x.cmd() == "top"
	sel := x.f.Value('s', "*")
	if top {
		sel, args = args[0], args[1:]
	}
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	cols, err := x.columns(sel)
	if err != nil {
		return err
	}
	numeric := x.f.Has('N') || top
	reverse := x.f.Has('R') || x.f.Has('r')
	if top {
		reverse = !x.f.Has('R')
	}
	field := func(r []string, c int) string {
		if c < len(r) {
			return r[c]
		}
		return ""
	}
	stopped := false
	slices.SortStableFunc(rows, func(a, b []string) int {
		if stopped = stopped || !x.Step(1); stopped {
			return 0
		}
		for _, c := range cols {
			s, t := field(a, c), field(b, c)
			d := strings.Compare(s, t)
			if numeric {
				f, ok1 := numberOf(s)
				g, ok2 := numberOf(t)
				switch {
				case ok1 && ok2:
					d = cmp.Compare(f, g)
				case ok1:
					d = -1
					if reverse {
						d = 1
					}
				case ok2:
					d = 1
					if reverse {
						d = -1
					}
				}
			}
			if d != 0 {
				if reverse {
					return -d
				}
				return d
			}
		}
		return 0
	})
	if stopped {
		return tool.ErrStop
	}
	if x.f.Has('u') {
		rows = slices.CompactFunc(rows, func(a, b []string) bool { return slices.Equal(pickFields(a, cols), pickFields(b, cols)) })
	}
	if top {
		n, err := x.number('l', 10)
		if err != nil {
			return err
		}
		rows = rows[:min(max(n, 0), len(rows))]
	}
	return x.rows(x.head, rows)
}

func key(row []string, cols []int) string { return strings.Join(pickFields(row, cols), "\x00") }

func xanDedup(x *xan, args []string) error {
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	cols, err := x.columns(x.f.Value('s', "*"))
	if err != nil {
		return err
	}
	seen := map[string]int{}
	var out [][]string
	for _, r := range rows {
		k := key(r, cols)
		if i, ok := seen[k]; ok {
			if x.f.Has('k') {
				out[i] = r
			}
			continue
		}
		seen[k] = len(out)
		out = append(out, r)
	}
	return x.rows(x.head, out)
}

func xanExplode(x *xan, args []string) error {
	sep := x.f.Value('s', "|")
	var cols []int
	return x.each(args[1:], func() (err error) {
		if cols, err = x.columns(args[0]); err != nil || len(cols) != 1 {
			return cmp.Or(err, fmt.Errorf("explode takes one column"))
		}
		head := slices.Clone(x.head)
		head[cols[0]] = cmp.Or(x.f.Value('r', ""), head[cols[0]])
		return x.header(head)
	}, func(row []string) error {
		if cols[0] >= len(row) {
			return x.put(row)
		}
		for _, v := range strings.Split(row[cols[0]], sep) {
			out := slices.Clone(row)
			out[cols[0]] = v
			if err := x.put(out); err != nil {
				return err
			}
		}
		return nil
	})
}

func xanImplode(x *xan, args []string) error {
	sep := x.f.Value('s', "|")
	rows, err := x.all(args[1:])
	if err != nil {
		return err
	}
	cols, err := x.columns(args[0])
	if err != nil || len(cols) != 1 {
		return cmp.Or(err, fmt.Errorf("implode takes one column"))
	}
	c := cols[0]
	var out [][]string
	for _, r := range rows {
		if n := len(out); n > 0 && c < len(r) && len(r) == len(out[n-1]) {
			last := out[n-1]
			if slices.Equal(r[:c], last[:c]) && slices.Equal(r[c+1:], last[c+1:]) {
				last[c] += sep + r[c]
				if len(last[c]) > maxRecord {
					return fmt.Errorf("record too long")
				}
				continue
			}
		}
		out = append(out, slices.Clone(r))
	}
	return x.rows(x.head, out)
}

func xanTranspose(x *xan, args []string) error {
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	all := rows
	if !x.noHead {
		all = append([][]string{x.head}, rows...)
	}
	for i := range x.head {
		out := make([]string, len(all))
		for j, r := range all {
			if i < len(r) {
				out[j] = r[i]
			}
		}
		if !x.Step(len(all)) {
			return tool.ErrStop
		}
		if err := x.put(out); err != nil {
			return err
		}
	}
	return nil
}

func xanFix(x *xan, args []string) error {
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	n := len(x.head)
	for _, r := range rows {
		n = max(n, len(r))
	}
	if n, err = x.number('l', n); err != nil || n < 0 || n > 1<<16 {
		return cmp.Or(err, fmt.Errorf("invalid length"))
	}
	fix := func(r []string) []string {
		for len(r) < n {
			r = append(r, "")
		}
		return r[:n]
	}
	for i := range rows {
		rows[i] = fix(rows[i])
	}
	return x.rows(fix(x.head), rows)
}

func xanFill(x *xan, args []string) error {
	var cols []int
	last := map[int]string{}
	value, given := x.f.Value('v', ""), x.f.Has('v')
	return x.each(args, func() (err error) {
		if cols, err = x.columns(x.f.Value('s', "*")); err != nil {
			return err
		}
		return x.header(x.head)
	}, func(row []string) error {
		for _, c := range cols {
			if c >= len(row) {
				continue
			}
			switch {
			case row[c] != "":
				last[c] = row[c]
			case given:
				row[c] = value
			default:
				row[c] = last[c]
			}
		}
		return x.put(row)
	})
}

package data

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// xanAgg is agg. It is also groupby, which aggregates for each key.
func xanAgg(x *xan, args []string) error {
	var cols []int
	var results []named
	var aggs []*aggregate
	var groups []*group
	byKey := map[string]*group{}
	keyed := x.cmd() == "groupby"
	src := args[0]
	files := args[1:]
	if keyed {
		src, files = args[1], args[2:]
	}
	find := func(row []string) (*group, error) {
		k := key(row, cols)
		g := byKey[k]
		if g == nil {
			g = &group{key: pickFields(row, cols), states: make([]aggState, len(aggs))}
			byKey[k] = g
			groups = append(groups, g)
			return g, x.Pay(int64(2*len(k) + 200 + 200*len(aggs)))
		}
		return g, nil
	}
	err := x.each(files, func() (err error) {
		if keyed {
			if cols, err = x.columns(args[0]); err != nil {
				return err
			}
		}
		p := x.parser(src, nil)
		p.aggs = &aggs
		if results, err = p.parseNamed(); err != nil {
			return err
		}
		if !keyed {
			_, err = find(nil)
		}
		return err
	}, func(row []string) error {
		g, err := find(row)
		if err != nil {
			return err
		}
		for i, a := range aggs {
			kept, err := a.take(&g.states[i], row)
			if err == nil && kept > 0 {
				err = x.Pay(int64(kept))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return x.putGroups(cols, results, aggs, groups)
}

// putGroups writes a row for each group: the columns of its key, and the value of each aggregate.
func (x *xan) putGroups(cols []int, results []named, aggs []*aggregate, groups []*group) error {
	head := pickFields(x.head, cols)
	for _, r := range results {
		head = append(head, r.name)
	}
	if err := x.header(head); err != nil {
		return err
	}
	for _, g := range groups {
		for _, a := range aggs {
			a.at = g
		}
		row := slices.Clone(g.key)
		for _, r := range results {
			v, err := r.run(nil)
			if err != nil {
				return err
			}
			row = append(row, textOf(v))
		}
		if err := x.put(row); err != nil {
			return err
		}
	}
	return nil
}

func xanFrequency(x *xan, args []string) error {
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	cols, err := x.columns(x.f.Value('s', "*"))
	if err != nil {
		return err
	}
	limit, err := x.number('l', 10)
	if err != nil {
		return err
	}
	if x.f.Has('A') || limit == 0 {
		limit = len(rows)
	}
	if err := x.header([]string{"field", "value", "count"}); err != nil {
		return err
	}
	for _, c := range cols {
		counts := map[string]int{}
		var order []string
		for _, r := range rows {
			v := ""
			if c < len(r) {
				v = r[c]
			}
			if v == "" {
				v = "<empty>"
			}
			if counts[v]++; counts[v] == 1 {
				order = append(order, v)
			}
		}
		slices.SortStableFunc(order, func(a, b string) int {
			return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
		})
		for i, v := range order {
			if i >= limit {
				break
			}
			if err := x.put([]string{x.head[c], v, strconv.Itoa(counts[v])}); err != nil {
				return err
			}
		}
	}
	return nil
}

func xanStats(x *xan, args []string) error {
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	cols, err := x.columns(x.f.Value('s', "*"))
	if err != nil {
		return err
	}
	kinds := []string{"count", "count_empty", "sum", "mean", "q1", "median", "q3", "stddev", "min", "max", "cardinality", "mode"}
	if err := x.header(append([]string{"field", "type"}, kinds...)); err != nil {
		return err
	}
	for _, c := range cols {
		row := []string{x.head[c], "int"}
		out := make([]string, len(kinds))
		for i, kind := range kinds {
			a := &aggregate{kind: kind, arg: func(r []string) (any, error) {
				if c >= len(r) {
					return nil, nil
				}
				return r[c], nil
			}}
			var s aggState
			for _, r := range rows {
				if _, err := a.take(&s, r); err != nil {
					return err
				}
			}
			if !x.Step(len(rows)) {
				return tool.ErrStop
			}
			if i == 0 && s.n > 0 && s.numbers < s.n {
				row[1] = "string"
			} else if i == 0 && s.n == 0 {
				row[1] = "empty"
			} else if kind == "sum" && row[1] == "int" && strings.Contains(formatFloat(s.sum)+formatFloat(s.fmin)+formatFloat(s.fmax), ".") {
				row[1] = "float"
			}
			if row[1] == "string" && slices.Contains([]string{"sum", "mean", "q1", "median", "q3", "stddev"}, kind) {
				continue
			}
			out[i] = textOf(a.result(&s))
		}
		if err := x.put(append(row, out...)); err != nil {
			return err
		}
	}
	return nil
}

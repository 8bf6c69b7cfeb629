package data

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/tools/data/jq"
	"github.com/carrel-dev/carrel/internal/sh/vfs"
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

// xanAgg is agg, and groupby, which does it for each key.
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

func xanTo(x *xan, args []string) error {
	format := args[0]
	if format == "tsv" {
		x.outComma = '\t'
		return x.each(args[1:], func() error { return x.header(x.head) }, x.put)
	}
	object := func(row []string) *jq.Object {
		o := jq.NewObject(len(x.head))
		for i, h := range x.head {
			if i < len(row) && row[i] != "" {
				o.Set(h, guess(row[i]))
			} else {
				o.Set(h, nil)
			}
		}
		return o
	}
	switch format {
	case "json":
		all := []any{}
		err := x.each(args[1:], nil, func(row []string) error { all = append(all, object(row)); return x.Pay(int64(100 * len(row))) })
		if err != nil {
			return err
		}
		x.out = append(jq.Append(x.out, all, jq.Style{Indent: "  "}), '\n')
	case "jsonl", "ndjson":
		return x.each(args[1:], nil, func(row []string) error {
			x.out = append(jq.Append(x.out, object(row), jq.Style{}), '\n')
			return x.flush()
		})
	case "txt":
		return x.each(args[1:], nil, func(row []string) error { return x.text("%s\n", strings.Join(row, " ")) })
	case "md", "markdown":
		line := func(row []string) error {
			return x.text("| %s |\n", strings.ReplaceAll(strings.Join(row, " | "), "\n", "<br>"))
		}
		return x.each(args[1:], func() error {
			if err := line(x.head); err != nil {
				return err
			}
			return line(slices.Repeat([]string{"---"}, len(x.head)))
		}, line)
	default:
		return fmt.Errorf("unknown format '%s'", format)
	}
	return nil
}

func xanFrom(x *xan, args []string) error {
	name := "-"
	if len(args) > 0 {
		name = args[0]
	}
	format := cmp.Or(x.f.Value('f', ""), strings.TrimPrefix(path.Ext(name), "."), "json")
	if format == "tsv" || format == "tab" {
		x.comma = '\t'
		return x.each(args, func() error { return x.header(x.head) }, x.put)
	}
	in, err := x.OpenIn(name)
	if err != nil {
		return fmt.Errorf("%s: %s", name, tool.ErrText(err))
	}
	text, err := x.ReadAll(in)
	_ = in.Close() // it was read
	if err != nil {
		return err
	}
	if format == "txt" {
		if err := x.put([]string{"line"}); err != nil {
			return err
		}
		for _, l := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
			if err := x.put([]string{string(l)}); err != nil {
				return err
			}
		}
		return nil
	}
	if format != "json" && format != "jsonl" && format != "ndjson" {
		return fmt.Errorf("unknown format '%s'", format)
	}
	vals, err := readJSON(x.Call, text)
	if err != nil {
		return err
	}
	if len(vals) == 1 {
		if inner, is := vals[0].([]any); is {
			vals = inner
		}
	}
	var head []string
	known := map[string]bool{}
	for _, v := range vals {
		if o, ok := v.(*jq.Object); ok {
			for i := range o.Len() {
				if k, _ := o.At(i); !known[k] {
					known[k] = true
					head = append(head, k)
				}
			}
		}
	}
	if len(head) > 0 {
		if err := x.put(head); err != nil {
			return err
		}
	}
	for _, v := range vals {
		var row []string
		switch v := v.(type) {
		case *jq.Object:
			for _, h := range head {
				e, _ := v.Get(h)
				row = append(row, plain(e))
			}
		case []any:
			for _, e := range v {
				row = append(row, plain(e))
			}
		default:
			row = []string{plain(v)}
		}
		if err := x.put(row); err != nil {
			return err
		}
	}
	return nil
}

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

func xanFmt(x *xan, args []string) error {
	if t := x.f.Value('t', ""); t != "" {
		if x.outComma = t[0]; t == `\t` || t == "tab" {
			x.outComma = '\t'
		}
	}
	if x.f.Has(0x80) {
		x.outComma = '\t'
	}
	write := x.put
	if x.f.Has('Q') {
		write = func(row []string) error {
			quoted := make([]string, len(row))
			for i, s := range row {
				quoted[i] = `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
			}
			return x.text("%s\n", strings.Join(quoted, string(rune(x.outComma))))
		}
	}
	return x.each(args, func() error {
		if x.noHead {
			return nil
		}
		return write(x.head)
	}, write)
}

func xanShuffle(x *xan, args []string) error {
	size := -1
	if x.cmd() == "sample" {
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 0 {
			return fmt.Errorf("invalid number '%s'", args[0])
		}
		size, args = n, args[1:]
	}
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	state := uint64(0)
	if s := x.f.Value(0x80, ""); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("invalid seed '%s'", s)
		}
		state = n
	} else {
		var b [8]byte
		x.Random(b[:])
		state = binary.LittleEndian.Uint64(b[:])
	}
	for i := len(rows) - 1; i > 0; i-- { // splitmix64
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		j := int((z ^ z>>31) % uint64(i+1))
		rows[i], rows[j] = rows[j], rows[i]
	}
	if size >= 0 {
		rows = rows[:min(size, len(rows))]
	}
	return x.rows(x.head, rows)
}

// xanSplit writes several files: of so many rows, or one for each value of a column.
func xanSplit(x *xan, args []string) error {
	dir := x.f.Value('O', ".")
	partition := x.cmd() == "partition"
	sel := ""
	if partition {
		sel, args = args[0], args[1:]
	}
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	var cols []int
	if partition {
		if cols, err = x.columns(sel); err != nil {
			return err
		}
	}
	size, err := x.number('S', 4096)
	if err != nil || size < 1 {
		return cmp.Or(err, fmt.Errorf("invalid size"))
	}
	if n, err := x.number('c', 0); err == nil && n > 0 {
		size = max((len(rows)+n-1)/n, 1)
	}
	template := x.f.Value('f', "{}.csv")
	parts := map[string][][]string{}
	var order []string
	for i, r := range rows {
		k := strconv.Itoa(i / size * size)
		if partition {
			k = strings.Map(func(c rune) rune {
				if c == '/' || c == 0 {
					return '_'
				}
				return c
			}, strings.Join(pickFields(r, cols), "-"))
			if k = strings.TrimLeft(k, "."); k == "" {
				k = "empty"
			}
		}
		if parts[k] == nil {
			order = append(order, k)
		}
		parts[k] = append(parts[k], r)
	}
	for _, k := range order {
		name := path.Join(dir, strings.ReplaceAll(template, "{}", k))
		f, err := x.Open(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			return fmt.Errorf("%s: %s", name, tool.ErrText(err))
		}
		x.w = f
		err = x.rows(x.head, parts[k])
		if err == nil {
			err = x.flush()
		}
		_ = f.Close() // it was flushed
		if err != nil {
			return err
		}
	}
	return nil
}

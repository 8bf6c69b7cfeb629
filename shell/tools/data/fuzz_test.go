package data

import (
	"context"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/tool"
)

// host is a tool.Host that only allows the program to go on.
type host struct {
	tool.Host
	steps int
}

func (h *host) Step(n int) bool { h.steps -= n; return h.steps > 0 }
func (h *host) Pay(int64) error { return nil }

// FuzzExpr compiles and runs any text as a xan expression.
func FuzzExpr(f *testing.F) {
	for _, s := range []string{"a > 1 && b == 'x'", "if(a, upper(b), len(b)) as z", "sum(a) / count() as m, first(b)", "a in [1, 2] || !b", "slice(a, 1, 2) ++ `b`", "-a ** 2 // 3 % 4", "col(0)", "((((", "\"\\n", "a not in b", "split(a, ',')", "replace(a, '', 'x')", "year(a) eq month(b)"} {
		f.Add(s, "1,x")
	}
	f.Fuzz(func(t *testing.T, src, line string) {
		if len(src) > 2000 || len(line) > 2000 {
			return
		}
		row := (&csvReader{comma: ','}).fields([]byte(line))
		cols := func(name string) int { return strings.Index("ab", name) }
		if e, err := (&exprParser{src: src, cols: cols}).whole(); err == nil {
			v, _ := e(row)
			_ = textOf(v)
		}
		var aggs []*aggregate
		p := &exprParser{src: src, cols: cols, aggs: &aggs}
		named, err := p.parseNamed()
		if err != nil {
			return
		}
		g := &group{states: make([]aggState, len(aggs))}
		for i, a := range aggs {
			_, _ = a.take(&g.states[i], row)
			a.at = g
		}
		for _, n := range named {
			v, _ := n.run(row)
			_ = textOf(v)
		}
	})
}

// FuzzCSV reads any table. Writing and reading it again must give the same table.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "\"a,\"\"b\n\"\",c\"\n", "a\r\nb", "\"", ",,\n", "a\"b,c\"d\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := newCSV(&tool.Call{Host: &host{steps: 1 << 20}, Ctx: context.Background()}, strings.NewReader(s), ',')
		for range 1000 {
			row, err := r.read()
			if err != nil {
				return
			}
			again, err := newCSV(r.c, strings.NewReader(string(appendRow(nil, row, ','))), ',').read()
			if err != nil || strings.Join(again, "\x00") != strings.Join(row, "\x00") {
				t.Fatalf("%q became %q (%v)", row, again, err)
			}
		}
	})
}

// FuzzYAML reads any document and writes it.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{"a: 1\nb: [x, {y: z}]\n", "&a [*a]", "- !!int x\n- !!str 1\n- ~\n", "? [a]\n: b\n", "<<: {a: 1}\nb: 2", "a: |\n  x\n  y\n---\nb", "\t", "{", "!!binary x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := &tool.Call{Host: &host{steps: 1 << 22}, Ctx: context.Background()}
		vals, nodes, err := readYAML(c, []byte(s))
		if err != nil {
			return
		}
		for i, v := range vals {
			_, _ = writeYAML(c, v, nodes[i], 2)
			_, _ = writeYAML(c, v, nil, 2)
		}
		for _, format := range []string{"toml", "xml", "ini", "props", "csv"} {
			if v, err := readFormat(c, format, []byte(s)); err == nil {
				_, _ = writeFormat(format, v)
			}
		}
	})
}

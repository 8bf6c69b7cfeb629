package jq

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
)

// budget returns a budget that ends long or large runs.
func budget(steps, bytes int64) Budget {
	return Budget{
		Step: func(n int) bool { steps -= int64(n); return steps > 0 },
		Pay: func(n int64) error {
			if bytes -= n; bytes < 0 {
				return syscall.ENOMEM
			}
			return nil
		},
	}
}

// FuzzProgram runs any program on any input. It must not panic, and the budget must end it.
func FuzzProgram(f *testing.F) {
	for _, s := range [][2]string{
		{".", `{"a":[1,2.5,"x",null,true]}`}, {".a[1:] |= map(.+1)", `{"a":[1,2,3]}`}, {`[paths] | length, (.. | numbers)`, `[[1],{"a":2}]`},
		{`reduce .[] as [$a,{b:$c}] (0; . + $a)`, `[[1,{"b":2}]]`}, {`def f(x): x | f(x); f(.)`, `1`}, {`label $out | foreach range(10) as $i (0; .+$i; if . > 5 then ., break $out else . end)`, `null`},
		{`gsub("(?<x>.)"; "[\(.x)]")`, `"añb"`}, {`to_entries | map(select(.value)) | from_entries | del(.a, .b[0])`, `{"a":1,"b":[2]}`}, {`@csv, @sh, @html "x\(.)", @base64`, `[1,"a"]`},
		{`try error({a:1}) catch .a, (.a?), .b // "d"`, `{}`}, {`limit(3; repeat(1)), first(range(5)), [range(0;10;3)]`, `0`}, {`strptime("%Y-%m-%d") | mktime | todate`, `"2020-01-02"`},
		{`.[] as [$x] ?// $x | $x`, `[[1],2]`}, {`walk(if type == "object" then del(.a) else . end) | tojson | fromjson`, `[{"a":1}]`}, {`input, [inputs], $ENV, env.X, input_line_number`, `1 2`},
		{`getpath(["a",0]) = 1 | setpath(["b"]; 2) | delpaths([["a"]])`, `null`}, {`[splits("a";"g")], ascii, implode, ltrimstr("x"), (tostream | tojson)`, `"bab"`}, {`"\(1;2)`, ``}, {`..|=.`, `[1]`},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, src, in string) {
		if len(src) > 2000 || len(in) > 2000 {
			return
		}
		b := budget(300_000, 64<<20)
		d := NewDecoder(strings.NewReader(in), b)
		p, err := Compile(src, Options{Budget: b, Input: d.Next, Environ: func() []string { return []string{"X=1"} }})
		if err != nil {
			return
		}
		for range 5 {
			v, err := d.Next()
			if err != nil {
				v = nil
			}
			w := NewPrinter(b)
			rerr := p.Run(v, func(x any) error {
				_, err := w.Append(nil, x, Style{Indent: " ", Sort: true, ASCII: true, Color: true})
				return err
			})
			if err != nil || errors.Is(rerr, ErrStop) {
				return
			}
		}
	})
}

// FuzzDecode reads any input. A value that was read must be the same after writing and reading it
// again.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"\u00e9\ud83d\ude00\n",null,true]} 2 "x"`, `[`, `{"a"`, "\x1e1\n", "nan Infinity", `"\ud800"`, "\xff", "1e999 -0 00 .5 1.", "\ufeff[]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d := NewDecoder(strings.NewReader(s), Budget{})
		for {
			v, err := d.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				var e *SyntaxError
				if !errors.As(err, &e) {
					t.Fatalf("%q: %v", s, err)
				}
				return
			}
			again, err := Parse(Text(v), Budget{})
			if err != nil || Text(again) != Text(v) {
				t.Fatalf("%q: %s became %v (%v)", s, Text(v), again, err)
			}
		}
	})
}

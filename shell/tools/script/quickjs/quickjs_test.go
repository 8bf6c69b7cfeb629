package quickjs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

var testImage = NewImage([]string{"echo"}, "prelude", `(host) => { globalThis.echo = host.echo }`)

func start(t testing.TB, o Options) *VM {
	t.Helper()
	v, err := testImage.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

func TestValues(t *testing.T) {
	v := start(t, Options{Funcs: map[string]Func{"echo": func(vm *VM, args []Value) (any, error) {
		if len(args) == 0 {
			return nil, errors.New("nothing")
		}
		return map[string]any{"s": vm.String(args[0]), "b": []byte("ab\x00c"), "l": []any{1, true, nil, 2.5}}, nil
	}}})
	r, err := v.Eval(`let r = echo("a\0ü\ud83d\ude00"); JSON.stringify([r, r.b.byteLength]) + (() => { try { echo() } catch (e) { return e } })()`, "x.js", Script)
	if err != nil {
		t.Fatal(v.explain(err))
	}
	if got, want := v.String(r), "[{\"s\":\"a\\u0000ü\U0001F600\",\"b\":{},\"l\":[1,true,null,2.5]},4]nothing"; len(got) != len(want) {
		t.Errorf("%s", got)
	}
}

func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   string
	}{
		"loop":      {`for (;;) {}`, "interrupted"},
		"catch":     {`for (;;) try { for (;;) {} } catch {} finally { continue }`, "interrupted"},
		"recursion": {`function f() { return f() + 1 }; f()`, "stack"},
		"deep json": {`JSON.parse("[".repeat(1e6))`, "stack"},
		"deep re":   {`new RegExp("(".repeat(1e5))`, ""},
		"memory":    {`let a = []; for (;;) a.push(new Uint8Array(1e6).fill(1))`, "memory"},
		"string":    {`let a = "x"; for (;;) a += a`, ""},
		"regexp":    {`/(a+)+$/.test("a".repeat(40) + "b")`, "interrupted"},
		"sort":      {`Array.from({length: 1e7}, () => 1).sort(() => 1)`, ""},
		"fill":      {`new Array(2**32-2).fill(0)`, ""},
		"join":      {`Array(1e9).join("x")`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			steps, mem := 20_000_000, int64(64<<20)
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			v, err := testImage.Start(ctx, Options{Step: func(n int) bool { steps -= n; return steps > 0 },
				Grow: func(n int64) bool { mem -= n; return mem > 0 }})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			_, err = v.Eval(c.script, "x.js", Script)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			t.Log(time.Since(began), err)
		})
	}
}

func BenchmarkStart(b *testing.B) {
	start(b, Options{})
	b.ReportMetric(float64(testImage.Size()), "bytes")
	for b.Loop() {
		v, err := testImage.Start(context.Background(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := v.Eval("1+1", "x", Script); err != nil {
			b.Fatal(err)
		}
		v.Close()
	}
}

func BenchmarkFib(b *testing.B) {
	v := start(b, Options{})
	for b.Loop() {
		if _, err := v.Eval("(function f(n){return n<2?n:f(n-1)+f(n-2)})(25)", "x", Script); err != nil {
			b.Fatal(err)
		}
	}
}

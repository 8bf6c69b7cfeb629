package calc

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/tool"
)

// budget is a host that ends a program after a number of steps.
type budget struct {
	tool.Host
	steps int
}

func (b *budget) Step(n int) bool      { b.steps -= max(n, 1); return b.steps > 0 }
func (b *budget) Pay(int64) error      { return nil }
func (b *budget) Getenv(string) string { return "" }

// FuzzPrograms runs programs of bc and dc for a while.
func FuzzPrograms(f *testing.F) {
	for _, s := range []string{"1+2*3^4\n", "define f(x) { auto y; if (x>0) return (f(x-1)+1); return (0); }\nf(9)\n", "scale=9;sqrt(2)/3\nobase=2;.1", "for(i=0;i<3;i++){a[i]=i;print i,\"\\n\"}", "[lax]salax", "16o255p9k2v*f", "\"", "/*", "((((", "1 2+p[3]x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 2000 {
			return
		}
		for _, run := range []tool.Command{bc, dc} {
			var out bytes.Buffer
			run(&tool.Call{Host: &budget{steps: 50000}, Ctx: context.Background(), Name: "bc", In: strings.NewReader(s), Out: &out, Err: &out})
		}
	})
}

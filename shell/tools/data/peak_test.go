package data_test

import (
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPeak runs programs that collect values without end. Each must end before this process holds
// much more memory than the machine may use. Values are counted at their real size, and a growing
// array counts twice.
func TestPeak(t *testing.T) {
	const limit = 64 << 20 // of run's machine
	for _, program := range []string{
		`[range(1e12)]`, `[range(1e12) | tostring]`, `[range(1e12) | [.]]`, `[range(1e12) | {a: .}]`, `[limit(1e12; repeat("x"))]`,
		`[range(1e12)] | sort`, `[recurse(. + 1; true)] | length`, `"x" * 1e12`, `[range(1e12) | "x" * 100]`, `{(range(1e12) | tostring): 1} as $x | input`,
		`[range(1e12) as $x | [$x, [$x, $x]]]`, `def f: [f]; f`, `[foreach range(1e12) as $i (0; . + $i; {s: .})]`,
	} {
		t.Run(program, func(t *testing.T) {
			runtime.GC()
			before, highest := heap(), uint64(0)
			done := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-done:
						return
					case <-tick.C:
						highest = max(highest, heap())
					}
				}
			})
			_, e := run(t, "jq -n '"+program+"'")
			close(done)
			wg.Wait()
			if over := int64(highest) - int64(before); over > 2*limit {
				t.Errorf("it held %d MiB where %d may be held", over>>20, limit>>20)
			} else {
				t.Logf("%d MiB, %q", over>>20, e.Message)
			}
			if strings.Contains(e.Message, "internal") {
				t.Error(e.Message)
			}
		})
	}
}

// heap returns the size of this process's heap, including garbage that is not collected yet.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

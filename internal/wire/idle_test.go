package wire_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

// idleCost is the cost of a link without traffic.
type idleCost struct{ heap, stacks, goroutines, files float64 }

// costOfIdle attaches links and measures what they hold.
func costOfIdle(t testing.TB, n int) idleCost {
	w := wire.New(wire.Options{})
	t.Cleanup(func() { _ = w.Close() })
	memory := func() (heap, stacks float64) {
		runtime.GC()
		runtime.GC() // the second run frees what pools held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc), float64(m.StackInuse)
	}
	heap, stacks := memory()
	gos, fds := runtime.NumGoroutine(), openFiles(t)
	for range n {
		host, fd := pair(t, 0)
		t.Cleanup(func() { _ = unix.Close(fd) })
		if _, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: 65520}, host); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	h, st := memory()
	each := float64(n)
	return idleCost{(h - heap) / each, (st - stacks) / each, float64(runtime.NumGoroutine()-gos) / each, float64(openFiles(t)-fds)/each - 1}
}

// BenchmarkIdleLinks measures the cost of a link without traffic: memory, goroutines and
// descriptors.
func BenchmarkIdleLinks(b *testing.B) {
	c := costOfIdle(b, 500)
	for b.Loop() {
	}
	b.ReportMetric(c.heap, "heap-B/link")
	b.ReportMetric(c.stacks, "stack-B/link")
	b.ReportMetric(c.goroutines, "goroutines/link")
	b.ReportMetric(c.files, "fds/link")
	b.ReportMetric(0, "ns/op")
}

// TestIdleLinks shows that thousands of links without traffic fit on a machine: one takes some 33
// KiB.
func TestIdleLinks(t *testing.T) {
	c := costOfIdle(t, 100)
	t.Logf("%+v", c)
	if c.heap > 40<<10 || c.stacks > 40<<10 || c.goroutines > 5 || c.files > 1 {
		t.Errorf("an idle link holds too much: %+v", c)
	}
}

func openFiles(t testing.TB) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

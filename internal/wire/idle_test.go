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

// BenchmarkIdleLinks says what a link costs on which nothing happens: memory, goroutines
// and descriptors.
func BenchmarkIdleLinks(b *testing.B) {
	const n = 500
	w := wire.New(wire.Options{})
	defer w.Close()
	memory := func() (heap, stacks uint64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, m.StackInuse
	}
	heap, stacks := memory()
	gos, fds := runtime.NumGoroutine(), openFiles(b)
	for range n {
		host, fd := pair(b, 0)
		b.Cleanup(func() { _ = unix.Close(fd) })
		if _, err := w.Attach(b.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: 65520}, host); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
	}
	time.Sleep(time.Second)
	h, st := memory()
	b.ReportMetric(float64(h-heap)/n, "heap-B/link")
	b.ReportMetric(float64(st-stacks)/n, "stack-B/link")
	b.ReportMetric(float64(runtime.NumGoroutine()-gos)/n, "goroutines/link")
	b.ReportMetric(float64(openFiles(b)-fds)/n-1, "fds/link")
	b.ReportMetric(0, "ns/op")
}

func openFiles(b *testing.B) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.Fatal(err)
	}
	return len(d)
}

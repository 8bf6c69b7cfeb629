package wire

import (
	"runtime"
	"testing"
	"time"
)

// On a machine with many processors a link has as many goroutines as on a small one.
func TestProcessors(t *testing.T) {
	count := func(processors int) int {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		before := runtime.NumGoroutine()
		s, err := newStack(maxWindow)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			s.Destroy()
			for end := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if after := runtime.NumGoroutine(); after > before {
				t.Errorf("%d goroutines are left of a stack", after-before)
			}
		}()
		return runtime.NumGoroutine() - before
	}
	few, many := count(maxProcessors), count(64)
	// One or two that are about to end, of this test or of another, may be among them.
	if few < maxProcessors || many > few+maxProcessors {
		t.Errorf("a stack has %d goroutines with %d processors and %d with 64", few, maxProcessors, many)
	}
}

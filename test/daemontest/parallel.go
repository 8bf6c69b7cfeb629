package daemontest

import (
	"sync"
	"testing"
)

// InParallel runs fn for 0…n−1 at once, waits for all, and fails the test with
// each error.
func InParallel(t testing.TB, n int, fn func(int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := fn(i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

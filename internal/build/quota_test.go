package build

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/quota"
)

// TestQuotaOfBuilds queues many builds at once at the limits of a project and of a key. Nothing runs:
// the builds wait.
func TestQuotaOfBuilds(t *testing.T) {
	bound := func(key string, n carrel.Milli) quota.Bound {
		return quota.Bound{Holder: carrel.Holder{Project: "p", Key: key}, Of: "it",
			Quota: carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{carrel.LimitBuilds: n * quota.One}}}
	}
	e := &Engine{opts: Options{Queued: 256, Quotas: func(project, key string) (out []quota.Bound) {
		if project == "p" {
			out = append(out, bound("", 5))
		}
		if key == "k" {
			out = append(out, bound("k", 2))
		}
		return out
	}}, making: map[*job]struct{}{}, running: map[string]int{}}
	storm := func(project, key string, want int32) {
		t.Helper()
		var fit atomic.Int32
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				err := e.enqueue("build", &job{project: project, rec: record{KeyID: key}})
				hit := carrel.LimitOf(err)
				switch {
				case err == nil:
					fit.Add(1)
				case hit == nil || hit.Name != carrel.LimitBuilds:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if fit.Load() != want {
			t.Errorf("%d fit, want %d", fit.Load(), want)
		}
	}
	storm("p", "k", 2)
	storm("p", "", 3)
	storm("q", "", 30)
	if n := e.Busy(carrel.Holder{Project: "p"}); n != 5 {
		t.Errorf("%d are busy", n)
	}
	running := e.queue[0]
	e.queue, e.making[running] = e.queue[1:], struct{}{} // one begins to run
	storm("p", "k", 0)
	delete(e.making, running)
	storm("p", "k", 1)
}

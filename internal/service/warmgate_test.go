package service_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/service"
)

// TestWarmYields shows that the pool makes no warm sandboxes while creations wait for their turn,
// but does afterwards.
func TestWarmYields(t *testing.T) {
	h := newWarmHouse(t, service.WarmOptions{Cap: 4}, func(o *service.Options) { o.MaxStarting, o.MaxWait = 1, time.Hour })
	release, begun := blockCreates(h)
	defer release()
	var wg sync.WaitGroup
	for range 2 { // two misses: one creation starts and one waits
		wg.Go(func() {
			if _, err := h.Create(t.Context(), carrel.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "one to start and one to wait", func() bool { return begun.Load() == 1 && h.Admission().Creates == 1 })
	until(t, "one is wanted ahead", func() bool { return status(t, h.Service).Making > 0 })
	for range 20 {
		time.Sleep(5 * time.Millisecond)
		if n := begun.Load(); n != 1 {
			t.Fatalf("%d have begun beside one that waits", n)
		}
	}
	release()
	wg.Wait()
	until(t, "some are ready", func() bool { return status(t, h.Service).Ready > 0 })
	if p := status(t, h.Service).Problem; p != "" {
		t.Errorf("the pool has a problem: %s", p)
	}
}

// TestWarmGivesWay shows that, when memory is short, the pool gives up warm sandboxes for requests
// and makes no new ones.
func TestWarmGivesWay(t *testing.T) {
	var short atomic.Bool
	var h *house
	h = newWarmHouse(t, floorOf(3), func(o *service.Options) {
		o.Room = func(r admission.Request, _ int) error {
			if short.Load() && (r.Op != "create sandbox" || status(t, h.Service).Ready >= 3) {
				return &carrel.Error{Op: r.Op, Kind: carrel.Unavailable, Field: "memory", Err: errors.New("there is none")}
			}
			return nil
		}
	})
	filled(t, h.Service, 3)
	short.Store(true)
	if sb := h.create(t, carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 300}}); sb.Limits.MemoryMB != 300 {
		t.Errorf("created %+v", sb)
	}
	if st := status(t, h.Service); st.Lost == 0 {
		t.Errorf("nothing gave way: %+v", st)
	}
}

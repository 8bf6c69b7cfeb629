package service_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/pool"
	"github.com/carrel-dev/carrel/internal/service"
)

// TestWarmHammer creates, kills, crashes, presses and closes at once, for -race. Each sandbox is
// adopted at most once, no caller gets another's data, the caps hold, and nothing is left.
func TestWarmHammer(t *testing.T) {
	const most, ready = 24, 8
	var available atomic.Int64
	available.Store(90)
	h := newWarmHouse(t, service.WarmOptions{
		Cap: ready, Every: time.Millisecond, Fresh: time.Millisecond,
		Floors: []service.WarmFloor{{Template: "base", Count: 3}, {Template: "base", MemoryMB: 64, Count: 2}},
		Memory: func() pool.Memory { return pool.Memory{Total: 100, Available: available.Load()} },
	}, func(o *service.Options) { o.MaxSandboxes = most })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	seen, tokens := map[carrel.ID]bool{}, map[string]bool{}
	var ids []carrel.ID
	took := func(sb carrel.Sandbox) {
		mu.Lock()
		defer mu.Unlock()
		if seen[sb.ID] || tokens[sb.AccessToken] {
			t.Errorf("%s was given out twice", sb.ID)
		}
		seen[sb.ID], tokens[sb.AccessToken] = true, true
		ids = append(ids, sb.ID)
	}
	drop := func() (id carrel.ID, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(ids) == 0 {
			return "", false
		}
		i := rand.IntN(len(ids))
		id = ids[i]
		ids[i] = ids[len(ids)-1]
		ids = ids[:len(ids)-1]
		return id, true
	}
	create := func() {
		mine := string(carrel.NewID())
		opts := carrel.CreateOptions{Env: map[string]string{"MINE": mine}}
		if n := rand.IntN(4); n > 0 {
			opts.Limits.MemoryMB = 64 * n
		}
		sb, err := h.Create(ctx, opts)
		switch carrel.KindOf(err) {
		case "":
			took(sb)
		case carrel.Exhausted, carrel.Unavailable:
			return
		case carrel.Internal: // one made from nothing died while it started
			if !strings.Contains(err.Error(), "by the hammer") {
				t.Errorf("create: %v", err)
			}
			return
		default:
			t.Errorf("create: %v", err)
			return
		}
		in := h.drv.get(sb.ID)
		if in == nil {
			return // it was killed
		}
		for _, req := range in.inits() {
			if v, ok := req.EnvVars["MINE"]; ok && v != mine {
				t.Errorf("%s has what was another's", sb.ID)
			}
		}
	}
	filled(t, h.Service, 5)
	took(h.create(t, carrel.CreateOptions{})) // use a warm one now: later the pool may have no time to make any
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for range 60 {
				switch n := rand.IntN(12); {
				case n < 5:
					create()
				case n < 9:
					if id, ok := drop(); ok {
						if err := h.Kill(ctx, id); err != nil && carrel.KindOf(err) != carrel.NotFound && carrel.KindOf(err) != carrel.Unavailable {
							t.Errorf("kill: %v", err)
						}
					}
				case n < 10:
					available.Store([]int64{90, 10, 1}[rand.IntN(3)])
				case n < 11:
					for _, id := range h.drv.ids() { // any sandbox: ready, adopted or being adopted
						if in := h.drv.get(id); in != nil {
							in.die(driver.Exit{Reason: carrel.EndCrashed, Message: "by the hammer"})
							break
						}
					}
				default:
					if st := status(t, h.Service); st.Ready+st.Making > ready+1 { // one may be moving from Making to Ready
						t.Errorf("%d ready and %d being made, the cap is %d", st.Ready, st.Making, ready)
					}
				}
				if g == 0 {
					available.Store(90)
				}
			}
		})
	}
	wg.Wait()
	available.Store(90)
	var last sync.WaitGroup
	for range 4 { // creations while it closes
		last.Go(func() { create() })
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	last.Wait()
	h.clean(t)
	h.drv.mu.Lock()
	defer h.drv.mu.Unlock()
	if h.drv.most > most+ready+2 {
		t.Errorf("%d instances lived at once", h.drv.most)
	}
	st := status(t, h.Service)
	t.Logf("hits %d, misses %d, lost %d, %d at once", st.Hits, st.Misses, st.Lost, h.drv.most)
	if st.Hits == 0 {
		t.Error("nobody got one that was ready")
	}
}

package crash

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestWarmCrash kills a daemon again and again while its pool fills and sandboxes are adopted from
// it. Right after each start there must never be more instances than sandboxes and the pool's cap
// together. Acknowledged sandboxes must live, and nothing may be left at the end.
func TestWarmCrash(t *testing.T) {
	const ready = 6
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	d := daemontest.Start(t, "--warm", "6", "--warm-floor", "base=4")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	alive := map[carrel.ID]bool{}
	var every []carrel.ID
	for round := range rounds {
		svc := connect(t, d)
		var mu sync.Mutex
		var wg sync.WaitGroup
		asked := 0 // some may have been made without an answer
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					mu.Lock()
					asked++
					mu.Unlock()
					sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Hour})
					if err != nil {
						return
					}
					mu.Lock()
					asked--
					alive[sb.ID] = true
					every = append(every, sb.ID)
					full := len(alive) >= 8
					mu.Unlock()
					if full {
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(200+rand.IntN(1500)) * time.Millisecond) // any moment will do
		d.Kill9()
		wg.Wait()
		_ = svc.Close()
		d.Restart()

		svc = connect(t, d)
		// Sandboxes that the last service made without an answer are listed or gone.
		if n := d.Kernels(); n > len(alive)+asked+ready {
			t.Errorf("round %d: %d kernels run for %d sandboxes and a pool of at most %d", round, n, len(alive), ready)
		}
		page, err := svc.List(ctx, carrel.ListOptions{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, sb := range page.Sandboxes {
			if sb.State != carrel.Running {
				t.Errorf("round %d: %s is %s", round, sb.ID, sb.State)
			}
		}
		var ids []carrel.ID
		for id := range alive {
			ids = append(ids, id)
		}
		daemontest.InParallel(t, len(ids), func(i int) error { return answers(ctx, svc, ids[i]) })
		for _, sb := range page.Sandboxes { // room for the next round
			if err := svc.Kill(ctx, sb.ID); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			delete(alive, sb.ID)
			every = append(every, sb.ID)
		}
		if len(alive) > 0 {
			t.Errorf("round %d: not listed any more: %v", round, alive)
		}
		_ = svc.Close()
	}
	svc := connect(t, d)
	daemontest.Eventually(t, 2*time.Minute, "the pool is at its floor", func() bool {
		st, err := svc.(carrel.Pools).Pool(ctx)
		return err == nil && st.Making == 0 && st.Ready >= 4 && d.Kernels() == st.Ready
	})
	_ = svc.Close()
	d.Terminate()
	if n := d.Kernels(); n != 0 {
		t.Errorf("%d kernels run after the daemon has stopped", n)
	}
	if left, _ := filepath.Glob(filepath.Join(d.Dir, "sandboxes", "i*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	d.Restart()
	if left := remains(t, d, every); len(left) > ready {
		t.Errorf("left behind: %v", left)
	}
}

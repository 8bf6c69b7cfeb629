package crash

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestTrail kills the daemon while callers change things. Each change that was acknowledged has its
// record, and the chain of records is whole, whatever moment the kill met.
func TestTrail(t *testing.T) {
	t.Parallel()
	const kills, callers = 4, 3
	d := daemontest.Start(t)
	ctx := t.Context()
	var mu sync.Mutex
	var made, ended []carrel.ID // acknowledged
	for range kills {
		var working sync.WaitGroup
		first := make(chan struct{}, callers)
		for range callers {
			working.Go(func() {
				svc := connect(t, d)
				defer svc.Close()
				for i := 0; ; i++ {
					sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
					if err != nil {
						return // the daemon is gone
					}
					mu.Lock()
					made = append(made, sb.ID)
					mu.Unlock()
					if i == 0 {
						first <- struct{}{}
					}
					if svc.Kill(ctx, sb.ID) != nil {
						return
					}
					mu.Lock()
					ended = append(ended, sb.ID)
					mu.Unlock()
				}
			})
		}
		for range callers {
			<-first
		}
		d.Kill9()
		working.Wait()
		d.Restart()
	}
	admin := connect(t, d).(*client.Client)
	records := map[string]int{} // by operation and target
	for r, err := range admin.Trail(ctx, carrel.TrailOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind == carrel.TrailChange && r.Status < 300 {
			records[strings.Fields(r.Op)[0]+" "+r.Target]++
		}
	}
	for method, ids := range map[string][]carrel.ID{"POST": made, "DELETE": ended} {
		for _, id := range ids {
			if n := records[method+" "+string(id)]; n != 1 {
				t.Errorf("%s %s was acknowledged and has %d records", method, id, n)
			}
		}
	}
	report, err := admin.VerifyTrail(ctx)
	if err != nil || !report.OK || report.Records < int64(len(made)+len(ended)) {
		t.Errorf("%+v, %v", report, err)
	}
	t.Logf("%d made, %d ended, %d records", len(made), len(ended), report.Records)
}

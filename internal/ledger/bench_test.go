package ledger_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ledger"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
)

// BenchmarkHour is one hour of 2,000 busy sandboxes on a real file: a measurement of each every 5
// seconds, a heartbeat every 10, all saves, and the cut at the full hour. The time of an operation,
// divided by 3600 seconds, is the share of a core that the ledger takes.
func BenchmarkHour(b *testing.B) {
	const sandboxes, every = 2000, 5 * time.Second
	st, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "state.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	now := ledger.Moment{Wall: time.Date(2026, 3, 1, 10, 0, 1, 0, time.UTC), Mono: time.Hour, Boot: "a"}
	l, err := ledger.Open(b.Context(), ledger.Options{Store: st, Clock: func() ledger.Moment { return now }})
	if err != nil {
		b.Fatal(err)
	}
	ids := make([]carrel.ID, sandboxes)
	for i := range ids {
		ids[i] = carrel.NewID()
	}
	for part := 0; part < sandboxes; part += 100 {
		var c state.Change
		for _, id := range ids[part : part+100] {
			c.Put = append(c.Put, state.Record{Sandbox: carrel.Sandbox{ID: id, Project: "red", State: carrel.Running,
				Tier: carrel.Sim, Template: "base", Metadata: map[string]string{"task": "t"}, Limits: carrel.Limits{CPUs: 1, MemoryMB: 512}}})
		}
		if err := l.Store().Apply(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	var cpu time.Duration
	for b.Loop() {
		for i := range int(time.Hour / every) {
			now.Wall, now.Mono, cpu = now.Wall.Add(every), now.Mono+every, cpu+time.Second
			for _, id := range ids {
				l.Sample(id, state.Reading{CPU: cpu, Memory: 1 << 28, Disk: 1 << 26, Sent: int64(cpu) >> 20, Received: int64(cpu) >> 20})
			}
			if i%2 == 0 {
				if err := l.Tick(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N)/3600, "%core")
}

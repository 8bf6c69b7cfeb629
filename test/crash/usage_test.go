package crash

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// bracket is the least and the most time that a sandbox can have run, as its client saw it.
type bracket struct {
	least, most time.Duration
	asked       time.Time // when its last start was asked for
	running     time.Time // when it was acknowledged
}

// begin notes a start that was asked for at a time and is acknowledged now.
func (b *bracket) begin(asked time.Time) { b.asked, b.running = asked, time.Now() }

// end notes an end that was asked for at a time and is acknowledged now.
func (b *bracket) end(asked time.Time) {
	b.least += asked.Sub(b.running)
	b.most += time.Since(b.asked)
}

// TestUsage kills the daemon again and again, with and without some time before the next one starts.
// One sandbox runs all the time, another one is paused and resumed between the kills. What the
// ledger says about each lies in what its client saw: no second is lost or counted twice.
func TestUsage(t *testing.T) {
	t.Parallel()
	killAndMeter(t, 4)
}

// TestUsageLong is TestUsage with 50 kills.
func TestUsageLong(t *testing.T) {
	testenv.Long(t, "it kills the daemon 50 times")
	killAndMeter(t, 50)
}

func killAndMeter(t *testing.T, kills int) {
	d := daemontest.Start(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	svc := connect(t, d)
	create := func(task string, b *bracket) carrel.ID {
		asked := time.Now()
		sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Hour, Metadata: map[string]string{"task": task}})
		must(err)
		b.begin(asked)
		return sb.ID
	}
	var steady, moving bracket
	a, b := create("steady", &steady), create("moving", &moving)
	paused := false
	for range kills {
		if !paused {
			asked := time.Now()
			_, err := svc.Pause(ctx, b, carrel.PauseOptions{FilesOnly: true})
			must(err)
			moving.end(asked)
		} else {
			asked := time.Now()
			_, _, err := svc.Resume(ctx, b, carrel.ResumeOptions{Timeout: time.Hour})
			must(err)
			moving.begin(asked)
		}
		paused = !paused
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		d.Kill9()
		_ = svc.Close()
		time.Sleep(time.Duration(rand.IntN(2)*rand.IntN(700)) * time.Millisecond)
		d.Restart()
		svc = connect(t, d)
	}
	if !paused {
		asked := time.Now()
		must(svc.Kill(ctx, b))
		moving.end(asked)
	}
	asked := time.Now()
	must(svc.Kill(ctx, a))
	steady.end(asked)

	r, err := svc.Usage(ctx, carrel.UsageOptions{By: []string{"sandbox", "label:task", "kind"}})
	must(err)
	got := map[string]time.Duration{}
	for _, row := range r.Rows {
		if row.Group[2] == string(carrel.UsageRun) {
			got[row.Group[0]+row.Group[1]] = time.Duration(row.AliveSeconds) * time.Millisecond
		}
	}
	const rounding = 2 * time.Millisecond
	for name, want := range map[string]bracket{string(a) + "steady": steady, string(b) + "moving": moving} {
		if ran := got[name]; ran < want.least-rounding || ran > want.most+rounding*time.Duration(kills) {
			t.Errorf("%s: the ledger says %v, its client saw %v to %v", name, ran, want.least, want.most)
		}
		t.Logf("%s: %v, between %v and %v", name, got[name], want.least, want.most)
	}
}

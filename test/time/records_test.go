package time

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// recordsOf are the files that hold a daemon's records.
var recordsOf = []string{"state.db", "state.db-wal", "state.db-shm"}

// TestRecordsGone loses state.db under sandboxes of each tier, running and paused, by kill -9. The
// second copy of the records brings all of them back.
func TestRecordsGone(t *testing.T) {
	d := daemontest.Start(t)
	svc := connect(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	running, paused := populate(ctx, t, svc)
	d.Kill9()
	for _, name := range recordsOf {
		if err := os.Remove(filepath.Join(d.Dir, name)); err != nil && name == "state.db" {
			t.Fatal(err)
		}
	}
	d.Restart()
	svc = connect(t, d)
	if list, err := svc.Unclaimed(ctx); err != nil || len(list) != 0 {
		t.Errorf("unclaimed: %+v, %v", list, err)
	}
	if !strings.Contains(d.Log(), "second copy") {
		t.Error("the log does not say what happened")
	}
	for _, id := range append(running, paused...) {
		if out := shell(ctx, t, svc, id, "cat work"); out != "thesis\n" {
			t.Errorf("%s: its file is %q", id, out)
		}
	}
}

// TestAllRecordsGone loses both copies of the records. Everything is kept and listed. A repair
// brings the paused sandboxes back, and the running ones end only on request.
func TestAllRecordsGone(t *testing.T) {
	d := daemontest.Start(t)
	svc := connect(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	running, paused := populate(ctx, t, svc)
	kernels := d.Kernels()
	d.Kill9()
	for _, name := range append(recordsOf, "records.ledger") {
		_ = os.Remove(filepath.Join(d.Dir, name))
	}
	d.Restart()
	svc = connect(t, d)
	if n := d.Kernels(); n < 1 || kernels < 1 {
		t.Errorf("%d kernels run of %d", n, kernels)
	}
	out, err := d.CLI("--data-dir", d.Dir, "fsck", "--json", "--repair").Output()
	var res struct{ Unclaimed, Reclaimed []any }
	if err == nil {
		err = json.Unmarshal(out, &res)
	}
	if err != nil || len(res.Reclaimed) != len(paused) || len(res.Unclaimed) != len(running) {
		t.Fatalf("%v: %s; want %d reclaimed and %d left", err, out, len(paused), len(running))
	}
	for _, id := range paused {
		if _, _, err := svc.Resume(ctx, id, carrel.ResumeOptions{}); err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if out := shell(ctx, t, svc, id, "cat work"); out != "thesis\n" {
			t.Errorf("%s: its file is %q", id, out)
		}
	}
	for _, id := range running {
		if out, err := d.CLI("--data-dir", d.Dir, "fsck", "--delete", string(id)).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if _, err := svc.Get(ctx, id); !errors.Is(err, carrel.NotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if out, err := d.CLI("--data-dir", d.Dir, "fsck").CombinedOutput(); err != nil || !strings.Contains(string(out), "everything has its record") {
		t.Errorf("%v: %s", err, out)
	}
}

// populate makes a running and a paused sandbox of each tier that outlives its daemon, and a paused
// one of tier sim.
func populate(ctx context.Context, t *testing.T, svc carrel.Service) (running, paused []carrel.ID) {
	t.Helper()
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS, carrel.Sim} {
		for _, pause := range []bool{false, true} {
			if tier == carrel.Sim && !pause {
				continue
			}
			sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: tier, Timeout: time.Hour, Lifecycle: carrel.Lifecycle{AutoResume: true}})
			if err != nil {
				t.Fatal(tier, err)
			}
			shell(ctx, t, svc, sb.ID, "echo thesis >work")
			if !pause {
				running = append(running, sb.ID)
				continue
			}
			if _, err := svc.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
				t.Fatal(tier, err)
			}
			paused = append(paused, sb.ID)
		}
	}
	return running, paused
}

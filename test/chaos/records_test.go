package chaos

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
)

// recordFiles are the files of the database of records.
var recordFiles = []string{"state.db", "state.db-wal", "state.db-shm"}

// recordsTrial damages or replaces one copy of the records. The other one brings everything back.
func recordsTrial(t *trial) {
	d := t.serve(setup{})
	t.populate(d)
	old := filepath.Join(t.dir, "old")
	ways := map[string]func(){
		"state.db deleted": func() {
			for _, name := range recordFiles {
				_ = os.Remove(filepath.Join(d.dir, name)) // -wal and -shm may not be there
			}
		},
		"state.db is empty": func() {
			for _, name := range recordFiles[1:] {
				_ = os.Remove(filepath.Join(d.dir, name))
			}
			t.check(os.WriteFile(filepath.Join(d.dir, "state.db"), nil, 0o600))
		},
		"an older state.db": func() {
			for _, name := range recordFiles {
				_ = os.Remove(filepath.Join(d.dir, name))
				if _, err := os.Stat(filepath.Join(old, name)); err == nil {
					t.command("cp", "-a", filepath.Join(old, name), d.dir)
				}
			}
		},
		"a damaged page in the WAL": func() { t.harm(filepath.Join(d.dir, "state.db-wal"), "zero") },
		"a damaged state.db":        func() { t.harm(filepath.Join(d.dir, "state.db"), "zero") },
		"no ledger": func() {
			t.check(
				os.Remove(filepath.Join(d.dir, "records.ledger")))
		},
		"a damaged ledger": func() { t.harm(filepath.Join(d.dir, "records.ledger"), "flip") },
		"half a ledger":    func() { t.harm(filepath.Join(d.dir, "records.ledger"), "half") },
	}
	names := []string{"state.db deleted", "an older state.db", "a damaged page in the WAL",
		"no ledger", "half a ledger",
		"state.db is empty", "a damaged state.db", "a damaged ledger"}
	t.rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	for _, way := range names[:rounds(3)] {
		t.calm.Store(true)
		d.terminate() // with what runs
		t.check(os.RemoveAll(old))
		t.check(os.Mkdir(old, 0o700))
		for _, name := range recordFiles {
			if _, err := os.Stat(filepath.Join(d.dir, name)); err == nil {
				t.command("cp", "-a", filepath.Join(d.dir, name), old)
			}
		}
		if err := d.start(); err != nil {
			t.fatalf("it does not start after a stop: %v", err)
		}
		t.verify(d.svc, afterKill)
		t.calm.Store(true)
		stop := t.work(d, 3)
		t.busy(8 + t.rng.IntN(15))
		t.calm.Store(false)
		d.kill9()
		stop()
		ways[way]()
		t.faults++
		t.note("%s", way)
		if err := d.start(); err != nil {
			t.fatalf("%s: it does not start: %v", way, err)
		}
		t.verify(d.svc, afterKill)
		if len(t.violations) > 0 {
			return
		}
	}
	t.finish(d)
}

// lostTrial loses both copies of the records. Nothing is deleted, everything is listed, and a
// repair brings back all that was paused or kept.
func lostTrial(t *trial) {
	d := t.serve(setup{})
	t.populate(d)
	d.kill9()
	t.faults++
	for _, name := range append([]string{"records.ledger"}, recordFiles...) {
		_ = os.Remove(filepath.Join(d.dir, name))
	}
	if err := d.start(); err != nil {
		t.fatalf("it does not start without its records: %v", err)
	}
	list, err := d.svc.Unclaimed(t.ctx)
	if err != nil {
		t.fatalf("fsck: %v", err)
	}
	listed := map[string]bool{}
	for _, u := range list {
		listed[u.ID] = true
	}
	for _, s := range t.j.snapsOf("") {
		if !listed[string(s.id)] {
			t.violate("snapshot %s has lost its record and is not listed", s.id)
		}
	}
	out, err := d.cli("fsck", "--repair")
	if err != nil {
		t.violate("%v", err)
	}
	for _, b := range t.j.alive() {
		if b.paused {
			continue
		}
		if b.dead = true; b.tier == carrel.Sim && !listed[string(b.id)] {
			continue // it lived in the daemon
		}
		if !listed[string(b.id)] || !strings.Contains(out, string(b.id)) {
			t.violate("%s ran, has lost its record and is not listed", b.id)
		}
		if _, err := d.cli("fsck", "--delete", string(b.id)); err != nil {
			t.violate("%v", err)
		}
	}
	t.verify(d.svc, afterKill)
	t.finish(d)
}

// returnedTrial puts the content of a deleted snapshot back, as from an older copy of the
// directory. Its deletion was acknowledged: the next start removes it again.
func returnedTrial(t *trial) {
	t.tiers = []carrel.Tier{carrel.GVisor, carrel.Sim}
	d := t.serve(setup{})
	t.populate(d)
	t.packed(d)
	w := &worker{t: t, svc: d.svc, rng: t.rng}
	w.snapshot(t.ctx, first(t, false))
	t.packed(d)
	aside := filepath.Join(t.dir, "aside")
	t.command("cp", "-a", filepath.Join(d.dir, "snapshots"), aside)
	for i, s := range t.j.snapsOf("") {
		if i%2 == 0 {
			w.delete(t.ctx, s)
		}
	}
	d.terminate()
	for _, dir := range []string{"hot", "packed", "blobs"} {
		if _, err := os.Stat(filepath.Join(aside, dir)); err == nil {
			t.command("cp", "-a", "-n", filepath.Join(aside, dir), filepath.Join(d.dir, "snapshots"))
		}
	}
	t.faults++
	if err := d.start(); err != nil {
		t.fatalf("it does not start: %v", err)
	}
	t.verify(d.svc, afterKill)
	t.finish(d)
}

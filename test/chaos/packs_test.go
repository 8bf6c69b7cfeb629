package chaos

import (
	"os"
	"path/filepath"
	"strings"
)

// packsTrial damages a pack, lets everything be paused anew, and then removes all hot copies. What
// was paused after the damage must not lie on the damaged pack.
func packsTrial(t *trial) {
	d := t.serve(setup{})
	t.populate(d)
	for range rounds(2) {
		t.pauseAll(d)
		t.packed(d)
		pauses := t.pausesOf(d)
		d.terminate()
		list, err := filepath.Glob(filepath.Join(d.dir, "snapshots/blobs/packs/*"))
		t.check(err)
		if len(list) == 0 {
			t.fatalf("the trial itself: there is no pack")
		}
		pack, how := list[t.rng.IntN(len(list))], damages[t.rng.IntN(len(damages))]
		touched := t.touchedByPack(d.dir, pauses, map[string]bool{})
		t.harm(pack, how)
		t.faults++
		t.note("%s %s", how, filepath.Base(pack))
		t.check(d.start())
		t.verify(d.svc, allowed{touched: touched, snapshots: -1})
		t.pauseAll(d)
		t.packed(d)
		d.terminate()
		t.dropHot(d.dir)
		t.faults++
		t.check(d.start())
		t.verify(d.svc, allowed{snapshots: -1,
			touched: func(id string) bool { return strings.HasPrefix(id, "s") }})
		if len(t.violations) > 0 {
			return
		}
	}
}

// dropHot removes the hot copies of all packed snapshots, as the store does when it needs the room.
func (t *trial) dropHot(dir string) {
	list, err := os.ReadDir(filepath.Join(dir, "snapshots", "packed"))
	t.check(err)
	for _, e := range list {
		t.check(os.RemoveAll(filepath.Join(dir, "snapshots", "hot", e.Name())))
	}
}

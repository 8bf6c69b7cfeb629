package chaos

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/snapshot/store"
)

// answered are the operations whose answers promise that something is on the disk. Each gets a new
// running sandbox with a snapshot.
var answered = []func(t *trial, w *worker, b *box){
	func(t *trial, w *worker, b *box) { w.pause(t.ctx, b, false) },
	func(t *trial, w *worker, b *box) { w.pause(t.ctx, b, true) },
	func(t *trial, w *worker, b *box) { w.snapshot(t.ctx, b) },
	func(t *trial, w *worker, b *box) { w.kill(t.ctx, b) },
	func(t *trial, w *worker, b *box) { w.asleep(b, w.kill) },
	func(t *trial, w *worker, b *box) { w.asleep(b, w.resume) },
	func(t *trial, w *worker, b *box) {
		for _, s := range t.j.snapsOf(b.id) {
			w.delete(t.ctx, s)
		}
	},
}

// asleep pauses a sandbox, and then does an operation.
func (w *worker) asleep(b *box, do func(context.Context, *box)) {
	w.pause(w.t.ctx, b, false)
	if b.doubt == none {
		do(w.t.ctx, b)
	}
}

// steps are the fail points that these operations pass.
func steps() []string {
	return slices.DeleteFunc(append(service.FailPoints(), store.FailPoints()...), func(p string) bool {
		for _, prefix := range []string{"service.pause.", "service.moment.", "service.snapshot.",
			"service.resume.", "service.drop.", "snapshot.begin.", "snapshot.commit.",
			"snapshot.delete."} {
			if strings.HasPrefix(p, prefix) {
				return false
			}
		}
		return true
	})
}

// answerTrial cuts the power right after the answer of each operation: what was answered is on the
// disk. Half of the daemons die at a step in the middle of an operation, with what is not synced by
// then.
func answerTrial(t *trial) {
	k := t.newDisk(1024)
	t.tiers = []carrel.Tier{carrel.GVisor, carrel.NS}
	d := t.serve(setup{dir: filepath.Join(k.at, "data"), patch: " "})
	all, order := steps(), t.rng.Perm(len(answered))
	for _, i := range order[:rounds(len(order))] {
		step := ""
		if t.rng.IntN(2) == 0 {
			step = all[t.rng.IntN(len(all))]
			d.terminate()
			d.points(step + "=kill")
			t.check(d.start())
		}
		t.calm.Store(step == "")
		w := &worker{t: t, svc: d.svc, rng: t.rng, most: 100}
		if b := w.create(t.ctx, t.tiers[t.rng.IntN(len(t.tiers))]); b != nil {
			w.write(t.ctx, b)
			w.begin(t.ctx, b)
			w.snapshot(t.ctx, b)
			if b.doubt == none {
				answered[i](t, w, b)
			}
		}
		t.calm.Store(false)
		t.faults++
		k.cut()
		d.kill9()
		t.dark.Store(false)
		k.boot()
		d.points("")
		if err := d.start(); err != nil {
			t.fatalf("it does not start after a power cut: %v", err)
		}
		t.verify(d.svc, allowed{running: true})
		if len(t.violations) > 0 {
			t.violate("this was operation %d, step %q", i, step)
			return
		}
	}
	t.finish(d)
}

package chaos

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
)

// moveTrial moves the data directory, the daemon stopped or killed. Everything goes on there, also
// what runs.
func moveTrial(t *trial) {
	d := t.serve(setup{})
	t.populate(d)
	if t.seed%2 == 0 {
		d.kill9()
	} else {
		d.terminate()
	}
	t.faults++
	to := filepath.Join(t.dir, "moved")
	t.check(os.Rename(d.dir, to))
	old := d.dir
	t.later(func() { t.killAllOf(old) })
	d.dir = to
	if err := d.start(); err != nil {
		t.fatalf("it does not start where its directory was moved to: %v", err)
	}
	t.verify(d.svc, afterKill)
	t.finish(d)
}

// copyTrial copies the data directory of a running daemon, and starts a second daemon on the copy.
// The original loses nothing: nothing of it is adopted, swept or killed. The copy has the paused
// sandboxes under new IDs. With an even seed it takes everything over, under the old IDs.
func copyTrial(t *trial) {
	d := t.serve(setup{})
	t.populate(d)
	t.calm.Store(true)
	stop := t.work(d, 2)
	t.busy(5 + t.rng.IntN(10))
	stop()
	t.verify(d.svc, allowed{}) // settle what is in doubt
	t.pauseSome(d)
	d.signal(syscall.SIGSTOP) // or the copy would be torn
	copied := filepath.Join(t.dir, "copy")
	t.command("cp", "-a", d.dir, copied)
	d.signal(syscall.SIGCONT)
	t.faults++
	s := setup{dir: copied}
	adopt := t.seed%2 == 0
	if adopt {
		s.args = []string{"--adopt-copy"}
	}
	second := t.prepare(s)
	if err := second.start(); err != nil {
		t.fatalf("it does not start on a copy: %v", err)
	}
	sub := t.copied(adopt)
	t.verify(d.svc, allowed{}) // with the copy beside it
	if len(t.violations) > 0 {
		return
	}
	if !adopt {
		sub.sameContents(second.svc)
	}
	sub.verify(second.svc, allowed{})
	sub.finish(second)
	t.take(sub, "in the copy")
	t.verify(d.svc, allowed{})
	t.finish(d)
}

// copied returns a trial whose journal is what a copy of the data directory must have. With adopt,
// sandboxes have their old IDs. Sandboxes that run in the original may be in the copy as they were
// at their last snapshot.
func (t *trial) copied(adopt bool) *trial {
	sub := &trial{tb: t.tb, name: t.name, seed: t.seed, rng: t.rng, dir: t.dir, ctx: t.ctx,
		j: newJournal(), tiers: t.tiers}
	for _, b := range t.j.alive() {
		if adopt && b.paused {
			n := *b
			n.content = b.clone()
			sub.j.addBox(&n)
		} else {
			sub.j.unknown++
		}
		if !adopt && b.paused {
			sub.wanted = append(sub.wanted, b.clone())
		}
	}
	for _, s := range t.j.snapsOf("") {
		n := *s
		n.content = s.clone()
		sub.j.addSnap(&n)
	}
	return sub
}

// take adds the violations that another trial found.
func (t *trial) take(sub *trial, where string) {
	for _, v := range sub.violations {
		t.violate("%s: %s", where, v)
	}
}

// sameContents wakes every sandbox of a copy. For each content that was paused there must be one.
func (t *trial) sameContents(svc carrel.Service) {
	listed, err := listAll(t.ctx, svc)
	if err != nil {
		t.violate("the sandboxes can't be listed: %v", err)
		return
	}
	var got []map[string]string
	for id := range listed {
		if _, _, err := svc.Resume(t.ctx, id, carrel.ResumeOptions{}); err != nil {
			t.violate("%s: resume: %v", id, err)
		} else if c, err := svc.Computer(t.ctx, id); err != nil {
			t.violate("%s: %v", id, err)
		} else if files, err := contents(t.ctx, c); err != nil {
			t.violate("%s: %v", id, err)
		} else {
			got = append(got, files)
		}
	}
	for _, want := range t.wanted {
		i := slices.IndexFunc(got, func(files map[string]string) bool {
			return maps.Equal(files,
				want.files)
		})
		if i < 0 {
			t.violate("no sandbox has the content of one that was paused: %v", want.files)
			continue
		}
		got = slices.Delete(got, i, i+1)
	}
}

// pauseSome pauses every second sandbox that runs.
func (t *trial) pauseSome(d *server) {
	for i, b := range t.j.alive() {
		if i%2 == 0 || b.paused {
			continue
		}
		if _, err := d.svc.Pause(t.ctx, b.id, carrel.PauseOptions{}); err != nil {
			t.fatalf("pause %s: %v", b.id, err)
		}
		if b.paused = true; b.tier != carrel.GVisor {
			b.pid = 0
		}
	}
}

// templateTrial deletes a template under running and paused sandboxes, and imports another one of
// the same name. The sandboxes and snapshots go on, also after a restart.
func templateTrial(t *trial) {
	t.tiers = []carrel.Tier{carrel.GVisor, carrel.NS}
	d := t.serve(setup{})
	t.populate(d)
	if err := d.svc.DeleteTemplate(t.ctx, "mini"); err != nil {
		t.fatalf("delete a template: %v", err)
	}
	t.faults++
	t.verify(d.svc, allowed{snapshots: -1})
	t.pauseSome(d)
	if t.seed%2 == 0 {
		d.kill9()
	} else {
		d.terminate()
	}
	if err := d.start(); err != nil {
		t.fatalf("it does not start without its template: %v", err)
	}
	if t.seed%3 > 0 {
		if _, err := d.cli("template", "import", "mini", t.must(miniArchive(t.tb))); err != nil {
			t.fatalf("%v", err)
		}
	}
	t.verify(d.svc, allowed{snapshots: -1})
	t.finish(d)
}

// s3Trial kills a daemon whose snapshots lie in an object store. Sometimes the store is away.
func s3Trial(t *trial) {
	store := s3test.Start(t.tb)
	env := []string{"AWS_ENDPOINT_URL_S3=" + store.Endpoint, "AWS_ACCESS_KEY_ID=" + store.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + store.SecretKey}
	d := t.serve(setup{env: env, args: []string{"--snapshot-store",
		"s3://" + store.Bucket(t.tb) + "/moments"}})
	t.later(store.Stop)
	t.killRounds(d, 2)
	if len(t.violations) > 0 {
		return
	}
	stop := t.work(d, 2)
	t.busy(5 + t.rng.IntN(10))
	store.Stop()
	t.faults++
	t.busy(5 + t.rng.IntN(10))
	store.Restart(t.tb)
	stop()
	t.verify(d.svc, allowed{})
	t.finish(d)
}

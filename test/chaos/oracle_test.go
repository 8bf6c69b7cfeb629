package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
)

// lies are false entries in the journal, or thefts behind the daemon's back. The oracle must report
// each as a violation of this kind.
var lies = []struct {
	name string
	tell func(t *trial, d *server)
	want string
}{
	{"nothing", func(*trial, *server) {}, ""},
	{"a falsified sum", func(t *trial, _ *server) {
		first(t,
			false).files["f0"] = sumOf([]byte("lie"))
	}, "acknowledged was"},
	{"a deleted file", func(t *trial, d *server) {
		b := first(t, false)
		c, err := d.svc.Computer(t.ctx, b.id)
		t.check(err)
		for name := range b.files {
			t.check(c.Files("").Remove(t.ctx, folder+"/"+name))
			return
		}
	}, "acknowledged was"},
	{"a file too many", func(t *trial, d *server) {
		c, err := d.svc.Computer(t.ctx, first(t, false).id)
		t.check(err)
		_, err = c.Files("").Write(t.ctx, folder+"/more", strings.NewReader("more"))
		t.check(err)
	}, "was never acknowledged"},
	{"a vanished sandbox", func(t *trial, d *server) { t.check(d.svc.Kill(t.ctx, first(t, true).id)) },
		"was acknowledged and is gone"},
	{"a sandbox that nobody asked for", func(t *trial, d *server) {
		_, err := d.svc.Create(t.ctx, carrel.CreateOptions{Template: "sim", Tier: carrel.Sim})
		t.check(err)
	}, "that nobody asked for"},
	{"a vanished snapshot", func(t *trial, d *server) {
		t.check(
			d.svc.DeleteSnapshot(t.ctx, string(t.j.snapsOf("")[0].id)))
	}, "was acknowledged and is gone"},
	{"a snapshot that came back", func(t *trial, _ *server) { t.j.snapsOf("")[0].gone = true },
		"is there again"},
	{"a forgotten number", func(t *trial, d *server) {
		b := first(t, false)
		c, err := d.svc.Computer(t.ctx, b.id)
		t.check(err)
		_, err = c.Run(t.ctx, carrel.Command{Shell: fmt.Sprintf("kill -KILL %d; sleep 0.2", b.pid)})
		t.check(err)
	}, "is gone; it has"},
	{"a sandbox that woke by itself", func(t *trial, d *server) {
		_, _, err := d.svc.Resume(t.ctx, first(t, true).id, carrel.ResumeOptions{})
		t.check(err)
	}, "was paused and is running"},
	{"an upload that breaks off", func(t *trial, d *server) {
		c, err := d.svc.Computer(t.ctx, first(t, false).id)
		t.check(err)
		name := folder + "/" + uploadPrefix + "x"
		_, err = c.Files("").Write(t.ctx, name, strings.NewReader("half"))
		t.check(err)
		_, err = c.Start(t.ctx, carrel.Command{Shell: "sleep 5; rm " + name})
		t.check(err)
	}, ""},
	{"a lost record", func(t *trial, d *server) {
		d.kill9()
		for _, name := range append([]string{"records.ledger"}, recordFiles...) {
			_ = os.Remove(filepath.Join(d.dir, name))
		}
		t.check(d.start())
	}, "has no record"},
}

// first returns the first living sandbox of tier gvisor in a state.
func first(t *trial, paused bool) *box {
	for _, b := range sorted(t.j) {
		if !b.dead && b.paused == paused && b.tier == carrel.GVisor {
			return b
		}
	}
	t.giveUp("there is no sandbox of tier %s whose being paused is %v", carrel.GVisor, paused)
	return nil
}

// TestOracle tells the oracle lies. It must find each, and nothing else when there is none.
func TestOracle(t *testing.T) {
	together(t)
	for i, lie := range lies {
		t.Run(strings.ReplaceAll(lie.name, " ", "-"), func(t *testing.T) {
			if testing.Short() && i != 1 && i != 2 && i != 4 {
				return
			}
			r := runTrial(t, kind{"oracle", true, func(tr *trial) {
				tr.tiers = []carrel.Tier{carrel.GVisor}
				d := tr.serve(setup{})
				tr.populate(d)
				lie.tell(tr, d)
				tr.verify(d.svc, allowed{})
			}}, *seedFlag, "")
			if r.own != "" {
				t.Fatalf("the trial itself: %s", r.own)
			}
			found := strings.Contains(strings.Join(r.violations, "\n"), lie.want)
			if lie.want == "" && len(r.violations) > 0 || lie.want != "" &&
				(len(r.violations) == 0 || !found) {
				t.Errorf("the oracle reports %q, want %q", r.violations, lie.want)
			}
		})
	}
}

// TestLeaks starts a process and makes a directory that look like a sandbox's leftovers. The search
// for leaks must find both.
func TestLeaks(t *testing.T) {
	together(t)
	r := runTrial(t, kind{"leaks", true, func(tr *trial) {
		tr.tiers = []carrel.Tier{carrel.Sim}
		d := tr.serve(setup{})
		tr.populate(d)
		id := carrel.NewID()
		tr.check(os.MkdirAll(filepath.Join(d.dir, "sandboxes", string(id)), 0o700))
		if left := tr.leftovers(d.dir, nil); !slices.Contains(left,
			filepath.Join(d.dir, "sandboxes", string(id))) {
			t.Errorf("the directory of %s is left, and the search finds %v", id, left)
		}
		found := tr.processesOf(d.dir)
		if _, ok := found[d.cmd.Process.Pid]; !ok {
			t.Errorf("the daemon runs, and the search finds %v", found)
		}
	}}, *seedFlag, "")
	if len(r.violations) > 0 || r.own != "" {
		t.Errorf("%q, the trial itself: %q", r.violations, r.own)
	}
}

// TestGivesUp lets a trial make its sandboxes in a daemon that has no room for them. That is the
// trial's own failure, and no violation.
func TestGivesUp(t *testing.T) {
	together(t)
	r := runTrial(t, kind{"gives up", true, func(tr *trial) {
		tr.tiers = []carrel.Tier{carrel.Sim, carrel.Sim}
		tr.populate(tr.serve(setup{args: []string{"--max-sandboxes", "1"}}))
	}}, *seedFlag, "")
	if !strings.Contains(r.own, "it can't make its sandboxes") || len(r.violations) > 0 ||
		!strings.HasPrefix(r.line, "none ") {
		t.Errorf("%s\nthe trial itself: %q, violations: %q", r.line, r.own, r.violations)
	}
	_ = os.RemoveAll(r.kept)
}

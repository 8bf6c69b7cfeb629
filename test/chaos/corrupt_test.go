package chaos

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// damages are the ways to damage a file.
var damages = []string{"flip", "zero", "half", "empty", "delete"}

// harm damages one file.
func (t *trial) harm(path, how string) {
	fi, err := os.Stat(path)
	if err != nil || fi.Size() == 0 && how != "delete" {
		return
	}
	t.check(os.Chmod(path, 0o600))
	switch how {
	case "delete":
		err = os.Remove(path)
	case "empty":
		err = os.Truncate(path, 0)
	case "half":
		err = os.Truncate(path, fi.Size()/2)
	default:
		var f *os.File
		if f, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
			break
		}
		defer f.Close()
		at, buf := t.rng.Int64N(fi.Size()), make([]byte, 1)
		if how == "zero" {
			at = at &^ 4095
			buf = make([]byte, min(4096, fi.Size()-at))
		} else if _, err = f.ReadAt(buf, at); err == nil {
			buf[0] ^= 1 << t.rng.IntN(8)
		}
		if err == nil {
			_, err = f.WriteAt(buf, at)
		}
	}
	t.check(err)
}

var idInPath = regexp.MustCompile(`\b[is][a-z0-9]{20}\b`)

// fileKind names the kind of a file in a data directory: its path without IDs and digests.
func fileKind(rel string) string {
	rel = idInPath.ReplaceAllString(rel, "ID")
	rel = regexp.MustCompile(`[0-9a-f]{8,}`).ReplaceAllString(rel, "HASH")
	rel = regexp.MustCompile(`[0-9]+`).ReplaceAllString(rel, "N")
	return rel
}

// kindsOfFiles returns the files of a data directory by kind.
func (t *trial) kindsOfFiles(dir string) map[string][]string {
	out := map[string][]string{}
	t.check(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		out[fileKind(rel)] = append(out[fileKind(rel)], rel)
		return err
	}))
	return out
}

// corruptTrial damages one file after another, of each kind in turn, while the daemon is stopped.
// What the file held may be lost, and nothing else, and a request for it says so.
func corruptTrial(t *trial) { t.corrupt(func(string) bool { return true }) }

// hotTrial damages hot copies of snapshots alone. Each is replaced by its packed copy.
func hotTrial(t *trial) {
	t.corrupt(func(kind string) bool {
		return strings.HasPrefix(kind, "snapshots/hot/") && !strings.HasSuffix(kind, "manifest.json")
	})
}

// corrupt damages files of these kinds.
func (t *trial) corrupt(ofKind func(kind string) bool) {
	d := t.serve(setup{})
	t.populate(d)
	cases := 6
	weak := map[string]bool{} // snapshots whose packed copy may be damaged
	for i := range cases {
		t.pauseAll(d)
		t.packed(d)
		pauses := t.pausesOf(d)
		d.terminate()
		files := t.kindsOfFiles(d.dir)
		names := make([]string, 0, len(files))
		for name := range files {
			whole := strings.HasPrefix(name, "sandboxes/.roots/") || strings.HasPrefix(name, "templates/")
			if ofKind(name) && (!whole || i == cases-1) { // all sandboxes lie on it
				names = append(names, name)
			}
		}
		slices.Sort(names)
		kind := names[(int(t.seed)*cases+i)%len(names)]
		rel := files[kind][t.rng.IntN(len(files[kind]))]
		how := damages[t.rng.IntN(len(damages))]
		path := filepath.Join(d.dir, rel)
		kept := filepath.Join(t.dir, "kept")
		t.command("cp", "-a", path, kept)
		t.harm(path, how)
		t.faults++
		t.note("%s %s", how, rel)
		touched := t.touchedBy(d.dir, rel, pauses, weak)
		if err := d.start(); err != nil {
			if !strings.Contains(err.Error(), filepath.Base(rel)) {
				t.violate("%s %s: it does not start, and does not say why: %v", how, rel, err)
			}
			t.note("it does not start, and names the file")
			t.command("cp", "-a", kept, path)
			if err := d.start(); err != nil {
				t.fatalf("it does not start after %s was put back: %v", rel, err)
			}
			touched = nil
		}
		t.verify(d.svc, allowed{touched: touched, unclaimed: touched != nil, snapshots: -1})
		if len(t.violations) > 0 {
			return
		}
	}
}

// touchedBy says which sandboxes and snapshots may be lost with a file; nil: none.
func (t *trial) touchedBy(dir, rel string, pauses map[string]string,
	weak map[string]bool) func(string) bool {
	id := idInPath.FindString(rel)
	switch {
	// the same image
	case strings.HasPrefix(rel, "sandboxes/.roots/"), strings.HasPrefix(rel, "templates/"):
		return func(string) bool { return true }
	case strings.HasPrefix(rel, "snapshots/blobs/packs"):
		return t.touchedByPack(dir, pauses, weak)
	case strings.HasPrefix(rel, "snapshots/hot/") && !weak[id]:
		return nil // the packed copy is whole
	case id != "":
		return func(s string) bool { return s == id || s == pauses[id] }
	}
	return nil
}

// touchedByPack is touchedBy for a pack. A snapshot with a hot copy does not need its packs. The
// store drops the hot copy of a packed snapshot once the sandbox has a newer one.
func (t *trial) touchedByPack(dir string, pauses map[string]string,
	weak map[string]bool) func(string) bool {
	alone := map[string]bool{}
	for snapshot, sandbox := range pauses {
		weak[snapshot] = true
		if _, err := os.Stat(filepath.Join(dir, "snapshots", "hot", snapshot)); err != nil {
			alone[snapshot], alone[sandbox] = true, true
		}
	}
	for _, s := range t.j.snapsOf("") {
		weak[string(s.id)] = true
		if pauses[string(s.id)] == "" {
			alone[string(s.id)] = true
		}
	}
	return func(s string) bool { return alone[s] }
}

// pauseAll pauses everything that runs.
func (t *trial) pauseAll(d *server) {
	for _, b := range t.j.alive() {
		if b.paused {
			continue
		}
		if _, err := d.svc.Pause(t.ctx, b.id, carrel.PauseOptions{}); err != nil {
			t.fatalf("pause %s: %v", b.id, err)
		}
		b.paused = true
		if b.tier != carrel.GVisor {
			b.pid = 0
		}
	}
}

// packed waits until every snapshot has its packed copy.
func (t *trial) packed(d *server) {
	err := testenv.Within(t.ctx, 2*time.Minute, func() error {
		page, err := d.svc.ListSnapshots(t.ctx, carrel.SnapshotListOptions{Auto: true, Limit: 100})
		if err != nil {
			return err
		}
		for _, sn := range page.Snapshots {
			if sn.New < 0 {
				return errNotYet
			}
		}
		return nil
	})
	if err != nil {
		t.fatalf("the snapshots are not packed after two minutes: %v", err)
	}
}

// pausesOf returns the sandbox that is paused at each snapshot.
func (t *trial) pausesOf(d *server) map[string]string {
	listed, err := listAll(t.ctx, d.svc)
	t.check(err)
	out := map[string]string{}
	for id, sb := range listed {
		if sb.State == carrel.Paused {
			out[string(sb.Snapshot)] = string(id)
		}
	}
	return out
}

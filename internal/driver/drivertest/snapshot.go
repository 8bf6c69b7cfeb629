package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// moment is a snapshot that a case took.
type moment struct {
	dir  string
	info driver.SnapshotInfo
}

// testSnapshot runs every case of the snapshot contract.
func (s *suite) testSnapshot(t *testing.T) {
	if !s.info.Capabilities.Snapshot {
		testenv.Inapplicable(t, "the driver says that it takes no snapshots")
	}
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"later writes", s.testLaterWrites},
		{"side by side", s.testSideBySide},
		{"generations", s.testGenerations},
		{"original gone", s.testOriginalGone},
		{"files only", s.testFilesOnly},
		{"files", s.testFilesSurvive},
		{"many files", s.testManyFiles},
		{"template", s.testTemplateChanges},
		{"disk limit", s.testDiskAfterRestore},
		{"memory", s.testMemorySurvives},
		{"clock and chance", s.testRefreshed},
		{"boot", s.testBoot},
		{"announced", s.testAnnounced},
		{"freeze", s.testFreeze},
		{"at once", s.testSnapshotsAtOnce},
		{"cancelled", s.testSnapshotCancelled},
		{"full", s.testSnapshotFull},
		{"damaged", s.testDamaged},
		{"other build", s.testOtherBuild},
		{"ended", s.testSnapshotEnded},
		{"leftovers", s.testRestoreLeftovers},
		{"tar", s.testTar},
		{"hostile", s.testHostileFiles},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.mayRun(t, "snapshot/"+c.name)
			c.run(t)
		})
	}
}

// testSnapshotInfo checks that Info and the optional interfaces agree about snapshots.
func (s *suite) testSnapshotInfo(t *testing.T, b *box, d driver.Driver) {
	c := s.info.Capabilities
	if _, ok := driver.As[driver.Restorer](d); ok != c.Snapshot {
		t.Errorf("the driver is a Restorer: %v; Info says Snapshot: %v", ok, c.Snapshot)
	}
	if _, ok := driver.As[driver.Snapshotter](b.in); ok != c.Snapshot {
		t.Errorf("its instances are Snapshotters: %v; Info says Snapshot: %v", ok, c.Snapshot)
	}
	if c.MemorySnapshot && !c.Snapshot {
		t.Error("memory snapshots without snapshots")
	}
}

// snapshotDir is an empty directory for a snapshot.
func snapshotDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "snapshot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// trySnapshot takes a snapshot within a time limit.
func (b *box) trySnapshot(ctx context.Context, dir string, opts driver.SnapshotOptions) (driver.SnapshotInfo, error) {
	sn, ok := driver.As[driver.Snapshotter](b.in)
	if !ok {
		return driver.SnapshotInfo{}, &carrel.Error{Op: "snapshot", Kind: carrel.Unsupported}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return sn.Snapshot(ctx, dir, opts)
}

// snapshot takes a snapshot that has to succeed, and checks its SnapshotInfo.
func (b *box) snapshot(t testing.TB, opts driver.SnapshotOptions) moment {
	t.Helper()
	m := moment{dir: snapshotDir(t)}
	var err error
	if m.info, err = b.trySnapshot(t.Context(), m.dir, opts); err != nil {
		t.Fatalf("snapshot: %v (hint: %s)", err, carrel.HintOf(err))
	}
	if m.info.Driver != b.s.info.Name {
		t.Errorf("the snapshot's driver is %q, want %q", m.info.Driver, b.s.info.Name)
	}
	if want := b.s.info.Capabilities.MemorySnapshot && !opts.FilesOnly; m.info.Memory != want {
		t.Errorf("the snapshot says memory: %v, want %v", m.info.Memory, want)
	}
	list, err := os.ReadDir(m.dir)
	if err != nil || len(list) == 0 {
		t.Errorf("the snapshot's directory holds %v, %v", list, err)
	}
	for _, e := range list {
		if !e.Type().IsRegular() {
			t.Errorf("%s in the snapshot's directory is no plain file: %v", e.Name(), e.Type())
		}
	}
	return m
}

// restorer returns the driver as a Restorer.
func restorer(t testing.TB, d driver.Driver) driver.Restorer {
	t.Helper()
	r, ok := driver.As[driver.Restorer](d)
	if !ok {
		t.Fatal("the driver is no Restorer")
	}
	return r
}

// tryRestore makes a sandbox from a snapshot. It waits until the guest answers and everything has
// been read. After an error nothing runs.
func (s *suite) tryRestore(t testing.TB, d driver.Driver, m moment, spec driver.Spec, opts driver.RestoreOptions) (*box, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	in, err := restorer(t, d).Restore(ctx, m.dir, m.info, spec, opts)
	if err != nil {
		wantError(t, err)
		if in != nil {
			t.Error("Restore gave an instance and an error")
		}
		return nil, err
	}
	b := s.adopt(spec, in)
	err = b.ready(ctx)
	if l, ok := driver.As[driver.Loader](in); ok && err == nil {
		err = l.Loaded(ctx)
	}
	if err != nil {
		b.destroy(t)
		return nil, err
	}
	return b, nil
}

// restore makes a sandbox with a new ID from a snapshot. The sandbox is destroyed when the test
// ends.
func (s *suite) restore(t testing.TB, d driver.Driver, m moment, opts driver.RestoreOptions) *box {
	t.Helper()
	if err := restorer(t, d).CanRestore(m.info, opts); err != nil {
		t.Fatalf("can't restore its own snapshot: %v", err)
	}
	b, err := s.tryRestore(t, d, m, s.spec(t), opts)
	if err != nil {
		t.Fatalf("restore: %v (hint: %s)", err, carrel.HintOf(err))
	}
	t.Cleanup(func() { b.destroy(t) })
	return b
}

// want runs a script and compares its output.
func (b *box) want(t testing.TB, script, want string) {
	t.Helper()
	if out := b.must(t, script); out != want {
		t.Errorf("%s: %q, want %q", script, out, want)
	}
}

func (s *suite) testLaterWrites(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.must(t, "echo before > /tmp/kept; echo before > /tmp/changed; echo before > /tmp/removed")
	m := b.snapshot(t, driver.SnapshotOptions{})
	b.want(t, "cat /tmp/kept; echo runs on", "before\nruns on")
	b.must(t, "echo after > /tmp/changed; rm /tmp/removed; echo after > /tmp/added")
	r := s.restore(t, d, m, driver.RestoreOptions{})
	r.want(t, "cat /tmp/kept /tmp/changed /tmp/removed; [ ! -e /tmp/added ] && echo no more", "before\nbefore\nbefore\nno more")
	b.want(t, "cat /tmp/kept /tmp/changed /tmp/added; [ ! -e /tmp/removed ] && echo gone", "before\nafter\nafter\ngone")
	if s.info.Capabilities.Isolation {
		r.want(t, "hostname", string(r.spec.ID))
		b.want(t, "hostname", string(b.spec.ID))
	}
}

func (s *suite) testSideBySide(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.must(t, "echo common > /tmp/common; echo common > /tmp/appended")
	m := b.snapshot(t, driver.SnapshotOptions{})
	one, two := s.restore(t, d, m, driver.RestoreOptions{}), s.restore(t, d, m, driver.RestoreOptions{})
	one.must(t, "echo one > /tmp/own; echo one >> /tmp/appended; rm /tmp/common")
	two.want(t, "[ -e /tmp/own ] || echo alone; cat /tmp/common /tmp/appended", "alone\ncommon\ncommon")
	two.must(t, "echo two > /tmp/own; echo two >> /tmp/appended")
	one.want(t, "cat /tmp/own /tmp/appended", "one\ncommon\none")
	one.destroy(t)
	two.want(t, "cat /tmp/own /tmp/appended", "two\ncommon\ntwo")
	b.want(t, "[ -e /tmp/own ] || echo alone; cat /tmp/common /tmp/appended", "alone\ncommon\ncommon")
	if string(one.in.Handle()) == string(two.in.Handle()) {
		t.Error("two sandboxes have one handle")
	}
}

func (s *suite) testGenerations(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.must(t, "mkdir /tmp/g; echo 0 > /tmp/g/0; echo x > /tmp/g/victim")
	for i, script := range []string{"echo 1 > /tmp/g/1; rm /tmp/g/victim", "echo 2 > /tmp/g/2; echo more >> /tmp/g/0", "echo 3 > /tmp/g/3; echo back > /tmp/g/victim"} {
		m := b.snapshot(t, driver.SnapshotOptions{FilesOnly: i == 1})
		r := s.restore(t, d, m, driver.RestoreOptions{})
		b.destroy(t)
		b = r
		b.must(t, script)
	}
	b.want(t, "cd /tmp/g && ls && cat 0 1 2 3 victim", "0\n1\n2\n3\nvictim\n0\nmore\n1\n2\n3\nback")
}

func (s *suite) testOriginalGone(t *testing.T) {
	first := s.New(t)
	b, err := s.tryBox(t.Context(), first, s.spec(t))
	if err != nil {
		_ = first.Close()
		t.Fatal(err)
	}
	b.must(t, "echo kept > /tmp/kept")
	m := b.snapshot(t, driver.SnapshotOptions{})
	b.destroy(t)
	s.wantGone(t, b.spec)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	// A new driver knows nothing of the first one: the directory is the whole snapshot.
	d := s.open(t)
	moved := moment{dir: filepath.Join(t.TempDir(), "elsewhere"), info: m.info}
	if err := os.Rename(m.dir, moved.dir); err != nil {
		t.Fatal(err)
	}
	s.restore(t, d, moved, driver.RestoreOptions{}).want(t, "cat /tmp/kept", "kept")
	again, err := s.tryRestore(t, d, moved, b.spec, driver.RestoreOptions{})
	if err != nil {
		t.Fatalf("restore under the old ID: %v", err)
	}
	again.want(t, "cat /tmp/kept", "kept")
	again.destroy(t)
	s.wantGone(t, b.spec)
}

func (s *suite) testFilesOnly(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.must(t, "echo kept > /tmp/kept")
	p, err := b.conn.Start(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", "sleep 1000"}, User: "root", Tag: "old"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for name, take := range map[string]driver.SnapshotOptions{"taken so": {FilesOnly: true}, "restored so": {}} {
		t.Run(name, func(t *testing.T) {
			m := b.snapshot(t, take)
			r := s.restore(t, d, m, driver.RestoreOptions{FilesOnly: true})
			r.want(t, "cat /tmp/kept", "kept")
			list, err := r.conn.Processes(t.Context())
			if err != nil || len(list) != 0 {
				t.Errorf("a guest that booted afresh knows of %v, %v", list, err)
			}
		})
	}
	list, err := b.conn.Processes(t.Context())
	if err != nil || len(list) != 1 || !strings.Contains(list[0].Tag, "old") {
		t.Errorf("the original's processes are %v, %v", list, err)
	}
}

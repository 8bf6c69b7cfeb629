package drivertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// load puts mib MiB of files into the sandbox, so that a snapshot takes a while.
func (b *box) load(t testing.TB, mib int) {
	t.Helper()
	data := strings.Repeat("some text that is not all the same: 0123456789abcdefghijklmnopq\n", mib<<14)
	if _, err := b.conn.Files("root").Write(t.Context(), "/tmp/load", strings.NewReader(data)); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) testSnapshotsAtOnce(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.load(t, 8)
	const n = 6
	var wg sync.WaitGroup
	moments := make([]moment, n)
	errs := make([]error, n)
	for i := range n {
		moments[i].dir = snapshotDir(t)
		wg.Go(func() {
			moments[i].info, errs[i] = b.trySnapshot(t.Context(), moments[i].dir, driver.SnapshotOptions{})
		})
	}
	wg.Wait()
	good := 0
	for i, err := range errs {
		switch {
		case err == nil:
			good++
			if good == 1 {
				s.restore(t, d, moments[i], driver.RestoreOptions{}).want(t, "wc -c < /tmp/load | while read n; do echo $n; done", fmt.Sprint(8<<20))
			}
		case carrel.KindOf(err) != carrel.Conflict:
			t.Errorf("a second snapshot at the same time gave %v, want a conflict", err)
		}
	}
	if good == 0 {
		t.Error("no snapshot was taken")
	}
	b.want(t, "echo runs", "runs")
	b.snapshot(t, driver.SnapshotOptions{})
}

func (s *suite) testSnapshotCancelled(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.load(t, 16)
	for _, after := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond} {
		ctx, cancel := context.WithCancel(t.Context())
		if after == 0 {
			cancel()
		}
		timer := time.AfterFunc(after, cancel)
		m := moment{dir: snapshotDir(t)}
		var err error
		m.info, err = b.trySnapshot(ctx, m.dir, driver.SnapshotOptions{})
		timer.Stop()
		cancel()
		wantError(t, err)
		if after == 0 && err == nil {
			t.Error("a snapshot with an ended context worked")
		}
		b.want(t, "echo runs", "runs")
		if err == nil { // it was faster than cancel, so it must be complete
			r := s.restore(t, d, m, driver.RestoreOptions{})
			r.want(t, "wc -c < /tmp/load | while read n; do echo $n; done", fmt.Sprint(16<<20))
			r.destroy(t)
		}
		// A Restore that is cancelled in the same way leaves nothing, or a sandbox.
		whole, spec := b.snapshot(t, driver.SnapshotOptions{}), s.spec(t)
		ctx, cancel = context.WithCancel(t.Context())
		timer = time.AfterFunc(after, cancel)
		in, err := restorer(t, d).Restore(ctx, whole.dir, whole.info, spec, driver.RestoreOptions{})
		timer.Stop()
		cancel()
		wantError(t, err)
		if err == nil {
			s.adopt(spec, in).destroy(t)
		}
		s.wantGone(t, spec)
	}
}

// smallDisk mounts a filesystem of some MiB and returns a directory on it.
func smallDisk(t testing.TB, mib int) string {
	t.Helper()
	if os.Getuid() != 0 { // not needed twice: a driver's tests also run as root
		testenv.Inapplicable(t, "only root mounts a small filesystem")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", mib)); err != nil {
		testenv.Need(t, "mount", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	snapshot := filepath.Join(dir, "snapshot")
	if err := os.Mkdir(snapshot, 0o700); err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func (s *suite) testSnapshotFull(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.load(t, 16)
	for name, opts := range s.modes() {
		t.Run(name, func(t *testing.T) {
			before := s.trace(t, d)
			for _, mib := range []int{1, 5} {
				dir := smallDisk(t, mib)
				_, err := b.trySnapshot(t.Context(), dir, opts)
				if carrel.KindOf(err) != carrel.Exhausted {
					t.Errorf("a snapshot of 16 MiB into %d gave %v (kind %q), want exhausted", mib, err, carrel.KindOf(err))
				}
				b.want(t, "echo runs", "runs")
			}
			before.wantSame(t)
			s.restore(t, d, b.snapshot(t, opts), driver.RestoreOptions{}).want(t, "echo runs", "runs")
		})
	}
}

func (s *suite) testSnapshotEnded(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	b.destroy(t)
	if _, err := b.trySnapshot(t.Context(), snapshotDir(t), driver.SnapshotOptions{}); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("a snapshot of a destroyed sandbox gave %v, want unavailable", err)
	}
	// Destroy it during a snapshot. In either order, neither call may hang and nothing may stay.
	for _, after := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		b := s.box(t, d)
		b.load(t, 4)
		done := make(chan error, 1)
		dir := snapshotDir(t)
		go func() {
			_, err := b.trySnapshot(context.WithoutCancel(t.Context()), dir, driver.SnapshotOptions{})
			done <- err
		}()
		time.Sleep(after)
		b.destroy(t)
		select {
		case err := <-done:
			wantError(t, err)
		case <-time.After(time.Minute):
			t.Fatal("the snapshot of a sandbox that was destroyed hangs")
		}
		s.wantGone(t, b.spec)
	}
}

func (s *suite) testOtherBuild(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	m := b.snapshot(t, driver.SnapshotOptions{})
	for name, change := range map[string]func(*driver.SnapshotInfo){
		"build":  func(i *driver.SnapshotInfo) { i.Build = "other " + i.Build },
		"cpu":    func(i *driver.SnapshotInfo) { i.CPU += " feature-of-tomorrow" },
		"driver": func(i *driver.SnapshotInfo) { i.Driver = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			other := m
			change(&other.info)
			r := restorer(t, d)
			if err := r.CanRestore(other.info, driver.RestoreOptions{}); carrel.KindOf(err) != carrel.Unsupported {
				t.Errorf("CanRestore of %+v gave %v, want unsupported", other.info, err)
			}
			spec := s.spec(t)
			if bad, err := s.tryRestore(t, d, other, spec, driver.RestoreOptions{}); carrel.KindOf(err) != carrel.Unsupported {
				t.Errorf("Restore of %+v gave %v, want unsupported", other.info, err)
				if bad != nil {
					bad.destroy(t)
				}
			}
			s.wantGone(t, spec)
		})
	}
	if !s.info.Capabilities.MemorySnapshot {
		other := m.info
		other.Memory = true
		if err := restorer(t, d).CanRestore(other, driver.RestoreOptions{}); carrel.KindOf(err) != carrel.Unsupported {
			t.Errorf("a snapshot with memory that this driver can't have: %v, want unsupported", err)
		}
	}
}

func (s *suite) testRestoreLeftovers(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	m := b.snapshot(t, driver.SnapshotOptions{})
	warm := s.restore(t, d, m, driver.RestoreOptions{}) // the first restore sets up lasting objects
	warm.destroy(t)
	before := s.trace(t, d)
	for range 5 {
		r := s.restore(t, d, b.snapshot(t, driver.SnapshotOptions{}), driver.RestoreOptions{})
		r.want(t, "echo runs", "runs")
		r.destroy(t)
		s.wantGone(t, r.spec)
		if e := r.wait(t, time.Minute); e.Reason != carrel.EndKilled {
			t.Errorf("the end of a restored sandbox is %+v", e)
		}
		// Destroy a sandbox before its guest answers.
		spec := s.spec(t)
		in, err := restorer(t, d).Restore(t.Context(), m.dir, m.info, spec, driver.RestoreOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.adopt(spec, in).destroy(t)
		s.wantGone(t, spec)
	}
	before.wantSame(t)
}

package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// freezer returns the instance as a Freezer, if it is one.
func (b *box) freezer() (driver.Freezer, bool) { return driver.As[driver.Freezer](b.in) }

func (s *suite) testFreeze(t *testing.T) {
	d := s.open(t)
	b := s.box(t, d)
	f, ok := b.freezer()
	if !ok {
		testenv.Inapplicable(t, "the driver's instances are no Freezers")
	}
	ctx := t.Context()
	// still checks that a command does not end while the sandbox is frozen.
	still := func(t testing.TB, b *box) {
		t.Helper()
		short, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
		defer cancel()
		if out, _, err := b.exec(short, "echo ran"); err == nil {
			t.Errorf("a command ran in a frozen sandbox: %q", out)
		}
	}
	both := func(t testing.TB, what string, f func(context.Context) error) {
		t.Helper()
		for range 2 {
			if err := f(ctx); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	t.Run("nothing runs", func(t *testing.T) {
		both(t, "thaw of a running one", f.Thaw)
		if s.attack != "" {
			b.startWitness(t)
			c, _ := b.tell(t, "gap")
			c.Close()
		}
		both(t, "freeze", f.Freeze)
		const pause = 500 * time.Millisecond
		time.Sleep(pause)
		if s.attack == "" {
			still(t, b)
		}
		both(t, "thaw", f.Thaw)
		b.want(t, "echo runs", "runs")
		// A process that ticks all the time must have seen a gap as long as the freeze.
		if s.attack != "" {
			if a := b.ask(t); a.MaxGap < pause*9/10 {
				t.Errorf("frozen for %v, and a process noticed no more than %v", pause, a.MaxGap)
			}
		}
	})
	t.Run("commands wait", func(t *testing.T) {
		both(t, "freeze", f.Freeze)
		still(t, b)
		both(t, "thaw", f.Thaw)
		b.want(t, "echo runs", "runs")
	})
	t.Run("snapshot", func(t *testing.T) {
		b.must(t, "echo frozen > /tmp/state")
		both(t, "freeze", f.Freeze)
		m := b.snapshot(t, driver.SnapshotOptions{})
		still(t, b)
		r := s.restore(t, d, m, driver.RestoreOptions{})
		r.want(t, "cat /tmp/state", "frozen")
		both(t, "thaw", f.Thaw)
		b.want(t, "cat /tmp/state", "frozen")
	})
	t.Run("failed snapshot", func(t *testing.T) {
		both(t, "freeze", f.Freeze)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := b.trySnapshot(gone, snapshotDir(t), driver.SnapshotOptions{}); err == nil {
			t.Error("a snapshot with an ended context worked")
		}
		still(t, b)
		both(t, "thaw", f.Thaw)
		b.want(t, "echo runs", "runs")
	})
	t.Run("recovered", func(t *testing.T) { s.testFrozenRecovered(t) })
	t.Run("destroy", func(t *testing.T) {
		both(t, "freeze", f.Freeze)
		b.destroy(t)
		s.wantGone(t, b.spec)
		if err := f.Freeze(ctx); err == nil {
			t.Error("a destroyed sandbox was frozen")
		} else {
			wantError(t, err)
		}
	})
}

// testFrozenRecovered checks that a frozen sandbox is still frozen after Recover.
func (s *suite) testFrozenRecovered(t *testing.T) {
	if !s.info.Capabilities.Recover {
		testenv.Inapplicable(t, "the driver says that instances do not outlive it")
	}
	first := s.New(t)
	b, err := s.tryBox(t.Context(), first, s.spec(t))
	if err != nil {
		_ = first.Close()
		t.Fatal(err)
	}
	f, _ := b.freezer()
	if err := f.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = b.conn.Close()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	d := s.open(t)
	in, err := d.Recover(t.Context(), b.in.Handle())
	if err != nil {
		t.Fatalf("recover a frozen sandbox: %v", err)
	}
	again := s.adopt(b.spec, in)
	t.Cleanup(func() { again.destroy(t) })
	short, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	if again.conn.Health(short) == nil {
		t.Error("a frozen sandbox runs after recovery")
	}
	f, ok := again.freezer()
	if !ok {
		t.Fatal("the recovered instance is no Freezer")
	}
	if err := f.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := again.ready(t.Context()); err != nil {
		t.Fatalf("after the thaw: %v", err)
	}
	again.want(t, "echo runs", "runs")
}

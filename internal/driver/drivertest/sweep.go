package drivertest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
)

// testSweep lets a daemon die that knew three sandboxes. The next one knows one of them, has a
// record of another one no more but keeps it for a while, and has never heard of the third.
func (s *suite) testSweep(t *testing.T) {
	d := s.open(t)
	if _, ok := driver.As[driver.Sweeper](d); !ok {
		if s.info.Capabilities.Recover {
			t.Error("instances outlive the daemon, and the driver is no Sweeper: nobody would remove a forgotten one")
		}
		return
	}
	if !s.info.Capabilities.Recover {
		s.sweep(t, d) // nothing is there to sweep; that is no error
		return
	}
	kept, lost, stray := s.forget(t)
	if files, err := os.ReadDir(lost.spec.Dir); err != nil || len(files) == 0 {
		t.Errorf("a running sandbox has no file in Spec.Dir (%v): it is taken for one that was never started", err)
	}
	d = s.open(t)
	in, err := d.Recover(t.Context(), kept.in.Handle())
	if err != nil {
		t.Fatalf("recover: %v", err)
	}
	again := s.adopt(kept.spec, in)
	t.Cleanup(func() { again.destroy(t) })
	t.Run("another driver", func(t *testing.T) {
		s.sweep(t, s.open(t)) // this one has other state, as each test has
		if len(lost.hostProcesses()) == 0 && s.info.Capabilities.RealProcesses {
			t.Error("it ended a sandbox that is not its own")
		}
	})
	s.sweep(t, d, kept.spec.ID, stray.spec.ID)
	// The caller must remove the files in the sandbox's directory, as the service does.
	if err := overlay.Remove(lost.spec.Dir); err != nil {
		t.Error(err)
	}
	s.wantGone(t, lost.spec)
	if err := again.ready(t.Context()); err != nil {
		t.Fatalf("the one that is known does not answer: %v", err)
	}
	if out := again.must(t, "cat /tmp/mark"); out != "kept" {
		t.Errorf("the one that is known says %q", out)
	}
	s.sweep(t, d, kept.spec.ID, stray.spec.ID) // once more, with nothing to do
	if len(stray.hostProcesses()) == 0 && s.info.Capabilities.RealProcesses {
		t.Error("it ended a sandbox that was to be kept")
	}
	s.destroyStray(t, d, stray.spec.ID)
	if err := overlay.Remove(stray.spec.Dir); err != nil {
		t.Error(err)
	}
	s.wantGone(t, stray.spec)
	s.destroyStray(t, d, stray.spec.ID) // once more, with nothing to do
	again.must(t, "true")
	s.box(t, d).must(t, "true") // a creation after it
}

// forget makes three sandboxes with a driver that is then closed.
func (s *suite) forget(t *testing.T) (kept, lost, stray *box) {
	t.Helper()
	first := s.New(t)
	defer func() {
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, b := range []**box{&kept, &lost, &stray} {
		var err error
		if *b, err = s.tryBox(t.Context(), first, s.spec(t)); err != nil {
			t.Fatal(err)
		}
		(*b).must(t, "echo kept > /tmp/mark")
		_ = (*b).conn.Close()
	}
	return kept, lost, stray
}

// sweep calls Sweep.
func (s *suite) sweep(t *testing.T, d driver.Driver, known ...carrel.ID) {
	t.Helper()
	withSweeper(t, d, func(ctx context.Context, sw driver.Sweeper) error { return sw.Sweep(ctx, known) })
}

// destroyStray calls DestroyStray.
func (s *suite) destroyStray(t *testing.T, d driver.Driver, id carrel.ID) {
	t.Helper()
	withSweeper(t, d, func(ctx context.Context, sw driver.Sweeper) error { return sw.DestroyStray(ctx, id) })
}

// withSweeper calls do with a minute of time.
func withSweeper(t *testing.T, d driver.Driver, do func(context.Context, driver.Sweeper) error) {
	t.Helper()
	sw, ok := driver.As[driver.Sweeper](d)
	if !ok {
		t.Fatal("the driver is no Sweeper any more")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := do(ctx, sw); err != nil {
		t.Errorf("sweep: %v", err)
	}
}

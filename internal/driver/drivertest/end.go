package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func (s *suite) testEnd(t *testing.T) {
	d := s.open(t)
	t.Run("killed", func(t *testing.T) {
		b := s.box(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if e, err := b.in.Wait(ctx); err == nil {
			t.Errorf("a running sandbox has ended: %+v", e)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if e := b.wait(t, time.Minute); e.Reason != carrel.EndKilled {
					t.Errorf("the reason is %q, want killed", e.Reason)
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		b.destroy(t)
		wg.Wait()
		if e := b.wait(t, time.Minute); e.Reason != carrel.EndKilled || time.Since(e.Time).Abs() > time.Minute {
			t.Errorf("asked later: %+v", e)
		}
		if c, err := b.in.Dial(t.Context(), carrel.GuestPort); err == nil {
			c.Close()
			t.Error("a destroyed sandbox can be dialled")
		}
	})
	t.Run("crashed", func(t *testing.T) {
		b := s.box(t, d)
		host := b.hostProcesses()
		if len(host) == 0 {
			testenv.Inapplicable(t, "no process of the host stands for the sandbox")
		}
		for _, p := range host {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		if e := b.wait(t, time.Minute); e.Reason != carrel.EndCrashed || e.Message == "" {
			t.Errorf("its processes were killed and the end is %+v, want a crash with a message", e)
		}
	})
	t.Run("guest died", func(t *testing.T) {
		// Only with isolation: without it, process 1 is the host's.
		if c := s.info.Capabilities; !c.Isolation || !c.RealProcesses {
			testenv.Inapplicable(t, "the driver does not isolate")
		}
		b := s.box(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		patience := time.Second
		if _, _, err := b.exec(ctx, "kill -9 1; kill -SEGV 1; sleep 1"); err != nil {
			patience = time.Minute // the kill cut the command off
		}
		if e, err := waitShort(b.in, patience); err == nil {
			if e.Reason != carrel.EndCrashed || e.Message == "" {
				t.Errorf("the guest died and the end is %+v, want a crash with a message", e)
			}
			return
		}
		// The kernel protected its first process from signals. Then the sandbox must go on.
		b.must(t, "echo alive")
	})
	t.Run("out of memory", func(t *testing.T) {
		if !s.info.Capabilities.MemoryLimit || s.attack == "" {
			testenv.Inapplicable(t, "memory is not limited on this host")
		}
		s.heavy(t)
		b := s.box(t, d)
		b.upload(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		out, code, err := b.exec(ctx, fmt.Sprintf("%s memory %d", attackInside, 4*s.Limits.MemoryMB))
		if strings.Contains(out, "worked") {
			t.Fatalf("took four times its limit: %s", out)
		}
		e, werr := waitShort(b.in, time.Minute)
		if werr != nil {
			// Only the process was ended. That is allowed if the sandbox goes on.
			if code == 0 && err == nil {
				t.Errorf("the bomb ended with %q", out)
			}
			b.must(t, "echo alive")
			return
		}
		if e.Reason != carrel.EndOutOfMemory || !strings.Contains(e.Message, fmt.Sprint(s.Limits.MemoryMB)) {
			t.Errorf("the end is %+v, want out of memory, naming %d MiB", e, s.Limits.MemoryMB)
		}
	})
}

func waitShort(in driver.Instance, limit time.Duration) (driver.Exit, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return in.Wait(ctx)
}

// heavy skips cases that load the machine.
func (s *suite) heavy(t testing.TB) {
	t.Helper()
	testenv.Long(t, "loads the machine")
}

func (s *suite) testDestroy(t *testing.T) {
	d := s.open(t)
	before := s.trace(t, d)
	t.Run("twice and at once", func(t *testing.T) {
		b := s.box(t, d)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { b.destroy(t) })
		}
		wg.Wait()
		b.destroy(t)
		s.wantGone(t, b.spec)
	})
	t.Run("while starting", func(t *testing.T) {
		spec := s.spec(t)
		in, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		s.adopt(spec, in).destroy(t)
		s.wantGone(t, spec)
	})
	t.Run("after a crash", func(t *testing.T) {
		b := s.box(t, d)
		for _, p := range b.hostProcesses() {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		b.destroy(t)
		s.wantGone(t, b.spec)
	})
	t.Run("under load", func(t *testing.T) {
		b := s.box(t, d)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				// It ends by itself after some seconds: where no wall holds a sandbox's processes
				// together, one that starts during the destroy may outlive it.
				_, _, _ = b.exec(ctx, "i=0; while [ $i -lt 5000000 ]; do echo x; i=$((i+1)); done > /dev/null & sleep 10")
			})
		}
		time.Sleep(100 * time.Millisecond)
		b.destroy(t)
		wg.Wait()
		s.wantGone(t, b.spec)
	})
	t.Run("cancelled create", func(t *testing.T) {
		for _, after := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond} {
			spec := s.spec(t)
			ctx, cancel := context.WithCancel(t.Context())
			timer := time.AfterFunc(after, cancel)
			if after == 0 {
				cancel()
			}
			in, err := d.Create(ctx, spec)
			timer.Stop()
			cancel()
			wantError(t, err)
			if err == nil {
				s.adopt(spec, in).destroy(t)
			} else if in != nil {
				t.Error("Create gave an instance and an error")
			}
			s.wantGone(t, spec)
		}
	})
	before.wantSame(t)
}

func (s *suite) testMany(t *testing.T) {
	s.heavy(t)
	d := s.open(t)
	n := s.Many
	before := s.trace(t, d)
	boxes := make([]*box, n)
	specs := make([]driver.Spec, n)
	for i := range specs {
		specs[i] = s.spec(t)
		specs[i].Limits.MemoryMB = min(specs[i].Limits.MemoryMB, 128)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range boxes {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			var err error
			if boxes[i], err = s.tryBox(t.Context(), d, specs[i]); err != nil {
				t.Errorf("sandbox %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i, b := range boxes {
		if b == nil {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			want, file := fmt.Sprintf("box %d\n", i), "/tmp/who" // the same name in all of them
			if c := s.info.Capabilities; c.RealProcesses && !c.Isolation {
				file += string(b.spec.ID)
				defer os.Remove(file)
			}
			out, code, err := b.exec(ctx, fmt.Sprintf("echo box %d > %s; cat %s", i, file, file))
			if err != nil || code != 0 || out != want {
				t.Errorf("sandbox %d: %q, %d, %v", i, out, code, err)
			}
		})
	}
	wg.Wait()
	for _, b := range boxes {
		if b != nil {
			wg.Go(func() { b.destroy(t) })
		}
	}
	wg.Wait()
	for _, spec := range specs {
		s.wantGone(t, spec)
	}
	before.wantSame(t)
}

func (s *suite) testRecover(t *testing.T) {
	if !s.info.Capabilities.Recover {
		d := s.open(t)
		b := s.box(t, d)
		if _, err := d.Recover(t.Context(), b.in.Handle()); err == nil {
			t.Error("Info says that nothing is recovered, and Recover worked")
		}
		return
	}
	first := s.New(t)
	b, err := s.tryBox(t.Context(), first, s.spec(t))
	if err != nil {
		_ = first.Close()
		t.Fatal(err)
	}
	b.must(t, "echo kept > /tmp/kept; (sleep 1000 & echo $! > /tmp/pid)")
	handle := append(driver.Handle(nil), b.in.Handle()...)
	_ = b.conn.Close()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	d := s.open(t)
	in, err := d.Recover(t.Context(), handle)
	if err != nil {
		t.Fatalf("recover: %v", err)
	}
	again := s.adopt(b.spec, in)
	t.Cleanup(func() { again.destroy(t) })
	if err := again.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := again.must(t, "cat /tmp/kept; kill -0 $(cat /tmp/pid) && echo runs"); out != "kept\nruns" {
		t.Errorf("after recovery: %q", out)
	}
	again.destroy(t)
	if e := again.wait(t, time.Minute); e.Reason != carrel.EndKilled {
		t.Errorf("the end is %+v", e)
	}
	s.wantGone(t, b.spec)
	if _, err := d.Recover(t.Context(), handle); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("recovering what is gone gave %v, want not found", err)
	}
	if _, err := d.Recover(t.Context(), driver.Handle("{")); err == nil {
		t.Error("a broken handle was recovered")
	}
}

// wantGone checks that nothing on the host names the sandbox or its directory.
func (s *suite) wantGone(t testing.TB, spec driver.Spec) {
	t.Helper()
	testenv.EventuallyNil(t, "nothing is left behind", func() error {
		if left := remains(spec); len(left) > 0 {
			return errors.New(strings.Join(left, "; "))
		}
		return nil
	})
}

package service_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/service"
)

// blockCreates makes the driver's Create wait until release is called. begun counts the calls that
// are waiting.
func blockCreates(h *house) (release func(), begun *atomic.Int32) {
	gate := make(chan struct{})
	begun = new(atomic.Int32)
	h.drv.CreateFn = func(ctx context.Context, _ driver.Spec) error {
		begun.Add(1)
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return sync.OnceFunc(func() { close(gate) }), begun
}

// TestAdmissionRefuses shows that the gate bounds the starts at once and the waiting requests.
// Requests beyond both bounds get an error and leave nothing behind.
func TestAdmissionRefuses(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.MaxStarting, o.MaxQueued, o.MaxWait = 1, 2, time.Hour })
	release, begun := blockCreates(h)
	defer release()
	var wg sync.WaitGroup
	var fine atomic.Int32
	for range 3 {
		wg.Go(func() {
			if _, err := h.Create(t.Context(), carrel.CreateOptions{}); err == nil {
				fine.Add(1)
			} else {
				t.Error(err)
			}
		})
	}
	until(t, "one to start and two to wait", func() bool { return begun.Load() == 1 && h.Admission().Creates == 2 })
	_, err := h.Create(t.Context(), carrel.CreateOptions{})
	if carrel.KindOf(err) != carrel.Exhausted || carrel.RetryAfterOf(err) <= 0 || carrel.HintOf(err) == "" {
		t.Errorf("the fourth got %v, again after %v, hint %q", err, carrel.RetryAfterOf(err), carrel.HintOf(err))
	}
	if st := h.Stats(); st.Starting != 1 {
		t.Errorf("%d start at once", st.Starting)
	}
	release()
	wg.Wait()
	if fine.Load() != 3 {
		t.Errorf("%d of those that waited were made", fine.Load())
	}
}

// TestHungUpCreations shows that a caller who hangs up while it waits, or while its sandbox is
// made, leaves nothing behind.
func TestHungUpCreations(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.MaxStarting, o.MaxWait = 1, time.Hour })
	release, begun := blockCreates(h)
	defer release()
	ctx, hangUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if _, err := h.Create(ctx, carrel.CreateOptions{}); err == nil {
				t.Error("made for nobody")
			}
		})
	}
	until(t, "one to start and four to wait", func() bool { return begun.Load() == 1 && h.Admission().Creates == 4 })
	hangUp()
	wg.Wait()
	if s := h.Admission(); s.Starting+s.Creates != 0 {
		t.Errorf("at the gate: %+v", s)
	}
	if begun.Load() != 1 {
		t.Errorf("%d were begun for clients that had gone", begun.Load())
	}
	h.clean(t)
}

// TestLateCreations shows that a creation that takes too long is undone completely and frees its
// place.
func TestLateCreations(t *testing.T) {
	h := newHouse(t, func(o *service.Options) {
		o.MaxStarting, o.MaxWait, o.StartTimeout = 2, time.Hour, 30*time.Millisecond
	})
	_, begun := blockCreates(h)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if _, err := h.Create(t.Context(), carrel.CreateOptions{}); carrel.KindOf(err) != carrel.Unavailable {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if n := begun.Load(); n != 6 {
		t.Errorf("%d had their turn", n)
	}
	h.clean(t)
	h.drv.CreateFn = nil
	sb := h.create(t, carrel.CreateOptions{})
	if err := h.Kill(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
	h.clean(t)
}

// TestNoRoom shows that a machine without room refuses a creation before any work begins.
func TestNoRoom(t *testing.T) {
	full := &carrel.Error{Op: "create sandbox", Kind: carrel.Unavailable, Field: "memory", RetryAfter: 5 * time.Second}
	h := newHouse(t, func(o *service.Options) { o.Room = func(admission.Request, int) error { return full } })
	_, err := h.Create(t.Context(), carrel.CreateOptions{})
	if carrel.KindOf(err) != carrel.Unavailable || carrel.RetryAfterOf(err) != 5*time.Second {
		t.Error(err)
	}
	h.clean(t)
}

// TestProjectOwns shows that a new sandbox belongs to its caller's project.
func TestProjectOwns(t *testing.T) {
	h := newHouse(t, nil)
	sb, err := h.Create(carrel.WithCaller(t.Context(), carrel.Caller{Project: "team"}), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := h.store.GetSandbox(t.Context(), sb.ID); err != nil || rec.Sandbox.Project != "team" {
		t.Errorf("the project is %q (%v)", rec.Sandbox.Project, err)
	}
}

// TestCloseAtTheGate shows that a closing service refuses the waiting requests.
func TestCloseAtTheGate(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.MaxStarting, o.MaxWait = 1, time.Hour })
	release, begun := blockCreates(h)
	defer release()
	errs := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := h.Create(t.Context(), carrel.CreateOptions{})
			errs <- err
		}()
	}
	until(t, "one to start and two to wait", func() bool { return begun.Load() == 1 && h.Admission().Creates == 2 })
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for range 3 {
		if err := <-errs; carrel.KindOf(err) != carrel.Unavailable {
			t.Error(err)
		}
	}
	h.clean(t)
}

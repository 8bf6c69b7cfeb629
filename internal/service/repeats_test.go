package service_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestIdempotencyKey sends one creation many times at once, and again after the service went away.
// There is one sandbox.
func TestIdempotencyKey(t *testing.T) {
	lasting := func(o *service.Options) { o.KillOnClose = false }
	h := newHouse(t, lasting)
	opts := carrel.CreateOptions{IdempotencyKey: "0a-1", Metadata: map[string]string{"a": "b"}}
	var wg sync.WaitGroup
	ids := make([]carrel.ID, 20)
	for i := range ids {
		wg.Go(func() { ids[i] = h.create(t, opts).ID })
	}
	wg.Wait()
	if slices.Sort(ids); ids[0] != ids[len(ids)-1] {
		t.Errorf("several sandboxes: %v", ids)
	}
	other := carrel.WithCaller(t.Context(), carrel.Caller{Project: "other",
		Role: carrel.RoleMember})
	if sb, err := h.Create(other, opts); err != nil || sb.ID == ids[0] {
		t.Errorf("the key of another project: %v %v", sb.ID, err)
	}
	different := opts
	different.Metadata = nil
	if _, err := h.Create(t.Context(), different); !errors.Is(err, carrel.ErrKeyReused) ||
		carrel.KindOf(err) != carrel.Conflict {
		t.Errorf("another creation with the key: %v", err)
	}
	for _, key := range []string{"A", "a b", "ä", string(make([]byte, 256))} {
		bad := opts
		bad.IdempotencyKey = key
		if _, err := h.Create(t.Context(), bad); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("the key %q: %v", key, err)
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	next := h.open(t, lasting)
	if sb, err := next.Create(t.Context(), opts); err != nil || sb.ID != ids[0] {
		t.Errorf("the next service made %v, %v", sb.ID, err)
	}
}

// TestIdempotencyKeyAfterATag repeats a creation after the name in it came to mean another template.
// The request is the same, so the answer is.
func TestIdempotencyKeyAfterATag(t *testing.T) {
	h := newHouse(t, nil)
	create := func(asked, id string) (carrel.Sandbox, error) {
		return h.Create(carrel.WithAsked(t.Context(), asked),
			carrel.CreateOptions{IdempotencyKey: "k", Template: id})
	}
	first, err := create("web", "tpl0tpl0tpl0tpl0tpl0")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := create("web", "tpl1tpl1tpl1tpl1tpl1"); err != nil || again.ID != first.ID {
		t.Errorf("%s, then %s, %v", first.ID, again.ID, err)
	}
	if _, err := create("other", "tpl1tpl1tpl1tpl1tpl1"); !errors.Is(err, carrel.ErrKeyReused) {
		t.Errorf("another name: %v", err)
	}
}

// TestIdempotencyKeyFailed shows that a failed creation does not use up its key.
func TestIdempotencyKeyFailed(t *testing.T) {
	h := newHouse(t, nil)
	opts := carrel.CreateOptions{IdempotencyKey: "k", Template: "no-such-template"}
	if _, err := h.Create(t.Context(), opts); carrel.KindOf(err) != carrel.NotFound {
		t.Fatal(err)
	}
	opts.Template = ""
	if _, err := h.Create(t.Context(), opts); err != nil {
		t.Error(err)
	}
}

// TestProjectMetrics counts the sandboxes of two projects.
func TestProjectMetrics(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.SampleEvery = 10 * time.Millisecond })
	sb := h.create(t, carrel.CreateOptions{})
	running := func(project string, n int) func() bool {
		return func() bool {
			all := h.ProjectMetrics(project, time.Time{}, time.Time{})
			return len(all) > 0 && all[len(all)-1].Running == n
		}
	}
	testenv.Eventually(t, "one runs", running(carrel.DefaultProject, 1))
	testenv.Eventually(t, "a start was counted", func() bool {
		return slices.ContainsFunc(h.ProjectMetrics(carrel.DefaultProject, time.Time{},
			time.Time{}),
			func(m carrel.ProjectMetric) bool { return m.StartRate > 0 })
	})
	if err := h.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "none runs", running(carrel.DefaultProject, 0))
	if all := h.ProjectMetrics("other", time.Time{}, time.Time{}); len(all) != 0 {
		t.Errorf("another project has %v", all)
	}
	if all := h.ProjectMetrics(carrel.DefaultProject, time.Now().Add(time.Hour),
		time.Time{}); len(all) != 0 {
		t.Errorf("of the future: %v", all)
	}
}

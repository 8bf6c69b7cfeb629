package service_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service"
)

// TestNameIsOnes makes many creations with one name at once. In each project exactly one succeeds,
// also after a restart. The name is free again after its sandbox has ended.
func TestNameIsOnes(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.KillOnClose = false })
	var wg sync.WaitGroup
	var made, refused atomic.Int32
	for i := range 20 {
		wg.Go(func() {
			_, err := h.Create(inProject(t, []string{"a", "b"}[i%2]), carrel.CreateOptions{Name: "one"})
			switch {
			case err == nil:
				made.Add(1)
			case errors.Is(err, carrel.AlreadyExists):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 2 || refused.Load() != 18 {
		t.Fatalf("%d made, %d refused", made.Load(), refused.Load())
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.Service = h.open(t, nil)
	ctx := inProject(t, "a")
	if _, err := h.Create(ctx, carrel.CreateOptions{Name: "one"}); !errors.Is(err, carrel.AlreadyExists) {
		t.Errorf("after a restart: %v", err)
	}
	page, err := h.List(ctx, carrel.ListOptions{Match: "one", Project: "a"})
	if err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].Project != "a" {
		t.Fatalf("%+v, %v", page, err)
	}
	sb := page.Sandboxes[0]
	for _, text := range []string{string(sb.ID), string(sb.ID[:carrel.MinPrefix])} {
		if page, err := h.List(ctx, carrel.ListOptions{Match: text, Project: "a"}); err != nil || len(page.Sandboxes) != 1 {
			t.Errorf("%s: %+v, %v", text, page, err)
		}
	}
	if page, err := h.List(ctx, carrel.ListOptions{Match: string(sb.ID[:carrel.MinPrefix-1])}); err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("a beginning that is too short: %+v, %v", page, err)
	}
	if err := h.Kill(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(ctx, carrel.CreateOptions{Name: "one"}); err != nil {
		t.Errorf("the name of one that has ended: %v", err)
	}
	for _, id := range h.drv.ids() {
		if err := h.Kill(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	h.clean(t)
}

// TestNamesAreChecked shows that a name can't be an ID, nor look like a path or a flag.
func TestNamesAreChecked(t *testing.T) {
	h := newHouse(t, nil)
	for _, name := range []string{string(carrel.NewID()), "A", "a_b", "a.b", "-a", "a-", "a/b", "a:b", "a b", "é", "a\x00", "0123456789012345678901234567890123456789a"} {
		_, err := h.Create(t.Context(), carrel.CreateOptions{Name: name})
		if ce, ok := errors.AsType[*carrel.Error](err); !ok || ce.Kind != carrel.Invalid || ce.Field != "name" {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"a", "7", "a-b", "0123456789012345678901234567890123456789"} {
		if _, err := h.Create(t.Context(), carrel.CreateOptions{Name: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

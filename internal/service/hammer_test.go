package service_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/service"
)

// TestHammer does everything at once, for -race. Nothing may hang, every error must be one that the
// contract names, and nothing may be left.
func TestHammer(t *testing.T) {
	h := newHouse(t, func(o *service.Options) { o.MaxSandboxes = 60; o.SampleEvery = time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var ids []carrel.ID
	pick := func() carrel.ID {
		mu.Lock()
		defer mu.Unlock()
		if len(ids) == 0 {
			return carrel.NewID()
		}
		return ids[rand.IntN(len(ids))]
	}
	check := func(what string, err error) {
		switch carrel.KindOf(err) {
		case "", carrel.NotFound, carrel.Conflict, carrel.Exhausted:
		default:
			t.Errorf("%s: %v", what, err)
		}
	}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			for range 6 {
				switch rand.IntN(8) {
				case 0, 1, 2:
					sb, err := h.Create(ctx, carrel.CreateOptions{Timeout: time.Duration(1+rand.IntN(50)) * time.Millisecond})
					check("create", err)
					if err == nil {
						mu.Lock()
						ids = append(ids, sb.ID)
						mu.Unlock()
					}
				case 3:
					check("kill", h.Kill(ctx, pick()))
				case 4:
					check("get", second(h.Get(ctx, pick())))
				case 5:
					check("timeout", second(h.SetTimeout(ctx, pick(), time.Duration(rand.IntN(100))*time.Millisecond, rand.IntN(2) == 0)))
				case 6:
					check("list", second(h.List(ctx, carrel.ListOptions{Limit: 1 + rand.IntN(20)})))
				case 7:
					if in := h.drv.get(pick()); in != nil {
						in.die(driver.Exit{Reason: carrel.EndCrashed, Message: "by the hammer"})
					}
				}
			}
		})
	}
	wg.Wait()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	h.clean(t)
	told := map[carrel.ID]int{}
	for after := int64(0); ; {
		page, err := h.store.Events(t.Context(), "", after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			switch after = e.Seq; e.Type {
			case "sandbox.created":
				told[e.ID]++
			case "sandbox.ended":
				told[e.ID]--
			}
		}
		if len(page) == 0 {
			break
		}
	}
	for id, n := range told {
		if n != 0 {
			t.Errorf("%s: starts minus ends is %d", id, n)
		}
	}
}

package postgres_test

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
)

// offDuty fails the test unless an error is ErrFenced.
func offDuty(t *testing.T, what string, err error) {
	t.Helper()
	if carrel.KindOf(err) != carrel.Conflict || !errors.Is(err, fleet.ErrFenced) {
		t.Errorf("%s: %v, want ErrFenced", what, err)
	}
}

// testFleetHooks gives the duty from one front to another, and tries what the first one may not do any
// more.
func testFleetHooks(t *testing.T, server *postgrestest.Server) {
	list := nodes(t, server, 2)
	a, b := list[0].Fleet(), list[1].Fleet()
	ctx := t.Context()
	const life = time.Minute
	first, err := a.TakeDuty(ctx, "d", "a", fleet.Duty{}, life)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.TakeDuty(ctx, "d", "b", fleet.Duty{}, life); !errors.Is(err, fleet.ErrHeld) {
		t.Errorf("two fronts have the duty: %v", err)
	}
	if again, err := a.TakeDuty(ctx, "d", "a", first, life); err != nil || again.Token != first.Token {
		t.Errorf("prolonged: %+v %v", again, err)
	}
	h := fleet.Hook{ID: "h", Project: "p", Sealed: []byte("one")}
	for range 2 { // an answer that was lost
		if err := a.AddHook(ctx, h, 1, 5); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.AddHook(ctx, fleet.Hook{ID: "i", Project: "p", Sealed: []byte("x")}, 1, 5); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("one too many: %v", err)
	}
	read := func(lines ...string) fleet.Hook {
		t.Helper()
		got, err := b.Hooks(ctx, "p", true)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		var has []string
		for _, l := range got[0].Lines {
			has = append(has, string(l))
		}
		if !slices.Equal(has, lines) {
			t.Errorf("lines %q, want %q", has, lines)
		}
		got[0].Lines = nil
		return got[0]
	}
	h = read()
	line := func(s string) [][]byte { return [][]byte{[]byte(s)} }
	if err := a.Delivered(ctx, first, h, line("1"), false); err != nil {
		t.Fatal(err)
	}
	old := read("1")
	if err := b.ChangeHook(ctx, fleet.Hook{ID: "h", Version: h.Version, Sealed: []byte("two")}, line("2")); err != nil {
		t.Fatal(err)
	}
	h = read("1", "2")
	if !bytes.Equal(h.Sealed, []byte("two")) {
		t.Errorf("sealed %q", h.Sealed)
	}
	offDuty(t, "a delivery by old settings", a.MayDeliver(ctx, first, old))
	offDuty(t, "a delivery by old settings is recorded", a.Delivered(ctx, first, old, line("x"), false))
	offDuty(t, "a change of what was changed", b.ChangeHook(ctx, old, line("x")))
	if err := a.Delivered(ctx, first, h, line("3"), true); err != nil {
		t.Fatal(err)
	}
	read("3")

	// Events: a batch that comes twice is there once.
	pub := []byte("machine")
	if s, err := a.Source(ctx, pub); err != nil || s.Seq != 0 || time.Since(s.Since).Abs() > time.Hour {
		t.Fatal(s, err)
	}
	batch := []carrel.Event{{Seq: 7, Type: "sandbox.created", ID: "s", Project: "p"}, {Seq: 9, Type: "sandbox.ended", ID: "s", Project: "p"}}
	for range 2 {
		if err := a.Collect(ctx, first, pub, batch); err != nil {
			t.Fatal(err)
		}
	}
	events, err := list[1].Events(ctx, "s", 0, 10)
	if err != nil || len(events) != 2 || events[0].Type != "sandbox.created" || events[1].Seq != events[0].Seq+1 {
		t.Errorf("%+v %v", events, err)
	}
	if s, err := b.Source(ctx, pub); err != nil || s.Seq != 9 {
		t.Error(s, err)
	}

	// The other front has the duty now.
	if err := a.LeaveDuty(ctx, first); err != nil {
		t.Fatal(err)
	}
	second, err := b.TakeDuty(ctx, "d", "b", fleet.Duty{}, life)
	if err != nil || second.Token <= first.Token {
		t.Fatal(second, err)
	}
	_, err = a.TakeDuty(ctx, "d", "a", first, life)
	offDuty(t, "an old duty is prolonged", err)
	offDuty(t, "an old duty delivers", a.MayDeliver(ctx, first, h))
	offDuty(t, "an old duty records", a.Delivered(ctx, first, h, line("x"), false))
	offDuty(t, "an old duty collects", a.Collect(ctx, first, pub, []carrel.Event{{Seq: 10, Type: "sandbox.created", ID: "t"}}))
	if err := b.MayDeliver(ctx, second, h); err != nil {
		t.Error(err)
	}

	// Callers that change one webhook at once: one of them wins.
	var won sync.Map
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := list[i%2].Fleet().ChangeHook(ctx, h, line("c")); err == nil {
				won.Store(i, true)
			} else {
				offDuty(t, "a loser", err)
			}
		})
	}
	wg.Wait()
	n := 0
	won.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d changes of one version", n)
	}
	if err := b.DropHook(ctx, "h"); err != nil {
		t.Fatal(err)
	}
	if err := b.DropHook(ctx, "h"); carrel.KindOf(err) != carrel.NotFound {
		t.Error(err)
	}
	offDuty(t, "a webhook that is gone", b.Delivered(ctx, second, h, line("x"), false))
}

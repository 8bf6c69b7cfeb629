package postgres_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
)

// testFleetLogins has people confirm one command line at several fronts at once, and fronts ask for its
// token at once: each has one winner.
func testFleetLogins(t *testing.T, server *postgrestest.Server) {
	list := nodes(t, server, 2)
	ctx := t.Context()
	login := fleet.Login{Hash: "hash\x00\xff", Code: "code", Label: "l", From: "f", Interval: 5 * time.Second, Left: time.Minute}
	for range 2 { // an answer that was lost
		if err := list[0].Fleet().AddLogin(ctx, login, 2); err != nil {
			t.Fatal(err)
		}
	}
	twin := login
	twin.Hash = "other"
	if err := list[1].Fleet().AddLogin(ctx, twin, 2); carrel.KindOf(err) != carrel.AlreadyExists {
		t.Errorf("a code twice: %v", err)
	}
	twin.Code, twin.Left = "short", time.Millisecond
	if err := list[1].Fleet().AddLogin(ctx, twin, 2); err != nil {
		t.Fatal(err)
	}
	third := login
	third.Hash, third.Code = "third", "third"
	err := list[1].Fleet().AddLogin(ctx, third, 1)
	if carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("one too many: %v", err)
	}

	race := func(what string, fn func(f fleet.Logins, i int) bool) {
		t.Helper()
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if fn(list[i%2].Fleet(), i) {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%s: %d winners", what, won.Load())
		}
	}
	race("confirm", func(f fleet.Logins, i int) (mine bool) {
		err := f.ChangeLogin(ctx, "", "code", func(l *fleet.Login) bool {
			if mine = l.Person == "" && l.Left > 0; mine {
				l.Person = fmt.Sprint(i)
			}
			return true
		})
		if err != nil {
			t.Error(err)
		}
		return mine
	})
	race("take the token", func(f fleet.Logins, i int) (mine bool) {
		err := f.ChangeLogin(ctx, login.Hash, "", func(l *fleet.Login) bool {
			mine = l.Person != "" && l.Label == "l" && l.From == "f" && l.Quiet > time.Hour
			return !mine
		})
		if err != nil && carrel.KindOf(err) != carrel.NotFound {
			t.Error(err)
		}
		return mine && err == nil
	})
	if err := list[0].Fleet().ChangeLogin(ctx, login.Hash, "", func(*fleet.Login) bool { return true }); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("a code that was used: %v", err)
	}
}

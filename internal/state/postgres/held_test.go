package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/state/postgres"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// heldRight compares the sums that quotas are checked by with the homes themselves.
func heldRight(t testing.TB, server *postgrestest.Server, database string) {
	t.Helper()
	const of = `coalesce(sum(sandboxes), 0) || ' ' || coalesce(sum(vcpus), 0) || ' ' || coalesce(sum(memory), 0) || ' ' || coalesce(sum(disk), 0)`
	sums := server.Exec(t, database, `SELECT `+of+` FROM carrel.held`)
	homes := server.Exec(t, database, `SELECT `+of+` FROM carrel.homes WHERE state = 'running' AND counts = '-infinity' AND project IN (SELECT project FROM carrel.metered)`)
	if sums != homes {
		t.Errorf("the sums are %s, and the homes hold %s", sums, homes)
	}
	keys := server.Exec(t, database, `SELECT count(*) FROM (SELECT project, key FROM carrel.held GROUP BY 1, 2 HAVING sum(sandboxes) <> (
		SELECT coalesce(sum(h.sandboxes), 0) FROM carrel.homes h WHERE h.project = held.project AND h.key = held.key AND state = 'running' AND counts = '-infinity')) AS wrong`)
	if strings.TrimSpace(keys) != "0" {
		t.Errorf("%s keys have a wrong sum", keys)
	}
}

// crowd claims n homes on a node.
func crowd(t testing.TB, f fleet.Registry, m fleet.Member, n int) {
	t.Helper()
	const batch = 500
	for i := 0; i < n; i += batch {
		var homes []fleet.Home
		for j := range min(batch, n-i) {
			homes = append(homes, fleet.Home{Sandbox: carrel.ID(fmt.Sprintf("s%06d", i+j)), Project: "p", State: fleet.Running,
				Load: size, Born: &fleet.Born{Key: "k"}})
		}
		if _, err := f.Claim(t.Context(), m, homes...); err != nil {
			t.Fatal(err)
		}
	}
}

// meter has the quotas of a project checked, so that its sums are kept.
func meter(t testing.TB, r fleet.Registry, project, by string) {
	t.Helper()
	got, err := r.Take(t.Context(), fleet.Asked{Project: project, Key: by, Load: quota.Load{Sandboxes: quota.One}, Count: 1}, limitOf(carrel.LimitSandboxes, 1_000_000))
	if err == nil {
		err = r.Drop(t.Context(), got.Shares...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testFleetMetered checks a project's quota for the first time while others make and end its sandboxes.
// The sums are right, whoever was faster.
func testFleetMetered(t *testing.T, server *postgrestest.Server) {
	database := server.Database(t)
	s := open(t, postgres.Options{URL: server.URL(database)})
	r, ctx := s.Fleet(), t.Context()
	member := enroll(t, r, "a", time.Minute)
	for round := range 10 {
		project := fmt.Sprint("p", round)
		var makers sync.WaitGroup
		for i := range 4 {
			makers.Go(func() {
				for j := range 12 {
					id := carrel.ID(fmt.Sprintf("s%d-%d-%d", round, i, j))
					_, err := r.Claim(ctx, member, fleet.Home{Sandbox: id, Project: project, State: fleet.Running, Load: size, Born: &fleet.Born{Key: "k"}})
					if err == nil && j%3 == 0 {
						err = r.End(ctx, member, id)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		testenv.Eventually(t, "the project is metered", func() bool {
			meter(t, r, project, "k")
			return server.Exec(t, database, "SELECT count(*) FROM carrel.metered") == fmt.Sprint(round+1)
		})
		makers.Wait()
		heldRight(t, server, database)
		out, err := r.Used(ctx, carrel.Holder{Project: project})
		if n := out[carrel.LimitSandboxes] / quota.One; err != nil || n != 32 {
			t.Errorf("round %d: %d count, want 32: %v", round, n, err)
		}
	}
}

// testFleetHeld has homes come, pause, go, wait to count and be lost, and compares the sums after each.
func testFleetHeld(t *testing.T, server *postgrestest.Server) {
	database := server.Database(t)
	s := open(t, postgres.Options{URL: server.URL(database)})
	r, ctx := s.Fleet(), t.Context()
	member := enroll(t, r, "a", time.Minute)
	right := func(what string, running int) {
		t.Helper()
		heldRight(t, server, database)
		if n := used(t, r); n != running {
			t.Errorf("%s: %d count, want %d", what, n, running)
		}
	}
	crowd(t, r, member, 500)
	if rows := strings.TrimSpace(server.Exec(t, database, "SELECT count(*) FROM carrel.held")); rows != "0" || used(t, r) != 500 {
		t.Errorf("%s rows for a project without quotas, of which %d count", rows, used(t, r))
	}
	meter(t, r, "p", "k")
	right("metered", 500)
	crowd(t, r, member, 1000)
	right("made", 1000)
	if _, err := r.Lose(ctx); err != nil { // adds up
		t.Fatal(err)
	}
	right("added up", 1000)
	if rows := strings.TrimSpace(server.Exec(t, database, "SELECT count(*) FROM carrel.held")); rows != "1" {
		t.Errorf("%s rows hold 1000 homes, want 1", rows)
	}
	for i := range 10 {
		id := carrel.ID(fmt.Sprintf("s%06d", i))
		home, err := r.Home(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Publish(ctx, member, id, home.Token, []byte("{}"), true); err != nil {
			t.Fatal(err)
		}
	}
	right("paused", 990)
	if _, err := r.Begin(ctx, member, "s000000"); err != nil {
		t.Fatal(err)
	}
	if err := r.End(ctx, member, "s000500", "s000501"); err != nil {
		t.Fatal(err)
	}
	right("one again, two ended", 989)
	// A node tells of one itself: it counts later, and is one of the sum then.
	if _, err := r.Claim(ctx, member, fleet.Home{Sandbox: "told", Project: "p", State: fleet.Running, Load: size}); err != nil {
		t.Fatal(err)
	}
	right("told just now", 989)
	server.Exec(t, database, "UPDATE carrel.homes SET counts = clock_timestamp() WHERE sandbox = 'told'")
	right("its time has come", 990)
	if _, err := r.Lose(ctx); err != nil {
		t.Fatal(err)
	}
	right("settled", 990)
	if n := strings.TrimSpace(server.Exec(t, database, "SELECT count(*) FROM carrel.homes WHERE counts > '-infinity'")); n != "0" {
		t.Errorf("%s homes are not settled", n)
	}
	server.Exec(t, database, "UPDATE carrel.nodes SET expires = clock_timestamp()")
	if lost, err := r.Lose(ctx); err != nil || len(lost) != 990 {
		t.Fatal(len(lost), err)
	}
	if _, err := r.Lose(ctx); err != nil {
		t.Fatal(err)
	}
	right("lost", 0)
	if rows := strings.TrimSpace(server.Exec(t, database, "SELECT count(*) FROM carrel.held")); rows != "0" {
		t.Errorf("%s rows hold nothing", rows)
	}
}

// BenchmarkQuota takes and gives back a share in a project with more and more sandboxes.
func BenchmarkQuota(b *testing.B) {
	server := postgrestest.Start(b)
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, err := postgres.Open(b.Context(), postgres.Options{URL: server.URL(server.Database(b)), Timeout: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			r := s.Fleet()
			if err := r.Admit(b.Context(), "a", []byte("a")); err != nil {
				b.Fatal(err)
			}
			a, err := r.Enroll(b.Context(), fleet.Node{Name: "a", Public: []byte("a"), URL: "https://a", Key: "k"}, time.Hour)
			if err != nil {
				b.Fatal(err)
			}
			crowd(b, r, fleet.Member{Name: a.Name, Token: a.Token}, n)
			if _, err := r.Lose(b.Context()); err != nil {
				b.Fatal(err)
			}
			bounds := limitOf(carrel.LimitSandboxes, 2*n+1000)
			for b.Loop() {
				got, err := r.Take(b.Context(), fleet.Asked{Project: "p", Key: "k", Load: quota.Load{Sandboxes: quota.One}, Count: 1}, bounds)
				if err != nil {
					b.Fatal(err)
				}
				if err := r.Drop(b.Context(), got.Shares...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

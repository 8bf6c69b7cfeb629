package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/postgres"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
	"github.com/carrel-dev/carrel/internal/state/statetest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store in a database of a server.
func open(t testing.TB, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestStore runs the tests that leave their server as it was. Each has a database of its own.
func TestStore(t *testing.T) {
	server := postgrestest.Start(t)
	for name, test := range map[string]func(*testing.T, *postgrestest.Server){
		"Conformance":        testConformance,
		"StartTogether":      testStartTogether,
		"EventsAcrossFronts": testEventsAcrossFronts,
		"Refusals":           testRefusals,
		"NewerTables":        testNewerTables,
		"MigrationUndone":    testMigrationUndone,
		"LongWalk":           testLongWalk,
		"LongList":           testLongList,
		"Crossing":           testCrossing,
		"Texts":              testTexts,
		"LostCommit":         testLostCommit,
		"LostServer":         testLostServer,
		"Slow":               testSlow,
		"OneRefused":         testOneRefused,

		"FleetMembers":   testFleetMembers,
		"FleetTakeOver":  testFleetTakeOver,
		"FleetHomes":     testFleetHomes,
		"FleetRace":      testFleetRace,
		"FleetQuotas":    testFleetQuotas,
		"FleetShares":    testFleetShares,
		"FleetQuotaRace": testFleetQuotaRace,
		"FleetHooks":     testFleetHooks,
		"FleetLogins":    testFleetLogins,
		"FleetHeld":      testFleetHeld,
		"FleetMetered":   testFleetMetered,

		"LeaseRace":    testLeaseRace,
		"LeaseTaken":   testLeaseTaken,
		"LeaseReplay":  testLeaseReplay,
		"LeaseClock":   testLeaseClock,
		"LeaseTokens":  testLeaseTokens,
		"LeaseInvalid": testLeaseInvalid,
		"LeaseFence":   testLeaseFence,
		"LeaseHeld":    testLeaseHeld,
	} {
		t.Run(name, func(t *testing.T) { test(t, server) })
	}
}

// testConformance runs the contract's suite.
func testConformance(t *testing.T, server *postgrestest.Server) {
	url, n := server.URL(server.Database(t)), 0
	statetest.Run(t, func(t *testing.T) state.Store {
		n++ // an odd name of a schema must not matter
		return open(t, postgres.Options{URL: url, Schema: fmt.Sprintf(`an "odd"; -- 日本 %d`, n)})
	})
}

// testStartTogether opens a new database from many stores at once, as many fronts do. One of them
// makes the tables; all work and see one another's records.
func testStartTogether(t *testing.T, server *postgrestest.Server) {
	url := server.URL(server.Database(t))
	const fronts = 5
	stores := make([]*postgres.Store, fronts)
	var wg sync.WaitGroup
	for i := range fronts {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), postgres.Options{URL: url, Conns: 2})
			if err != nil {
				t.Errorf("front %d: %v", i, err)
				return
			}
			stores[i] = s
			if err := s.PutSandbox(t.Context(), statetest.Record(time.Now())); err != nil {
				t.Errorf("front %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i, s := range stores {
		if s == nil {
			continue
		}
		if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != fronts {
			t.Errorf("front %d sees %d records, %v", i, len(all), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// testEventsAcrossFronts appends events from several stores. A reader that goes on after the last
// number that it saw misses none, and the numbers have no gap.
func testEventsAcrossFronts(t *testing.T, server *postgrestest.Server) {
	url := server.URL(server.Database(t))
	const fronts, writers, each = 3, 4, 15
	var writing sync.WaitGroup
	for range fronts {
		s := open(t, postgres.Options{URL: url, Conns: 2})
		for range writers {
			writing.Go(func() {
				for range each {
					if _, err := s.AppendEvent(t.Context(), carrel.Event{Time: time.Now(), Type: "x"}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	reader := open(t, postgres.Options{URL: url, Conns: 2})
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	last := int64(0)
	for over := false; !over || last < fronts*writers*each; {
		select {
		case <-done:
			over = true
		default:
		}
		got, err := reader.Events(t.Context(), "", last, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got {
			if e.Seq != last+1 {
				t.Fatalf("event %d follows %d", e.Seq, last)
			}
			last = e.Seq
		}
		if over && len(got) == 0 {
			break
		}
	}
	if last != fronts*writers*each {
		t.Errorf("the last event has number %d", last)
	}
}

// testRefusals opens databases that can't be used. Each error says why, has a hint, and does not
// show the password.
func testRefusals(t *testing.T, server *postgrestest.Server) {
	database := func(sql ...string) string {
		name := server.Database(t)
		for _, q := range sql {
			server.Exec(t, "postgres", strings.ReplaceAll(q, "DB", name))
		}
		return server.URL(name)
	}
	newer := server.Database(t)
	if err := open(t, postgres.Options{URL: server.URL(newer)}).Close(); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, newer, "UPDATE carrel.version SET number = 99")
	server.Exec(t, "postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	server.Exec(t, "postgres", "CREATE ROLE poor LOGIN PASSWORD '"+server.Password+"'")
	for _, c := range []struct {
		name, url string
		kind      carrel.Kind
		says      string
	}{
		{"synchronous_commit", database("ALTER DATABASE DB SET synchronous_commit = off"), carrel.Unsupported, "synchronous_commit=off"},
		{"only local", database("ALTER DATABASE DB SET synchronous_commit = local"), carrel.Unsupported, "synchronous_commit=local"},
		{"by the address", database() + "&synchronous_commit=off", carrel.Unsupported, "synchronous_commit=off"},
		{"encoding", server.URL("latin"), carrel.Unsupported, "LATIN1"},
		{"newer", server.URL(newer), carrel.Unsupported, "version 99"},
		{"no database", server.URL("nowhere"), carrel.Unsupported, "nowhere"},
		{"password", strings.Replace(database(), server.Password, "wrong-secret", 1), carrel.Unsupported, "28P01"},
		{"rights", strings.Replace(database(), "carrel:", "poor:", 1), carrel.Unsupported, "42501"},
		{"no address", "postgres://user:wrong-secret@%zz/", carrel.Invalid, "url"},
		{"plain", "postgres://user:wrong-secret@db.example.com/x", carrel.Invalid, "without encryption"},
		{"plain at last", "postgres://user:wrong-secret@localhost,db.example.com/x?sslmode=prefer", carrel.Invalid, "db.example.com"},
		{"schema", database() + "\x00", carrel.Invalid, "url"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := postgres.Open(t.Context(), postgres.Options{URL: c.url, Timeout: 5 * time.Second})
			if err == nil {
				t.Fatalf("it opens: %v", s.Close())
			}
			text := fmt.Sprintf("%v %+v %s", err, err, carrel.HintOf(err))
			if carrel.KindOf(err) != c.kind || carrel.HintOf(err) == "" || !strings.Contains(text, c.says) {
				t.Errorf("%s: %v, hint %q; want %s and %q", carrel.KindOf(err), err, carrel.HintOf(err), c.kind, c.says)
			}
			for _, secret := range []string{server.Password, "wrong-secret"} {
				if strings.Contains(text, secret) {
					t.Errorf("the error shows the password: %s", text)
				}
			}
		})
	}
}

// TestNotDurable opens a server without fsync.
func TestNotDurable(t *testing.T) {
	server := postgrestest.Start(t, "fsync = off")
	s, err := postgres.Open(t.Context(), postgres.Options{URL: server.URL(server.Database(t))})
	if err == nil {
		t.Fatalf("it opens: %v", s.Close())
	}
	if carrel.KindOf(err) != carrel.Unsupported || !strings.Contains(err.Error(), "fsync=off") {
		t.Error(err)
	}
}

// TestSettingsStay shows that a change of the server's configuration does not make open sessions
// less durable. New connections are refused then.
func TestSettingsStay(t *testing.T) {
	server := postgrestest.Start(t)
	s := open(t, postgres.Options{URL: server.URL(server.Database(t)), Conns: 1, Timeout: time.Second})
	if err := s.PutSandbox(t.Context(), statetest.Record(time.Now())); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "postgres", "ALTER SYSTEM SET synchronous_commit = off")
	server.Reload(t)
	if got := postgres.Setting(t, s, "synchronous_commit"); got != "on" {
		t.Errorf("an open session has synchronous_commit=%s", got)
	}
	server.Exec(t, "postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL")
	err := s.PutSandbox(t.Context(), statetest.Record(time.Now()))
	if carrel.KindOf(err) != carrel.Unsupported || !strings.Contains(err.Error(), "synchronous_commit=off") {
		t.Errorf("with a new connection: %v", err)
	}
}

// testNewerTables migrates the tables while an older program has them open. It must not write to
// tables that it does not know.
func testNewerTables(t *testing.T, server *postgrestest.Server) {
	name := server.Database(t)
	s := open(t, postgres.Options{URL: server.URL(name)})
	r := statetest.Record(time.Now())
	if err := s.PutSandbox(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, name, `UPDATE carrel.version SET number = number + 1;
		UPDATE carrel.sandboxes SET record = (jsonb_set(replace(record::text, '\u0000', '')::jsonb, '{Newer}', '{"a": [1]}'))::json`)
	if err := s.PutSandbox(t.Context(), statetest.Record(time.Now())); carrel.KindOf(err) != carrel.Unsupported || carrel.HintOf(err) == "" {
		t.Errorf("a write: %v, want Unsupported with a hint", err)
	}
	// A row of a newer version can be read, as far as this program knows it.
	if got, err := s.GetSandbox(t.Context(), r.Sandbox.ID); err != nil || got.User != r.User {
		t.Errorf("%+v, %v", got, err)
	}
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d records, %v", len(all), err)
	}
}

// testMigrationUndone makes a migration fail in its middle. Nothing of it stays, and the next start
// succeeds.
func testMigrationUndone(t *testing.T, server *postgrestest.Server) {
	name := server.Database(t)
	server.Exec(t, name, "CREATE SCHEMA carrel; CREATE TABLE carrel.leases (stranger int)")
	o := postgres.Options{URL: server.URL(name)}
	if s, err := postgres.Open(t.Context(), o); carrel.KindOf(err) != carrel.Internal {
		t.Fatalf("%v, %v; want Internal", s, err)
	}
	if n := server.Exec(t, name, "SELECT count(*) FROM pg_tables WHERE schemaname = 'carrel'"); n != "1" {
		t.Errorf("%s tables are left", n)
	}
	server.Exec(t, name, "DROP TABLE carrel.leases")
	open(t, o)
}

// testLongWalk reads usage slowly with all walkers, while the store is used. No walk ends for the
// time that its reader takes.
func testLongWalk(t *testing.T, server *postgrestest.Server) {
	url := server.URL(server.Database(t))
	s, patient := open(t, postgres.Options{URL: url, Conns: 2, Timeout: time.Second}), open(t, postgres.Options{URL: url})
	var c state.Change
	for i := range 1200 {
		c.PutUsage = append(c.PutUsage, statetest.Usage(fmt.Sprint("u", i), time.Now(), time.Second))
	}
	if err := patient.Apply(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := s.EachUsage(t.Context(), time.Time{}, time.Time{}, func(u state.Usage) error {
		if n++; n == 500 || n == 501 {
			// Longer than the timeout; and what comes meanwhile is not seen.
			time.Sleep(2200 * time.Millisecond)
			late := state.Change{PutUsage: []state.Usage{statetest.Usage(fmt.Sprint("late", n), time.Now(), time.Second)}}
			if err := patient.Apply(t.Context(), late); err != nil {
				return err
			}
		}
		if n%100 == 0 {
			_, err := s.Sandboxes(t.Context())
			return err
		}
		return nil
	})
	if err != nil || n != 1200 {
		t.Errorf("%d pieces, %v", n, err)
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := s.EachUsage(ctx, time.Time{}, time.Time{}, func(state.Usage) error { cancel(); return stop }); !errors.Is(err, stop) {
		t.Errorf("a walk whose reader stops: %v", err)
	}
}

// testLongList reads more records than a page has, oldest first.
func testLongList(t *testing.T, server *postgrestest.Server) {
	s := open(t, postgres.Options{URL: server.URL(server.Database(t))})
	base := time.Now()
	const n = 1203
	var c state.Change
	for i := range n {
		c.Put = append(c.Put, statetest.Record(base.Add(time.Duration(i*7%n))))
	}
	if err := s.Apply(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	all, err := s.Sandboxes(t.Context())
	if err != nil || len(all) != n {
		t.Fatalf("%d records, %v; want %d", len(all), err, n)
	}
	for i, r := range all {
		if want := base.Add(time.Duration(i)); !r.Sandbox.Started.Equal(want) {
			t.Fatalf("record %d started %v, want %v", i, r.Sandbox.Started, want)
		}
	}
}

// testCrossing has another session and a store wait for each other's records. The server ends the
// store's transaction, and the store makes it again.
func testCrossing(t *testing.T, server *postgrestest.Server) {
	ctx, name := t.Context(), server.Database(t)
	s := open(t, postgres.Options{URL: server.URL(name), Timeout: time.Minute})
	a, b := statetest.Record(time.Now()), statetest.Record(time.Now())
	both := state.Change{Put: []state.Record{a, b}}
	if err := s.Apply(ctx, both); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(ctx, server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(ctx)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := other.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	const touch = "UPDATE carrel.sandboxes SET started = started + 1 WHERE id = $1"
	exec("SET deadlock_timeout = '5min'") // the store's session finds it
	exec("BEGIN")
	exec(touch, []byte(b.Sandbox.ID))
	done := make(chan error, 1)
	go func() { done <- s.Apply(ctx, both) }()
	testenv.Eventually(t, "the store waits", func() bool {
		return server.Exec(t, name, "SELECT count(*) FROM pg_locks WHERE NOT granted") != "0"
	})
	exec(touch, []byte(a.Sandbox.ID)) // waits for the store, which waits for this session
	exec("COMMIT")
	if err := <-done; err != nil {
		t.Error(err)
	}
	testenv.Eventually(t, "the server counts what it ended", func() bool {
		return server.Exec(t, name, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == "1"
	})
	if all, err := s.Sandboxes(ctx); err != nil || len(all) != 2 || !all[0].Sandbox.Started.Equal(a.Sandbox.Started) {
		t.Errorf("%+v, %v", all, err)
	}
}

// BenchmarkPut measures one durable write.
func BenchmarkPut(b *testing.B) {
	server := postgrestest.Start(b)
	for name, parallel := range map[string]bool{"alone": false, "parallel": true} {
		b.Run(name, func(b *testing.B) {
			s := open(b, postgres.Options{URL: server.URL(server.Database(b))})
			put := func() {
				if err := s.PutSandbox(b.Context(), statetest.Record(time.Now())); err != nil {
					b.Error(err)
				}
			}
			if !parallel {
				for b.Loop() {
					put()
				}
				return
			}
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					put()
				}
			})
		})
	}
}

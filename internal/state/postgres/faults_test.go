package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/postgres"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
	"github.com/carrel-dev/carrel/internal/state/statetest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// bound is longer than a call takes whose store has the timeout hasty, on a loaded machine.
const (
	hasty = 400 * time.Millisecond
	bound = 15 * time.Second
)

// unavailable calls fn and fails the test unless it says in bounded time that the database does not
// answer.
func unavailable(t *testing.T, what string, fn func() error) error {
	t.Helper()
	start := time.Now()
	err := fn()
	if took := time.Since(start); took > bound {
		t.Errorf("%s took %v", what, took)
	}
	if carrel.KindOf(err) != carrel.Unavailable || carrel.HintOf(err) == "" {
		t.Errorf("%s: %v, hint %q; want Unavailable with a hint", what, err, carrel.HintOf(err))
	}
	return err
}

// one is a change that must happen as a whole.
func one() state.Change {
	r := statetest.Record(time.Now())
	snap := statetest.SnapshotRecord(r, time.Now())
	r.Paused = snap.Snapshot.ID
	return state.Change{Put: []state.Record{r}, PutSnapshots: []state.SnapshotRecord{snap}}
}

// whole fails the test if a change is there in part.
func whole(t *testing.T, s state.Store) (found map[carrel.ID]bool) {
	t.Helper()
	all, err := s.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	snaps, err := s.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(snaps) {
		t.Errorf("%d records and %d snapshots", len(all), len(snaps))
	}
	have := map[carrel.SnapshotID]bool{}
	for _, r := range snaps {
		have[r.Snapshot.ID] = true
	}
	found = map[carrel.ID]bool{}
	for _, r := range all {
		found[r.Sandbox.ID] = true
		if !have[r.Paused] {
			t.Errorf("%s has no snapshot", r.Sandbox.ID)
		}
	}
	return found
}

// numbered fails the test unless the events have the numbers from 1 to n, and each its own message.
func numbered(t *testing.T, s state.Store, n int) {
	t.Helper()
	all, err := s.Events(t.Context(), "", 0, 10_000)
	if err != nil || len(all) != n {
		t.Errorf("%d events, %v; want %d", len(all), err, n)
	}
	seen := map[string]bool{}
	for i, e := range all {
		if e.Seq != int64(i+1) || seen[e.Message] {
			t.Errorf("event %d has number %d and message %q", i, e.Seq, e.Message)
		}
		seen[e.Message] = true
	}
}

// TestKilledServer kills the server with SIGKILL, twice, in the middle of 1,000 writes, and starts
// it again. No acknowledged write is lost, no refused one is there, and none happens in part or
// twice.
func TestKilledServer(t *testing.T) {
	server := postgrestest.Start(t)
	s := open(t, postgres.Options{URL: server.URL(server.Database(t)), Timeout: time.Minute})
	const writers, each = 10, 50 // each round makes a change and an event
	var acked, asked atomic.Int64
	var mu sync.Mutex
	done, refused := map[carrel.ID]bool{}, map[carrel.ID]bool{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				c := one()
				asked.Add(1)
				err := s.Apply(t.Context(), c)
				mu.Lock()
				switch {
				case err == nil:
					done[c.Put[0].Sandbox.ID] = true
				case !errors.Is(err, state.ErrUnknown):
					refused[c.Put[0].Sandbox.ID] = true
				}
				mu.Unlock()
				if err != nil {
					t.Logf("a change: %v", err)
				}
				e, err := s.AppendEvent(t.Context(), carrel.Event{Time: time.Now(), Type: "x", Message: fmt.Sprint(w, "/", i)})
				if err != nil {
					t.Errorf("an event in the time that a restart takes: %v", err)
				}
				if e.Seq > 0 {
					acked.Add(2)
				}
			}
		})
	}
	for _, at := range []int64{200, 600} {
		testenv.Eventually(t, "some writes are acknowledged", func() bool { return acked.Load() >= at })
		server.Kill()
		server.Run(t)
	}
	wg.Wait()
	found := whole(t, s)
	for id := range done {
		if !found[id] {
			t.Errorf("the acknowledged %s is lost", id)
		}
	}
	for id := range refused {
		if found[id] {
			t.Errorf("%s is there, and its write had an error", id)
		}
	}
	numbered(t, s, writers*each)
	t.Logf("%d changes acknowledged of %d, %d refused", len(done), asked.Load(), len(refused))
}

// TestAway stops the server, and freezes it. Each call says so in bounded time, writes nothing, and
// works when the server is back.
func TestAway(t *testing.T) {
	server := postgrestest.Start(t)
	url := server.URL(server.Database(t))
	s := open(t, postgres.Options{URL: url, Timeout: hasty})
	if err := s.Apply(t.Context(), one()); err != nil {
		t.Fatal(err)
	}
	try := func(how string) {
		for what, fn := range map[string]func() error{
			"Apply":       func() error { return s.Apply(t.Context(), one()) },
			"PutSandbox":  func() error { return s.PutSandbox(t.Context(), statetest.Record(time.Now())) },
			"AppendEvent": func() error { return second(s.AppendEvent(t.Context(), carrel.Event{})) },
			"GetSandbox":  func() error { return second(s.GetSandbox(t.Context(), carrel.NewID())) },
			"Sandboxes":   func() error { return second(s.Sandboxes(t.Context())) },
			"Events":      func() error { return second(s.Events(t.Context(), "", 0, 1)) },
			"OpenUsage":   func() error { return s.OpenUsage(t.Context(), func(state.Usage) error { return nil }) },
			"Get":         func() error { return second(s.Leases().Get(t.Context(), carrel.NewID())) },
			"Acquire":     func() error { return second(s.Leases().Acquire(t.Context(), carrel.NewID(), "n", time.Minute)) },
			"Open": func() error {
				return second(postgres.Open(t.Context(), postgres.Options{URL: url, Timeout: hasty}))
			},
		} {
			err := unavailable(t, how+": "+what, fn)
			if errors.Is(err, state.ErrUnknown) && what != "Acquire" {
				t.Errorf("%s: %s had not begun: %v", how, what, err)
			}
		}
	}
	server.Stop()
	try("stopped")
	server.Run(t)
	testenv.EventuallyNil(t, "the store works again", func() error { return second(s.Sandboxes(t.Context())) })
	if err := s.Apply(t.Context(), one()); err != nil {
		t.Errorf("with the server back: %v", err)
	}
	server.Freeze()
	try("frozen")
	server.Thaw()
	testenv.EventuallyNil(t, "the store works again", func() error { return second(s.Sandboxes(t.Context())) })
	patient := open(t, postgres.Options{URL: url})
	if err := patient.Apply(t.Context(), one()); err != nil {
		t.Errorf("with the server thawed: %v", err)
	}
	if found := whole(t, patient); len(found) != 3 {
		t.Errorf("%d records, want 3", len(found))
	}
	numbered(t, patient, 0)
}

// TestFull takes all connections of the server. A store that has none gets an error, and one that
// has some goes on.
func TestFull(t *testing.T) {
	server := postgrestest.Start(t, "max_connections = 8", "superuser_reserved_connections = 0")
	url := server.URL(server.Database(t))
	s := open(t, postgres.Options{URL: url, Timeout: hasty, Conns: 1})
	if err := s.Apply(t.Context(), one()); err != nil {
		t.Fatal(err)
	}
	whole(t, s) // now it has both connections
	var taken []*pgx.Conn
	for {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			break
		}
		taken = append(taken, c)
	}
	if len(taken) != 6 {
		t.Errorf("%d connections are free", len(taken))
	}
	unavailable(t, "Open", func() error {
		return second(postgres.Open(t.Context(), postgres.Options{URL: url, Timeout: hasty}))
	})
	if err := s.Apply(t.Context(), one()); err != nil {
		t.Errorf("the store with its connections: %v", err)
	}
	for _, c := range taken {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	testenv.EventuallyNil(t, "there is room again", func() error {
		s, err := postgres.Open(t.Context(), postgres.Options{URL: url, Timeout: hasty})
		if err != nil {
			return err
		}
		return s.Close()
	})
}

// testSlow has another session hold a lock for too long. Calls end in bounded time, without a part
// of their change.
func testSlow(t *testing.T, server *postgrestest.Server) {
	url := server.URL(server.Database(t))
	s := open(t, postgres.Options{URL: url, Timeout: hasty})
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	exec := func(sql string) {
		t.Helper()
		if _, err := other.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("BEGIN; LOCK TABLE carrel.snapshots") // after the records, in a change
	lost := unavailable(t, "Apply", func() error { return s.Apply(t.Context(), one()) })
	if errors.Is(lost, state.ErrUnknown) {
		t.Errorf("it never came to the commit: %v", lost)
	}
	unavailable(t, "Snapshots", func() error { return second(s.Snapshots(t.Context())) })
	if err := s.PutSandbox(t.Context(), statetest.Record(time.Now())); err != nil {
		t.Errorf("a write to another table: %v", err)
	}
	exec("ROLLBACK")
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d records, %v; want the one of the other table", len(all), err)
	}
	if err := s.Apply(t.Context(), one()); err != nil {
		t.Errorf("with the lock gone: %v", err)
	}
}

// testOneRefused has many writers at once, and the server refuses some of their writes. The others
// are written.
func testOneRefused(t *testing.T, server *postgrestest.Server) {
	name := server.Database(t)
	s := open(t, postgres.Options{URL: server.URL(name)})
	server.Exec(t, name, `CREATE FUNCTION carrel.no() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN IF new.id = 'bad' THEN RAISE EXCEPTION 'no'; END IF; RETURN new; END $$;
		CREATE TRIGGER no BEFORE INSERT ON carrel.sandboxes FOR EACH ROW EXECUTE FUNCTION carrel.no()`)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			r := statetest.Record(time.Now())
			if i%10 == 0 {
				r.Sandbox.ID = "bad"
				c := state.Change{Put: []state.Record{statetest.Record(time.Now()), r}}
				if err := s.Apply(t.Context(), c); carrel.KindOf(err) != carrel.Internal {
					t.Errorf("the refused write: %v", err)
				}
			} else if err := s.PutSandbox(t.Context(), r); err != nil {
				t.Errorf("a write beside a refused one: %v", err)
			}
		})
	}
	wg.Wait()
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 54 {
		t.Errorf("%d records, %v; want 54", len(all), err)
	}
}

func second[T any](_ T, err error) error { return err }

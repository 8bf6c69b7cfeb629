package postgres_test

import (
	"errors"
	"strings"
	"sync"
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

// brief is a lease that a test lets expire.
const brief = 50 * time.Millisecond

// nodes opens a store with leases for each of n nodes.
func nodes(t *testing.T, server *postgrestest.Server, n int) []*postgres.Store {
	t.Helper()
	url := server.URL(server.Database(t))
	var list []*postgres.Store
	for range n {
		list = append(list, open(t, postgres.Options{URL: url, Conns: 2}))
	}
	return list
}

// takeOver acquires a lease as soon as the one before has expired.
func takeOver(t *testing.T, l *postgres.Leases, id carrel.ID, node string) (got postgres.Lease) {
	t.Helper()
	testenv.EventuallyNil(t, "the lease expires", func() (err error) {
		got, err = l.Acquire(t.Context(), id, node, time.Minute)
		if err != nil && !errors.Is(err, postgres.ErrHeld) {
			t.Fatal(err)
		}
		return err
	})
	return got
}

// fencedOut fails the test unless err says that a lease is another's now.
func fencedOut(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, postgres.ErrFenced) || carrel.KindOf(err) != carrel.Conflict || carrel.HintOf(err) == "" {
		t.Errorf("%s: %v, want Conflict, ErrFenced and a hint", what, err)
	}
}

// testLeaseRace has owners race for a new lease, again and again. Exactly one wins.
func testLeaseRace(t *testing.T, server *postgrestest.Server) {
	stores := nodes(t, server, 4)
	names := []string{"a", "b", "c", "d"}
	for range 15 {
		id := carrel.NewID()
		got := make([]error, len(stores))
		leases := make([]postgres.Lease, len(stores))
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() { leases[i], got[i] = s.Leases().Acquire(t.Context(), id, names[i], time.Minute) })
		}
		wg.Wait()
		won := -1
		for i, err := range got {
			switch {
			case err == nil && won >= 0:
				t.Errorf("%s and %s both have the lease: %+v %+v", names[won], names[i], leases[won], leases[i])
			case err == nil:
				won = i
			case !errors.Is(err, postgres.ErrHeld) || carrel.KindOf(err) != carrel.Conflict || carrel.RetryAfterOf(err) <= 0:
				t.Errorf("%s: %v, want Conflict, ErrHeld and a time to wait", names[i], err)
			}
		}
		if won < 0 {
			t.Fatalf("nobody has the lease: %v", errors.Join(got...))
		}
		read, err := stores[0].Leases().Get(t.Context(), id)
		if err != nil || read.Node != names[won] || read.Token != leases[won].Token || read.Left <= 0 {
			t.Errorf("%+v, %v; want %+v", read, err, leases[won])
		}
	}
}

// testLeaseTaken stops an owner. Its lease expires and another node takes it. The old owner's
// writes are refused, alone and together with good ones.
func testLeaseTaken(t *testing.T, server *postgrestest.Server) {
	stores := nodes(t, server, 2)
	old, young := stores[0].Leases(), stores[1].Leases()
	ctx, r := t.Context(), statetest.Record(time.Now())
	mine, err := old.Acquire(ctx, r.Sandbox.ID, "old", brief)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Apply(ctx, state.Change{Put: []state.Record{r}}, mine.Fence()); err != nil {
		t.Fatal(err)
	}
	theirs := takeOver(t, young, r.Sandbox.ID, "young")
	if theirs.Token <= mine.Token {
		t.Errorf("token %d after %d", theirs.Token, mine.Token)
	}
	stale := r
	stale.User = "stale"
	fencedOut(t, "the old owner's write", old.Apply(ctx, state.Change{Put: []state.Record{stale}}, mine.Fence()))
	// One old fence among good ones is enough. Nothing of the change happens.
	other, err := old.Acquire(ctx, carrel.NewID(), "old", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fencedOut(t, "with a good fence", old.Apply(ctx, state.Change{Put: []state.Record{statetest.Record(time.Now()), stale}},
		other.Fence(), mine.Fence()))
	_, err = old.Renew(ctx, mine, time.Minute)
	fencedOut(t, "Renew", err)
	fencedOut(t, "Release", old.Release(ctx, mine))
	r.User = "young"
	if err := young.Apply(ctx, state.Change{Put: []state.Record{r}}, theirs.Fence()); err != nil {
		t.Errorf("the new owner's write: %v", err)
	}
	if all, err := stores[0].Sandboxes(ctx); err != nil || len(all) != 1 || all[0].User != "young" {
		t.Errorf("%+v, %v", all, err)
	}
	if now, err := young.Get(ctx, r.Sandbox.ID); err != nil || now.Token != theirs.Token || now.Node != "young" {
		t.Errorf("%+v, %v", now, err)
	}
}

// testLeaseReplay repeats requests with old leases, as a slow network does.
func testLeaseReplay(t *testing.T, server *postgrestest.Server) {
	l := nodes(t, server, 1)[0].Leases()
	ctx, id := t.Context(), carrel.NewID()
	first, err := l.Acquire(ctx, id, "node", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(ctx, id, "other", time.Minute); !errors.Is(err, postgres.ErrHeld) || !strings.Contains(err.Error(), "node") {
		t.Errorf("another node: %v", err)
	}
	second, err := l.Acquire(ctx, id, "node", time.Minute) // the node was started again
	if err != nil || second.Token <= first.Token {
		t.Fatalf("%+v, %v", second, err)
	}
	_, err = l.Renew(ctx, first, time.Hour)
	fencedOut(t, "Renew of an old lease", err)
	fencedOut(t, "Release of an old lease", l.Release(ctx, first))
	for _, token := range []int64{first.Token, second.Token + 1, 0, -1} {
		fencedOut(t, "a write", l.Apply(ctx, state.Change{}, postgres.Fence{Sandbox: id, Token: token}))
	}
	for range 2 { // a repeated release is no error
		if err := l.Release(ctx, second); err != nil {
			t.Error(err)
		}
	}
	fencedOut(t, "a write after the release", l.Apply(ctx, state.Change{}, second.Fence()))
	_, err = l.Renew(ctx, second, time.Minute)
	fencedOut(t, "Renew after the release", err)
	if _, err := l.Get(ctx, id); !errors.Is(err, carrel.NotFound) {
		t.Errorf("Get after the release: %v", err)
	}
	third, err := l.Acquire(ctx, id, "other", time.Minute)
	if err != nil || third.Token <= second.Token {
		t.Errorf("%+v, %v: want a token above %d", third, err, second.Token)
	}
}

// testLeaseClock has nodes whose clocks are an hour wrong, both ways. Leases are the server's.
func testLeaseClock(t *testing.T, server *postgrestest.Server) {
	stores := nodes(t, server, 2)
	late, early := stores[0].Leases(), stores[1].Leases()
	late.SetClock(func() time.Time { return time.Now().Add(-time.Hour) })
	early.SetClock(func() time.Time { return time.Now().Add(time.Hour) })
	ctx, id := t.Context(), carrel.NewID()
	held, err := late.Acquire(ctx, id, "late", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(held.Expires); left < 50*time.Second || left > time.Minute || held.Left > time.Minute {
		t.Errorf("the lease ends in %v: %+v", left, held)
	}
	if until := held.Until.Add(time.Hour); until.After(held.Expires) {
		t.Errorf("its owner believes in it until %v, the server until %v", until, held.Expires)
	}
	if _, err := early.Acquire(ctx, id, "early", time.Minute); !errors.Is(err, postgres.ErrHeld) {
		t.Errorf("a node whose clock is ahead: %v", err)
	}
	if list, err := early.ListExpired(ctx, 0); err != nil || len(list) != 0 {
		t.Errorf("it sees %+v expired, %v", list, err)
	}
	if held, err = late.Renew(ctx, held, brief); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "the lease is listed as expired", func() error {
		list, err := late.ListExpired(ctx, 10)
		if err == nil && (len(list) != 1 || list[0].Sandbox != id || list[0].Left > 0 || list[0].Token != held.Token) {
			err = errors.New("it is not")
		}
		return err
	})
	// Nobody has taken it, so it is still the old owner's.
	if err := late.Apply(ctx, state.Change{}, held.Fence()); err != nil {
		t.Errorf("a write before another acquired it: %v", err)
	}
	if held, err = late.Renew(ctx, held, brief); err != nil {
		t.Errorf("Renew before another acquired it: %v", err)
	}
	if got := takeOver(t, early, id, "early"); got.Token <= held.Token {
		t.Errorf("token %d after %d", got.Token, held.Token)
	}
}

// testLeaseTokens acquires and releases one lease from many nodes. Each token is higher than the
// ones that were given out before its request.
func testLeaseTokens(t *testing.T, server *postgrestest.Server) {
	stores := nodes(t, server, 3)
	id := carrel.NewID()
	var mu sync.Mutex
	var last int64
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			for won := 0; won < 10; {
				mu.Lock()
				before := last
				mu.Unlock()
				got, err := s.Leases().Acquire(t.Context(), id, "node"+string(rune('a'+i)), time.Minute)
				if errors.Is(err, postgres.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				won++
				mu.Lock()
				if got.Token <= before || got.Token <= last {
					t.Errorf("token %d after %d", got.Token, last)
				}
				last = got.Token
				mu.Unlock()
				if err := s.Leases().Release(t.Context(), got); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// testLeaseInvalid passes bad arguments, and names that want to be SQL.
func testLeaseInvalid(t *testing.T, server *postgrestest.Server) {
	s := nodes(t, server, 1)[0]
	l, ctx := s.Leases(), t.Context()
	for _, c := range []struct {
		id   carrel.ID
		node string
		ttl  time.Duration
	}{
		{"", "node", time.Minute}, {"x", "", time.Minute}, {"x", "node", 0}, {"x", "node", -time.Hour},
		{"x", "node", 48 * time.Hour}, {carrel.ID(strings.Repeat("x", 1<<20)), "node", time.Minute},
		{"x", strings.Repeat("x", 1<<20), time.Minute},
	} {
		if _, err := l.Acquire(ctx, c.id, c.node, c.ttl); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%.10q %.10q %v: %v", c.id, c.node, c.ttl, err)
		}
	}
	for _, text := range nasty {
		if text == "" || len(text) > 1000 {
			continue // refused above
		}
		got, err := l.Acquire(ctx, carrel.ID(text), text, time.Minute)
		if err != nil || string(got.Sandbox) != text || got.Node != text {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if err := l.Release(ctx, got); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(ctx, "x", "node", time.Minute); carrel.KindOf(err) != carrel.Internal {
		t.Errorf("a closed store: %v", err)
	}
}

// testLeaseFence lets an owner write with its fence while another takes the lease over and writes,
// again and again. Once the new owner has the lease, no write of the old one is seen.
func testLeaseFence(t *testing.T, server *postgrestest.Server) {
	stores := nodes(t, server, 2)
	ctx, r := t.Context(), statetest.Record(time.Now())
	id := r.Sandbox.ID
	lease, err := stores[0].Leases().Acquire(ctx, id, "node", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 10 {
		old, now := stores[round%2], stores[(round+1)%2]
		ended := make(chan error, 1)
		go func(fence postgres.Fence) {
			mine := r
			mine.User = "old"
			for {
				if err := old.Leases().Apply(ctx, state.Change{Put: []state.Record{mine}}, fence); err != nil {
					ended <- err
					return
				}
			}
		}(lease.Fence())
		// The same name: it takes over at once.
		if lease, err = now.Leases().Acquire(ctx, id, "node", time.Minute); err != nil {
			t.Fatal(err)
		}
		mine := r
		mine.User = "new"
		if err := now.Leases().Apply(ctx, state.Change{Put: []state.Record{mine}}, lease.Fence()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if got, err := now.GetSandbox(ctx, id); err != nil || got.User != "new" {
				t.Errorf("round %d: the record is %q's, %v", round, got.User, err)
			}
		}
		fencedOut(t, "the old owner", <-ended)
	}
}

// testLeaseHeld holds a fenced write up between the check of its fence and its commit. Nobody
// acquires the lease meanwhile: the write would happen under a new owner.
func testLeaseHeld(t *testing.T, server *postgrestest.Server) {
	ctx, name, r := t.Context(), server.Database(t), statetest.Record(time.Now())
	s := open(t, postgres.Options{URL: server.URL(name), Timeout: time.Minute})
	l := s.Leases()
	lease, err := l.Acquire(ctx, r.Sandbox.ID, "node", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	put := state.Change{Put: []state.Record{r}}
	if err := l.Apply(ctx, put, lease.Fence()); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(ctx, server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(ctx)
	if _, err := other.Exec(ctx, "BEGIN; LOCK TABLE carrel.sandboxes"); err != nil {
		t.Fatal(err)
	}
	waiting := func() string { return server.Exec(t, name, "SELECT count(*) FROM pg_locks WHERE NOT granted") }
	wrote, acquired := make(chan error, 1), make(chan error, 1)
	go func() { wrote <- l.Apply(ctx, put, lease.Fence()) }()
	testenv.Eventually(t, "the write waits", func() bool { return waiting() == "1" })
	go func() { acquired <- second(l.Acquire(ctx, r.Sandbox.ID, "node", time.Minute)) }()
	testenv.Eventually(t, "the acquisition waits, or is over", func() bool { return waiting() == "2" || len(acquired) == 1 })
	if len(acquired) != 0 {
		t.Error("the lease was acquired in the middle of a write with its old fence")
	}
	if _, err := other.Exec(ctx, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-wrote, <-acquired); err != nil {
		t.Error(err)
	}
	fencedOut(t, "the next write", l.Apply(ctx, put, lease.Fence()))
}

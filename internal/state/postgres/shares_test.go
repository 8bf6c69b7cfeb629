package postgres_test

import (
	"errors"
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

// limitOf is a quota of project p.
func limitOf(name carrel.LimitName, n int) []quota.Bound {
	return []quota.Bound{{Holder: carrel.Holder{Project: "p"}, Of: `project "p"`,
		Quota: carrel.Quota{Hard: map[carrel.LimitName]carrel.Milli{name: carrel.Milli(n) * quota.One}}}}
}

// size is one sandbox.
var size = quota.Load{Sandboxes: quota.One, VCPUs: 2 * quota.One, Memory: 512 * quota.One, Disk: 1024 * quota.One}

// take takes a share in project p.
func take(r fleet.Registry, t *testing.T, n int, bounds []quota.Bound) (fleet.Taken, error) {
	t.Helper()
	return r.Take(t.Context(), fleet.Asked{Project: "p", Key: "k", Load: size, Count: n, Creates: 1}, bounds)
}

// full fails the test unless an error says that the limit is used up.
func full(t *testing.T, what string, err error, used int) {
	t.Helper()
	hit := carrel.LimitOf(err)
	if carrel.KindOf(err) != carrel.Exhausted || hit == nil || hit.Used != carrel.Milli(used)*quota.One {
		t.Errorf("%s: %v (%+v), want Exhausted with %d used", what, err, hit, used)
	}
}

// used is how many sandboxes of project p count.
func used(t *testing.T, r fleet.Registry) int {
	t.Helper()
	got, err := r.Used(t.Context(), carrel.Holder{Project: "p"})
	if err != nil {
		t.Fatal(err)
	}
	n := got[carrel.LimitSandboxes]
	if got[carrel.LimitVCPUs] != 2*n || got[carrel.LimitMemory] != 512*n {
		t.Errorf("%v sandboxes with %v", n, got)
	}
	return int(n / quota.One)
}

// testFleetQuotas takes shares, gives them back in all ways, and makes homes of them.
func testFleetQuotas(t *testing.T, server *postgrestest.Server) {
	s := nodes(t, server, 1)[0]
	two := limitOf(carrel.LimitSandboxes, 2)
	r := s.Fleet().Under(func(project, key string) []quota.Bound {
		if project != "p" || key != "k" {
			return nil
		}
		return two
	})
	ctx := t.Context()
	a := enroll(t, r, "a", time.Minute)

	first, err := take(r, t, 2, two)
	if err != nil || len(first.Shares) != 2 {
		t.Fatal(first, err)
	}
	_, err = take(r, t, 1, two)
	full(t, "a third", err, 2)
	if err := r.Drop(ctx, first.Shares[1]); err != nil {
		t.Fatal(err)
	}
	second, err := take(r, t, 1, two)
	if err != nil {
		t.Fatal("after one was given back:", err)
	}

	// The node tells of the sandbox before its front does. It counts once.
	id := carrel.NewID()
	node := fleet.Home{Sandbox: id, Project: "p", State: fleet.Running, Load: size}
	if _, err := r.Claim(ctx, a, node); err != nil {
		t.Fatal(err)
	}
	if n := used(t, r); n != 2 {
		t.Errorf("%d count when the node has told of one", n)
	}
	front := node
	front.Born = &fleet.Born{Key: "k", Repeat: "once", Shares: first.Shares[:1]}
	list, err := r.Claim(ctx, a, front)
	if err != nil || list[0].Key != "k" || list[0].Load != size {
		t.Fatalf("%+v %v", list, err)
	}
	if n := used(t, r); n != 2 {
		t.Errorf("%d count when the front has told of it", n)
	}
	if err := r.Drop(ctx, first.Shares[0]); err != nil { // it is spent: nothing to give back
		t.Fatal(err)
	}
	_, err = take(r, t, 1, two)
	full(t, "beside a home and a share", err, 2)
	// A repetition is told so, whoever asks.
	again, err := r.Take(ctx, fleet.Asked{Project: "p", Key: "k", Load: size, Count: 1, Creates: 1, Repeat: "once"}, two)
	if err != nil || !again.Again || again.Twin != id || again.Refused == nil {
		t.Errorf("%+v %v", again, err)
	}

	// A pause gives the share back, and running again needs one.
	paused := list[0]
	paused.State = fleet.Paused
	if _, err := r.Claim(ctx, a, paused); err != nil {
		t.Fatal(err)
	}
	if n := used(t, r); n != 1 {
		t.Errorf("%d count after a pause", n)
	}
	third, err := take(r, t, 1, two)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Begin(ctx, a, id)
	full(t, "resume", err, 2)
	if h, err := r.Home(ctx, id); err != nil || h.State != fleet.Paused {
		t.Errorf("after the refusal: %v %v", h, err)
	}
	if err := r.Drop(ctx, third.Shares...); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Begin(ctx, a, id); err != nil {
		t.Error(err)
	}
	if _, err := r.Begin(ctx, a, id); err != nil {
		t.Error("again:", err)
	}

	// What moves keeps its share while it is paused.
	if err := r.Keep(ctx, id, time.Minute); err != nil {
		t.Fatal(err)
	}
	now, err := r.Home(ctx, id)
	if now.State = fleet.Paused; err != nil {
		t.Fatal(err)
	}
	if _, err := r.Claim(ctx, a, now); err != nil {
		t.Fatal(err)
	}
	if n := used(t, r); n != 2 {
		t.Errorf("%d count while one moves", n)
	}
	if _, err := r.Begin(ctx, a, id); err != nil {
		t.Error("after the move:", err)
	}
	if err := r.End(ctx, a, id); err != nil {
		t.Fatal(err)
	}
	if err := r.Drop(ctx, second.Shares...); err != nil {
		t.Fatal(err)
	}
	if n := used(t, r); n != 0 {
		t.Errorf("%d count when all has ended", n)
	}
}

// testFleetShares lets shares end whose front died, and homes whose node died.
func testFleetShares(t *testing.T, server *postgrestest.Server) {
	r := nodes(t, server, 1)[0].Fleet()
	ctx := t.Context()
	one := limitOf(carrel.LimitSandboxes, 1)
	dead, err := take(r, t, 1, one)
	if err != nil {
		t.Fatal(err)
	}
	age := func(n int64, by string) {
		t.Helper()
		postgres.Exec(t, r, "UPDATE shares SET began = began - $1::interval, expires = expires - $1::interval WHERE token = $2", by, n)
	}
	age(dead.Shares[0], "10 seconds")
	if err := r.Prolong(ctx, dead.Shares...); err != nil {
		t.Fatal(err)
	}
	age(dead.Shares[0], "10 seconds")
	_, err = take(r, t, 1, one)
	full(t, "beside a share that was prolonged", err, 1)
	age(dead.Shares[0], "6 seconds")
	next, err := take(r, t, 1, one)
	if err != nil {
		t.Fatal("after its front is gone:", err)
	}
	// The front was not dead, only slow. Its sandbox is a fact, and counts.
	a := enroll(t, r, "a", time.Minute)
	if _, err := r.Claim(ctx, a, fleet.Home{Sandbox: carrel.NewID(), Project: "p", State: fleet.Running, Load: size,
		Born: &fleet.Born{Key: "k", Shares: dead.Shares}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Drop(ctx, next.Shares...); err != nil {
		t.Fatal(err)
	}
	_, err = take(r, t, 1, one)
	full(t, "beside what the slow front made", err, 1)
	enroll(t, r, "a", brief)
	expired(t, r, "a")
	if _, err := r.Lose(ctx); err != nil {
		t.Fatal(err)
	}
	if n := used(t, r); n != 0 {
		t.Errorf("%d count after their node died", n)
	}

	// Creations count for a minute, also those of sandboxes that have ended.
	rate := limitOf(carrel.LimitCreates, 4)
	got, err := take(r, t, 3, rate) // the slow front's is one already
	if err != nil {
		t.Fatal(err)
	}
	_, err = take(r, t, 1, rate)
	full(t, "creations", err, 4)
	if after := carrel.RetryAfterOf(err); after <= 0 || after > time.Minute {
		t.Errorf("again after %v", after)
	}
	age(dead.Shares[0], "1 minute")
	if _, err := take(r, t, 1, rate); err != nil {
		t.Error("when a minute has passed:", err)
	}
	for _, n := range got.Shares {
		age(n, "3 minutes")
	}
	if _, err := r.Lose(ctx); err != nil { // tidies
		t.Fatal(err)
	}
	// Other numbers, and a key's own limit.
	_, err = take(r, t, 3, limitOf(carrel.LimitVCPUs, 5))
	full(t, "processors", err, 2) // the one that was last taken
	key := limitOf(carrel.LimitMemory, 1024)
	key[0].Key = "other"
	if _, err := r.Take(ctx, fleet.Asked{Project: "p", Key: "other", Load: size, Count: 2, Creates: 1}, key); err != nil {
		t.Error("another key's limit:", err)
	}
}

// testFleetQuotaRace has fronts race for the last shares, while others give back, make homes and
// resume. Nobody passes the limit.
func testFleetQuotaRace(t *testing.T, server *postgrestest.Server) {
	stores := nodes(t, server, 4)
	const limit = 5
	five := limitOf(carrel.LimitSandboxes, limit)
	quotas := func(string, string) []quota.Bound { return five }
	r := stores[0].Fleet()
	a := enroll(t, r, "a", time.Minute)
	var mu sync.Mutex
	most, made, refused := 0, 0, 0
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			r := stores[i%len(stores)].Fleet().Under(quotas)
			for round := range 6 {
				got, err := take(r, t, 1, five)
				if carrel.KindOf(err) == carrel.Exhausted {
					mu.Lock()
					refused++
					mu.Unlock()
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				id := carrel.NewID()
				h := fleet.Home{Sandbox: id, Project: "p", State: fleet.Running, Load: size}
				_, nerr := r.Claim(t.Context(), a, h) // the node's
				h.Born = &fleet.Born{Shares: got.Shares}
				list, ferr := r.Claim(t.Context(), a, h)
				if err := errors.Join(nerr, ferr); err != nil {
					t.Error(err)
					return
				}
				n := used(t, r)
				mu.Lock()
				most, made = max(most, n), made+1
				mu.Unlock()
				if round%2 == 0 {
					pause := list[0]
					pause.State = fleet.Paused
					_, perr := r.Claim(t.Context(), a, pause)
					_, berr := r.Begin(t.Context(), a, id)
					if perr != nil || berr != nil && carrel.KindOf(berr) != carrel.Exhausted {
						t.Error(perr, berr)
					}
				}
				if err := r.End(t.Context(), a, id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most > limit {
		t.Errorf("%d at once, of %d", most, limit)
	}
	if made < limit || refused == 0 {
		t.Errorf("%d made, %d refused", made, refused)
	}
	testenv.EventuallyNil(t, "all is given back", func() error {
		if n := used(t, r); n != 0 {
			return errors.New("some count still")
		}
		return nil
	})
}

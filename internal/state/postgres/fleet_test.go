package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/state/postgres"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// enroll makes a node a member.
func enroll(t *testing.T, r fleet.Registry, name string, lease time.Duration) fleet.Member {
	t.Helper()
	if err := r.Admit(t.Context(), name, []byte("public key of "+name)); err != nil {
		t.Fatal(err)
	}
	n, err := r.Enroll(t.Context(), fleet.Node{Name: name, URL: "https://" + name + ".example.com", Key: "k",
		Public: []byte("public key of " + name)}, lease)
	if err != nil {
		t.Fatal(err)
	}
	if n.Token == 0 || !n.Alive() || n.Left > lease {
		t.Fatalf("%v: token %d, %v left", n, n.Token, n.Left)
	}
	return fleet.Member{Name: name, Token: n.Token}
}

// claim makes a member the home of a new sandbox.
func claim(t *testing.T, r fleet.Registry, m fleet.Member, s fleet.State) fleet.Home {
	t.Helper()
	id := carrel.NewID()
	list, err := r.Claim(t.Context(), m, fleet.Home{Sandbox: id, Project: "p", State: s})
	if err != nil || len(list) != 1 || list[0].Sandbox != id || list[0].Node != m.Name || list[0].State != s {
		t.Fatalf("%v %v", list, err)
	}
	return list[0]
}

// refusedFor fails the test unless err is a Conflict with a reason.
func refusedFor(t *testing.T, what string, err, reason error) {
	t.Helper()
	if !errors.Is(err, reason) || carrel.KindOf(err) != carrel.Conflict {
		t.Errorf("%s: %v, want Conflict and %q", what, err, reason)
	}
}

// expired waits until a node's lease has ended by the server's clock.
func expired(t *testing.T, r fleet.Registry, name string) {
	t.Helper()
	testenv.EventuallyNil(t, "the lease of "+name+" expires", func() error {
		nodes, err := r.Nodes(t.Context())
		for _, n := range nodes {
			if n.Name == name && n.Alive() {
				return fmt.Errorf("%v has %v left", n, n.Left)
			}
		}
		return err
	})
}

// testFleetMembers has nodes join, come back, and take others' names.
func testFleetMembers(t *testing.T, server *postgrestest.Server) {
	r := nodes(t, server, 1)[0].Fleet()
	ctx := t.Context()
	a := enroll(t, r, "a", time.Minute)
	again := enroll(t, r, "a", time.Minute)
	if again.Token <= a.Token {
		t.Errorf("the second start has token %d, the first %d", again.Token, a.Token)
	}
	_, err := r.Renew(ctx, a, time.Minute)
	refusedFor(t, "the first start renews", err, fleet.ErrFenced)
	_, err = r.Claim(ctx, a, fleet.Home{Sandbox: carrel.NewID(), State: fleet.Running})
	refusedFor(t, "the first start claims", err, fleet.ErrFenced)
	if n, err := r.Renew(ctx, again, time.Hour); err != nil || n.Left <= time.Minute || n.Key != "k" {
		t.Errorf("%v %v", n, err)
	}
	_, err = r.Enroll(ctx, fleet.Node{Name: "a", URL: "https://evil.example.com", Public: []byte("another")}, time.Minute)
	refusedFor(t, "another machine takes the name", err, fleet.ErrHeld)
	refusedFor(t, "another machine asks for the name", r.Admit(ctx, "a", []byte("another")), fleet.ErrHeld)

	if err := r.Drain(ctx, "a", true); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Renew(ctx, again, time.Minute); err != nil || !n.Draining {
		t.Errorf("%+v %v, want draining", n, err)
	}
	if err := r.Drain(ctx, "nobody", true); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("drain an unknown node: %v", err)
	}
	refusedFor(t, "remove a node that lives", r.Remove(ctx, "a", true), fleet.ErrHeld)

	h := claim(t, r, enroll(t, r, "b", time.Minute), fleet.Running)
	b := enroll(t, r, "b", brief)
	expired(t, r, "b")
	refusedFor(t, "remove a home", r.Remove(ctx, "b", false), fleet.ErrHeld)
	if err := r.Remove(ctx, "b", true); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Home(ctx, h.Sandbox); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("the home of a removed node: %v", err)
	}
	_, err = r.Renew(ctx, b, time.Minute)
	refusedFor(t, "a removed node renews", err, fleet.ErrFenced)
	_, err = r.Enroll(ctx, fleet.Node{Name: "b", Public: []byte("public key of b")}, time.Minute)
	if carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("a removed node enrolls with its old certificate: %v", err)
	}

	first := fleet.Authority{Cert: []byte("cert"), Key: []byte("key")}
	for _, mine := range []fleet.Authority{first, {Cert: []byte("other"), Key: []byte("other")}} {
		if got, err := r.Authority(ctx, mine); err != nil || string(got.Cert) != "cert" || string(got.Key) != "key" {
			t.Errorf("%s %v", got.Cert, err)
		}
	}
}

// testFleetTakeOver has another machine take the name of a node, which it may only when the lease has
// expired. The machine gets none of the homes, and the old one can do nothing in the name any more.
func testFleetTakeOver(t *testing.T, server *postgrestest.Server) {
	r := nodes(t, server, 1)[0].Fleet()
	ctx := t.Context()
	a := enroll(t, r, "a", time.Minute)
	old := enroll(t, r, "b", time.Minute)
	old.Public = []byte("public key of b")
	runs, paused, bare := claim(t, r, old, fleet.Running), claim(t, r, old, fleet.Running), claim(t, r, old, fleet.Paused)
	if err := r.Publish(ctx, old, paused.Sandbox, paused.Token, []byte("a pause"), true); err != nil {
		t.Fatal(err)
	}
	if err := r.Drain(ctx, "b", true); err != nil {
		t.Fatal(err)
	}
	public := []byte("another")
	refusedFor(t, "the name of a node that lives", r.Admit(ctx, "b", public), fleet.ErrHeld)
	if _, err := r.Renew(ctx, old, brief); err != nil {
		t.Fatal(err)
	}
	expired(t, r, "b")
	if err := r.Admit(ctx, "b", public); err != nil {
		t.Fatalf("the name of a node that is gone: %v", err)
	}
	if err := r.Admit(ctx, "b", public); err != nil {
		t.Fatalf("once more: %v", err)
	}
	n, err := r.Enroll(ctx, fleet.Node{Name: "b", URL: "https://new.example.com", Public: public}, time.Minute)
	if err != nil || n.Token <= old.Token || !n.Draining {
		t.Fatalf("%v %v draining: %v", n, err, n.Draining)
	}
	b := fleet.Member{Name: "b", Token: n.Token, Public: public}
	if list, err := r.Homes(ctx, "b"); err != nil || len(list) != 0 {
		t.Fatalf("the new machine has %v %v", list, err)
	}

	// What ran is lost, not the new machine's. What was paused moves, also to the new machine.
	lost, err := r.Lose(ctx)
	if err != nil || len(lost) != 1 || lost[0].Sandbox != runs.Sandbox || lost[0].Node != fleet.Departed("b", old.Token) {
		t.Fatalf("%v %v", lost, err)
	}
	for _, h := range []fleet.Home{runs, paused, bare} {
		if _, err := r.Begin(ctx, b, h.Sandbox); !errors.Is(err, fleet.ErrFenced) {
			t.Errorf("the new machine begins %v: %v", h, err)
		}
		list, err := r.Claim(ctx, b, fleet.Home{Sandbox: h.Sandbox, State: fleet.Running, Token: h.Token})
		if err != nil || len(list) != 1 || list[0].Node != fleet.Departed("b", old.Token) || list[0].Left > 0 {
			t.Errorf("the new machine claims %v: %v %v", h, list, err)
		}
		if err := r.End(ctx, b, h.Sandbox); err != nil {
			t.Error(err)
		}
	}
	if h, err := r.Move(ctx, paused.Sandbox, paused.Token, b); err != nil || h.Node != "b" || string(h.Passport) != "a pause" {
		t.Fatalf("%v %v", h, err)
	}
	_, err = r.Move(ctx, runs.Sandbox, runs.Token, a)
	refusedFor(t, "move what is lost without a checkpoint", err, fleet.ErrHeld)
	// What is lost is told for some days, and what its owner ended is forgotten at once.
	other := claim(t, r, a, fleet.Running)
	postgres.Exec(t, r, "UPDATE homes SET node = convert_to($1, 'UTF8'), state = 'lost', lost = now() - interval '8 days' WHERE sandbox = convert_to($2, 'UTF8')",
		fleet.Departed("b", old.Token), string(other.Sandbox))
	for _, is := range []bool{true, false} {
		if _, err := r.Lose(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Home(ctx, other.Sandbox); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("lost long ago: %v", err)
		}
		if _, err := r.Home(ctx, runs.Sandbox); err == nil != is {
			t.Errorf("lost just now, or ended: %v", err)
		}
		if !is {
			break
		}
		if err := r.Kill(ctx, runs.Sandbox, runs.Token); err != nil {
			t.Fatal(err)
		}
	}

	// The old machine has a certificate of the name, and guesses the number of the new start.
	guess := fleet.Member{Name: "b", Token: n.Token, Public: old.Public}
	_, err = r.Renew(ctx, guess, time.Minute)
	refusedFor(t, "the old machine renews", err, fleet.ErrFenced)
	_, err = r.Claim(ctx, guess, fleet.Home{Sandbox: carrel.NewID(), State: fleet.Running})
	refusedFor(t, "the old machine claims", err, fleet.ErrFenced)
	_, err = r.Begin(ctx, guess, paused.Sandbox)
	refusedFor(t, "the old machine begins", err, fleet.ErrFenced)
	if err := r.End(ctx, guess, paused.Sandbox); err != nil {
		t.Fatal(err)
	}
	if h, err := r.Home(ctx, paused.Sandbox); err != nil || h.Node != "b" {
		t.Errorf("the old machine ended what is the new one's: %v %v", h, err)
	}
	_, err = r.Enroll(ctx, fleet.Node{Name: "b", Public: old.Public}, time.Minute)
	refusedFor(t, "the old machine enrolls", err, fleet.ErrHeld)
	refusedFor(t, "the old machine joins", r.Admit(ctx, "b", old.Public), fleet.ErrHeld)

	// Removing the name for good removes what machines before it had.
	if _, err := r.Renew(ctx, b, brief); err != nil {
		t.Fatal(err)
	}
	expired(t, r, "b")
	if err := r.Remove(ctx, "b", true); err != nil {
		t.Fatal(err)
	}
	for _, h := range []fleet.Home{runs, paused, bare} {
		if _, err := r.Home(ctx, h.Sandbox); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("%v is still known: %v", h, err)
		}
	}
}

// testFleetHomes moves a sandbox, as far as its state and its node's lease allow.
func testFleetHomes(t *testing.T, server *postgrestest.Server) {
	r := nodes(t, server, 1)[0].Fleet()
	ctx := t.Context()
	a, b := enroll(t, r, "a", time.Minute), enroll(t, r, "b", time.Minute)
	h := claim(t, r, a, fleet.Running)

	list, err := r.Claim(ctx, b, fleet.Home{Sandbox: h.Sandbox, Project: "p", State: fleet.Running})
	if err != nil || len(list) != 1 || list[0].Node != "a" || list[0].Token != h.Token {
		t.Fatalf("another node claims it: %v %v", list, err)
	}
	_, err = r.Move(ctx, h.Sandbox, h.Token, b)
	refusedFor(t, "move without a passport", err, fleet.ErrHeld)
	if err := r.Publish(ctx, a, h.Sandbox, h.Token, []byte("a checkpoint"), false); err != nil {
		t.Fatal(err)
	}
	_, err = r.Move(ctx, h.Sandbox, h.Token, b)
	refusedFor(t, "move what runs on a living node", err, fleet.ErrHeld)
	refusedFor(t, "publish another's", r.Publish(ctx, b, h.Sandbox, h.Token, []byte("mine"), true), fleet.ErrFenced)
	if err := r.End(ctx, b, h.Sandbox); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(ctx, a, h.Sandbox, h.Token, []byte("a pause"), true); err != nil {
		t.Fatal(err)
	}
	// The node says that it runs, as it did before the pause: the message was on its way for long.
	list, err = r.Claim(ctx, a, fleet.Home{Sandbox: h.Sandbox, Project: "p", State: fleet.Running, Token: h.Token})
	if err != nil || len(list) != 1 || list[0].State != fleet.Paused || list[0].Passport == nil {
		t.Fatalf("a claim from before the pause: %v %v", list, err)
	}
	moved, err := r.Move(ctx, h.Sandbox, h.Token, b)
	if err != nil || moved.Node != "b" || moved.Token <= h.Token || moved.State != fleet.Moving || string(moved.Passport) != "a pause" {
		t.Fatalf("%v %v", moved, err)
	}
	if err := r.Arrive(ctx, h.Sandbox, moved.Token); err != nil {
		t.Fatal(err)
	}
	_, err = r.Move(ctx, h.Sandbox, h.Token, a)
	refusedFor(t, "move with an old token", err, fleet.ErrFenced)
	_, err = r.Begin(ctx, a, h.Sandbox)
	refusedFor(t, "its old node begins", err, fleet.ErrFenced)
	begun, err := r.Begin(ctx, b, h.Sandbox)
	if err != nil || begun.State != fleet.Running || begun.Token <= moved.Token {
		t.Fatalf("%v %v", begun, err)
	}
	refusedFor(t, "publish the pause before", r.Publish(ctx, b, h.Sandbox, moved.Token, []byte("old"), true), fleet.ErrFenced)

	if got, err := r.Home(ctx, h.Sandbox); err != nil || got.Passport != nil {
		t.Fatalf("%v %v: it runs, and the passport of its pause is still there", got, err)
	}
	if err := r.Publish(ctx, b, h.Sandbox, begun.Token, []byte("a checkpoint"), false); err != nil {
		t.Fatal(err)
	}

	// A claim from before it began to run.
	list, err = r.Claim(ctx, b, fleet.Home{Sandbox: h.Sandbox, State: fleet.Paused, Token: moved.Token})
	if err != nil || list[0].State != fleet.Running || list[0].Passport == nil {
		t.Fatalf("an old claim changed it: %v %v", list, err)
	}

	// The new node dies.
	short := enroll(t, r, "b", brief)
	expired(t, r, "b")
	_, err = r.Begin(ctx, short, h.Sandbox)
	refusedFor(t, "a dead node begins", err, fleet.ErrFenced)
	lost, err := r.Lose(ctx)
	if err != nil || len(lost) != 1 || lost[0].Sandbox != h.Sandbox || lost[0].State != fleet.Lost {
		t.Fatalf("%v %v", lost, err)
	}
	if lost, err := r.Lose(ctx); err != nil || len(lost) != 0 {
		t.Fatalf("lost twice: %v %v", lost, err)
	}
	back, err := r.Move(ctx, h.Sandbox, begun.Token, a)
	if err != nil || back.Node != "a" {
		t.Fatalf("%v %v", back, err)
	}
	list, err = r.Claim(ctx, enroll(t, r, "b", time.Minute), fleet.Home{Sandbox: h.Sandbox, Project: "p", State: fleet.Running, Token: begun.Token})
	if err != nil || len(list) != 1 || list[0].Node != "a" || list[0].State != fleet.Moving {
		t.Fatalf("the dead node comes back: %v %v", list, err)
	}
	if list, err := r.Homes(ctx, "a"); err != nil || len(list) != 1 || list[0].Passport != nil {
		t.Fatalf("%v %v", list, err)
	}
	// It is ended while its node is away, and again.
	refusedFor(t, "kill on a living node", r.Kill(ctx, h.Sandbox, back.Token), fleet.ErrHeld)
	enroll(t, r, "a", brief)
	expired(t, r, "a")
	for range 2 {
		if err := r.Kill(ctx, h.Sandbox, back.Token); err != nil {
			t.Fatal(err)
		}
	}
	a = enroll(t, r, "a", time.Minute)
	list, err = r.Claim(ctx, a, fleet.Home{Sandbox: h.Sandbox, Project: "p", State: fleet.Paused, Token: back.Token})
	if err != nil || list[0].State != fleet.Ended {
		t.Fatalf("its node has it still: %v %v", list, err)
	}
	_, err = r.Begin(ctx, a, h.Sandbox)
	refusedFor(t, "an ended sandbox begins", err, fleet.ErrFenced)
	if err := r.End(ctx, a, h.Sandbox); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Home(ctx, h.Sandbox); carrel.KindOf(err) != carrel.NotFound {
		t.Fatalf("an ended sandbox has a home: %v", err)
	}
}

// testFleetRace has nodes and fronts race for one sandbox: its own node begins to run it, and others
// move it. Whoever wins, the sandbox has one home, and only that one may run it.
func testFleetRace(t *testing.T, server *postgrestest.Server) {
	stores := nodes(t, server, 4)
	names := []string{"a", "b", "c", "d"}
	members := make([]fleet.Member, len(names))
	for i, s := range stores {
		members[i] = enroll(t, s.Fleet(), names[i], time.Minute)
	}
	for range 20 {
		h := claim(t, stores[0].Fleet(), members[0], fleet.Running)
		if err := stores[0].Fleet().Publish(t.Context(), members[0], h.Sandbox, h.Token, []byte("p"), true); err != nil {
			t.Fatal(err)
		}
		errs := make([]error, len(stores))
		var wg sync.WaitGroup
		for i, s := range stores {
			wg.Go(func() {
				if i == 0 {
					_, errs[i] = s.Fleet().Begin(t.Context(), members[0], h.Sandbox)
					return
				}
				_, errs[i] = s.Fleet().Move(t.Context(), h.Sandbox, h.Token, members[i])
			})
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			if err == nil {
				won++
				now, err := stores[i].Fleet().Home(t.Context(), h.Sandbox)
				if err != nil || now.Node != names[i] {
					t.Errorf("%s won, and the home is %v %v", names[i], now, err)
				}
			}
		}
		if won != 1 {
			t.Errorf("%d won: %v", won, errors.Join(errs...))
		}
	}
}

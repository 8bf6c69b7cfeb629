package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/inbox"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func all(carrel.Question) bool { return true }

func ask(sandbox carrel.ID, host string) inbox.Ask {
	return inbox.Ask{Key: "rule", Hold: time.Minute, Question: carrel.Question{Sandbox: sandbox, Project: "p", Host: host, Port: 443, Protocol: "tls"}}
}

func list(b *inbox.Inbox) []carrel.Question { return b.List(context.Background(), 0, 0, all).Questions }

// TestTimeout holds a connection until its time is over, or its context ends.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inbox.New(inbox.Options{})
		began := time.Now()
		r := b.Ask(t.Context(), ask("a", "x.example.com"))
		if r.Allow || !strings.Contains(r.Reason, "nobody answered within 1m0s") || time.Since(began) != time.Minute {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := b.Ask(ctx, ask("a", "x.example.com")); r.Allow || r.Reason == "" {
			t.Errorf("%+v", r)
		}
		if got := list(b); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestHour lets an answer for an hour end after an hour, and with its sandbox.
func TestHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inbox.New(inbox.Options{})
		answered := func(a inbox.Ask) inbox.Reply {
			got := make(chan inbox.Reply, 1)
			go func() { got <- b.Ask(t.Context(), a) }()
			synctest.Wait()
			if _, err := b.Answer(list(b)[0].ID, "Ann", carrel.Answer{Answer: "allow", For: "hour"}, all, nil); err != nil {
				t.Fatal(err)
			}
			return <-got
		}
		if r := answered(ask("a", "x.example.com")); !r.Allow || r.By != "Ann, for an hour" {
			t.Errorf("%+v", r)
		}
		time.Sleep(59 * time.Minute)
		if r := b.Ask(t.Context(), ask("a", "x.example.com")); !r.Allow {
			t.Errorf("in the hour: %+v", r)
		}
		for name, other := range map[string]inbox.Ask{"sandbox": ask("b", "x.example.com"), "host": ask("a", "y.example.com"),
			"rule": func() inbox.Ask { a := ask("a", "x.example.com"); a.Key = "other"; return a }(),
			"port": func() inbox.Ask { a := ask("a", "x.example.com"); a.Port = 80; return a }(),
			"path": func() inbox.Ask { a := ask("a", "x.example.com"); a.Path = "/"; return a }()} {
			if r := b.Ask(t.Context(), other); r.Allow {
				t.Errorf("another %s: %+v", name, r)
			}
		}
		time.Sleep(time.Hour)
		if r := b.Ask(t.Context(), ask("a", "x.example.com")); r.Allow {
			t.Errorf("after the hour: %+v", r)
		}
		answered(ask("a", "x.example.com"))
		b.Forget("a")
		if r := b.Ask(t.Context(), ask("a", "x.example.com")); r.Allow {
			t.Errorf("after the sandbox's end: %+v", r)
		}
	})
}

// TestRace lets people answer at once: one answer counts.
func TestRace(t *testing.T) {
	var told atomic.Int32
	b := inbox.New(inbox.Options{Answered: func(carrel.Question) { told.Add(1) }})
	got := make(chan inbox.Reply, 1)
	go func() { got <- b.Ask(t.Context(), ask("a", "x.example.com")) }()
	testenv.Eventually(t, "the question", func() bool { return len(list(b)) == 1 })
	id := list(b)[0].ID
	var counted, late atomic.Int32
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			a := carrel.Answer{Answer: carrel.AnswerDeny}
			if i%2 == 0 {
				a.Answer = carrel.AnswerAllow
			}
			_, err := b.Answer(id, fmt.Sprint("person ", i), a, all, nil)
			switch carrel.KindOf(err) {
			case carrel.Conflict:
				late.Add(1)
			default:
				if err != nil {
					t.Error(err)
				}
				counted.Add(1)
			}
		})
	}
	wg.Wait()
	r := <-got
	if counted.Load() != 1 || late.Load() != 49 || told.Load() != 1 {
		t.Errorf("%d counted, %d late, %d told", counted.Load(), late.Load(), told.Load())
	}
	_, err := b.Answer(id, "late", carrel.Answer{Answer: "allow"}, all, nil)
	first, _, _ := strings.Cut(r.By, ",")
	if carrel.KindOf(err) != carrel.Conflict || !strings.Contains(err.Error(), first+" has answered already") {
		t.Errorf("%v, the first was %q", err, first)
	}
}

// TestForeign checks that a question of another project is not there, before and after its answer.
func TestForeign(t *testing.T) {
	b := inbox.New(inbox.Options{})
	got := make(chan inbox.Reply, 1)
	go func() { got <- b.Ask(t.Context(), ask("a", "x.example.com")) }()
	testenv.Eventually(t, "the question", func() bool { return len(list(b)) == 1 })
	id := list(b)[0].ID
	other := func(q carrel.Question) bool { return q.Project == "other" }
	for range 2 {
		for _, guess := range []string{id, "", "q", strings.ToUpper(id), id + " "} {
			if _, err := b.Answer(guess, "Eve", carrel.Answer{Answer: "allow"}, other, nil); carrel.KindOf(err) != carrel.NotFound {
				t.Errorf("%q: %v", guess, err)
			}
		}
		_, _ = b.Answer(id, "Ann", carrel.Answer{Answer: "deny"}, all, nil)
	}
	if r := <-got; r.Allow {
		t.Error("it was let out")
	}
}

// TestAlways checks that an answer that can't be a rule leaves the question open.
func TestAlways(t *testing.T) {
	b := inbox.New(inbox.Options{})
	got := make(chan inbox.Reply, 1)
	go func() { got <- b.Ask(t.Context(), ask("a", "x.example.com")) }()
	testenv.Eventually(t, "the question", func() bool { return len(list(b)) == 1 })
	id := list(b)[0].ID
	above := &carrel.Error{Op: "set network", Kind: carrel.Forbidden}
	for _, c := range []struct {
		a    carrel.Answer
		want carrel.Kind
	}{{carrel.Answer{Answer: "allow", For: "always"}, carrel.Forbidden}, {carrel.Answer{Answer: "maybe"}, carrel.Invalid},
		{carrel.Answer{Answer: "allow", For: "day"}, carrel.Invalid}} {
		if _, err := b.Answer(id, "Ann", c.a, all, func(carrel.Question, string) error { return above }); carrel.KindOf(err) != c.want {
			t.Errorf("%+v: %v", c.a, err)
		}
	}
	q, err := b.Answer(id, "Ann", carrel.Answer{Answer: "allow", For: "always"}, all, func(q carrel.Question, key string) error {
		if key != "rule" || q.ID != id {
			t.Errorf("%q, %+v", key, q)
		}
		return nil
	})
	if err != nil || q.Answered == nil || q.Answered.By != "Ann" {
		t.Errorf("%+v, %v", q, err)
	}
	if r := <-got; !r.Allow {
		t.Errorf("%+v", r)
	}
}

// TestBounds fills the inbox. What is above a bound is refused at once.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inbox.New(inbox.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var refused atomic.Int32
		for i := range 200 {
			wg.Go(func() {
				if r := b.Ask(ctx, ask("a", fmt.Sprintf("x%d.example.com", i))); strings.Contains(r.Reason, "of the sandbox wait for a person already") {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := len(list(b)); n != 64 || refused.Load() != 136 {
			t.Errorf("%d questions, %d refused", n, refused.Load())
		}
		for s := range 40 {
			for range 64 {
				wg.Go(func() { b.Ask(ctx, ask(carrel.ID(fmt.Sprint("s", s)), "x.example.com")) })
			}
		}
		synctest.Wait()
		held := 0
		for _, q := range list(b) {
			held += q.Waiting
		}
		if held != 1024 {
			t.Errorf("%d connections of one project are held", held)
		}
		cancel()
		wg.Wait()
		if n := len(list(b)); n != 0 {
			t.Errorf("%d questions are left", n)
		}
		// A sandbox that asks and leaves again and again has a rate.
		for i := range 100 {
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			r := b.Ask(short, ask("a", "x.example.com"))
			cancel()
			if strings.Contains(r.Reason, "too many questions") {
				return
			}
			_ = i
		}
		t.Error("a sandbox may ask as fast as it wants")
	})
}

// TestWait waits for a change of the list.
func TestWait(t *testing.T) {
	b := inbox.New(inbox.Options{})
	was := b.List(t.Context(), 0, 0, all)
	go b.Ask(t.Context(), ask("a", "x.example.com"))
	got := b.List(t.Context(), time.Minute, was.Revision, all)
	if len(got.Questions) != 1 || got.Revision == was.Revision {
		t.Errorf("%+v", got)
	}
}

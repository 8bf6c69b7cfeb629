package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is the result of enter, which enters a gate in a goroutine of its own.
type outcome struct {
	pass *Pass
	err  error
	name string
}

func enter(ctx context.Context, g *Gate, name string, r Request, out chan<- outcome) {
	go func() {
		p, err := g.Enter(ctx, r)
		out <- outcome{p, err, name}
	}()
}

func create(sharer string) Request {
	return Request{Op: "create sandbox", Lane: Create, Share: sharer, Class: "c"}
}
func wake(sharer string) Request {
	return Request{Op: "resume sandbox", Lane: Wake, Share: sharer, Class: "r"}
}

// one returns a gate that lets one in at a time.
func one(o Options) *Gate {
	o.Fixed, o.MaxStarting = true, 1
	if o.Stuck == 0 {
		o.Stuck = time.Hour
	}
	return New(o)
}

// TestWakesFirst shows that most wakes go before creations, but not all.
func TestWakesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(Options{MaxWait: time.Hour})
		held, err := g.Enter(t.Context(), create(""))
		if err != nil {
			t.Fatal(err)
		}
		out := make(chan outcome, 100)
		for range 3 {
			enter(t.Context(), g, "c", create(""), out)
		}
		synctest.Wait()
		for range 20 {
			enter(t.Context(), g, "w", wake(""), out)
		}
		synctest.Wait()
		held.Done(nil)
		var order strings.Builder
		for range 23 {
			o := <-out
			if o.err != nil {
				t.Fatal(o.err)
			}
			order.WriteString(o.name)
			o.pass.Done(nil)
			synctest.Wait()
		}
		if want := "wwwwwwwwcwwwwwwwwcwwwwc"; order.String() != want {
			t.Errorf("let in as %s, not %s", order.String(), want)
		}
	})
}

// TestFullQueue shows that a full queue refuses the sharer with the most requests in it, and that
// the error gives the numbers.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(Options{MaxQueued: 4, MaxWait: time.Hour})
		held, _ := g.Enter(t.Context(), create("a"))
		out := make(chan outcome, 100)
		for i := range 4 {
			enter(t.Context(), g, fmt.Sprint("a", i), create("a"), out)
			synctest.Wait()
		}
		_, err := g.Enter(t.Context(), create("a"))
		if carrel.KindOf(err) != carrel.Exhausted || carrel.RetryAfterOf(err) < time.Second {
			t.Errorf("a full queue answers %v, again after %v", err, carrel.RetryAfterOf(err))
		}
		for _, want := range []string{"create sandbox", "4 requests wait", "no more than 4"} {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
		if hint := carrel.HintOf(err); !strings.Contains(hint, "--max-queued") || !strings.Contains(hint, "try again in") {
			t.Errorf("the hint is %q", hint)
		}
		enter(t.Context(), g, "b", create("b"), out)
		o := <-out // whose place it took
		if o.name != "a3" || carrel.KindOf(o.err) != carrel.Exhausted {
			t.Errorf("%s got %v; the newest of the greedy one should have had to leave", o.name, o.err)
		}
		synctest.Wait()
		held.Done(nil)
		if o = <-out; o.name != "b" { // who had nothing yet
			t.Errorf("%s was next", o.name)
		}
		for range 3 {
			o.pass.Done(nil)
			o = <-out
		}
		o.pass.Done(nil)
	})
}

// TestDeadlines shows that a request that can't be served in time is refused at once, and that a
// client that hangs up leaves the queue.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(Options{MaxWait: time.Hour})
		for range 20 { // the gate learns that one takes a second
			p, _ := g.Enter(t.Context(), create(""))
			time.Sleep(time.Second)
			p.Done(nil)
		}
		held, _ := g.Enter(t.Context(), create(""))
		out := make(chan outcome, 10)
		ctx, hangUp := context.WithCancel(t.Context())
		for range 5 {
			enter(ctx, g, "", create(""), out)
		}
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		asked := time.Now()
		_, err := g.Enter(short, create(""))
		if carrel.KindOf(err) != carrel.Exhausted || time.Since(asked) != 0 {
			t.Errorf("after %v: %v", time.Since(asked), err)
		}
		if d := carrel.RetryAfterOf(err); d < 4*time.Second || d > 7*time.Second {
			t.Errorf("to be tried again after %v, where five that take a second each wait", d)
		}
		hangUp()
		for range 5 {
			if o := <-out; !errors.Is(o.err, context.Canceled) {
				t.Errorf("one that hung up: %v", o.err)
			}
		}
		if s := g.State(); s.Creates != 0 || s.Left != 5 {
			t.Errorf("they are still there: %+v", s)
		}
		held.Done(nil)
	})
}

// TestMaxWait shows that nobody waits for ever when the pass inside does not end.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(Options{MaxWait: 5 * time.Second})
		held, _ := g.Enter(t.Context(), create(""))
		asked := time.Now()
		_, err := g.Enter(t.Context(), create(""))
		if carrel.KindOf(err) != carrel.Exhausted || time.Since(asked) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(asked), err)
		}
		held.Done(nil)
	})
}

// TestStuck shows that passes which wait for something else do not keep others out for ever.
// MaxStarting still holds.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Processors: 1, MaxStarting: 5, Stuck: 2 * time.Second, MaxWait: time.Minute})
		out := make(chan outcome, 10)
		for range 8 {
			enter(t.Context(), g, "", create(""), out)
		}
		synctest.Wait()
		first := g.State().Starting
		time.Sleep(10 * time.Second)
		if s := g.State(); first != 4 || s.Starting != 5 {
			t.Errorf("%d inside at first, then %d; want 4 and 5", first, s.Starting)
		}
		for range 8 {
			o := <-out
			o.pass.Done(nil)
			o.pass.Done(nil) // does nothing
		}
		if s := g.State(); s.Starting != 0 || s.Stuck != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

// TestInside shows that work under a pass needs no other pass.
func TestInside(t *testing.T) {
	g := one(Options{})
	p, err := g.Enter(t.Context(), create(""))
	if err != nil {
		t.Fatal(err)
	}
	ctx := Inside(t.Context(), p)
	q, err := g.Enter(ctx, create(""))
	if err != nil {
		t.Fatal(err)
	}
	r, err := g.Enter(Inside(ctx, q), create(""))
	if err != nil {
		t.Fatal(err)
	}
	r.Done(nil)
	q.Done(nil)
	if g.State().Starting != 1 {
		t.Error("the inner pass gave the outer one's place away")
	}
	p.Done(nil)
}

// TestClose shows that a closed gate refuses waiting and later requests.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(Options{})
		held, _ := g.Enter(t.Context(), create(""))
		out := make(chan outcome, 10)
		enter(t.Context(), g, "", create("a"), out)
		enter(t.Context(), g, "", wake("b"), out)
		synctest.Wait()
		over := errors.New("over")
		g.Close(over)
		for range 2 {
			if o := <-out; !errors.Is(o.err, over) {
				t.Error(o.err)
			}
		}
		held.Done(nil)
		if _, err := g.Enter(t.Context(), create("")); !errors.Is(err, over) {
			t.Error(err)
		}
	})
}

// TestHammer shows that the counts stay right when everything happens at once.
func TestHammer(t *testing.T) {
	g := New(Options{Processors: 1, MaxStarting: 4, MaxQueued: 20, MaxWait: time.Minute, Stuck: time.Millisecond})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+j)%3 == 0 {
					go cancel()
				}
				r := create(fmt.Sprint(i % 3))
				if j%5 == 0 {
					r.Lane = Wake
				}
				if p, err := g.Enter(ctx, r); err == nil {
					p.Done(context.Cause(ctx))
				}
				cancel()
			}
		})
	}
	wg.Wait()
	s := g.State()
	if s.Starting != 0 || s.Stuck != 0 || s.Wakes+s.Creates != 0 || s.Tenants != 0 {
		t.Errorf("left: %+v", s)
	}
}

// TestHost shows that the error for each missing resource gives its numbers and a remedy.
func TestHost(t *testing.T) {
	good := Machine{Memory: 8 << 30, MemoryTotal: 16 << 30, Disk: 1 << 40, DiskTotal: 2 << 40, Files: 10000, FilesTotal: 20000, Tasks: 30000, TasksTotal: 32768, TasksBound: "kernel.pid_max"}
	for _, c := range []struct {
		name, field, says string
		change            func(*Machine)
		starting          int
		committed         int
	}{
		{name: "room", change: func(*Machine) {}},
		{name: "nothing known", change: func(m *Machine) { *m = Machine{} }},
		{name: "memory", field: "memory", says: "700 MiB of memory left of 16.0 GiB", change: func(m *Machine) { m.Memory = 700 << 20 }},
		{name: "memory for those starting", field: "memory", says: "200 that are just starting", starting: 200, change: func(*Machine) {}},
		{name: "limits", field: "memory", says: "32768 MiB, is the most", committed: 32768, change: func(*Machine) {}},
		{name: "inodes", field: "inodes", says: "has 100 inodes left of 1000",
			change: func(m *Machine) { m.Inodes, m.InodesTotal = 100, 1000 }},
		{name: "disk", field: "disk", says: "has 100 MiB left", change: func(m *Machine) { m.Disk = 100 << 20 }},
		{name: "files", field: "files", says: "30 descriptors are left of the 20000", change: func(m *Machine) { m.Files = 30 }},
		{name: "tasks", field: "tasks", says: "may run 32768 processes and threads (kernel.pid_max), has 8200 left", change: func(m *Machine) { m.Tasks = 8200 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := good
			c.change(&m)
			h := NewHost(HostOptions{Dir: "/data", Overcommit: 2, Committed: func() int { return c.committed },
				Read: func(string) (Machine, error) { return m, nil }})
			err := h.Check(Request{Op: "create sandbox", MemoryMB: 100}, c.starting)
			var ce *carrel.Error
			if errors.As(err, &ce); c.field == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if ce == nil || ce.Kind != carrel.Unavailable || ce.Field != c.field || ce.Hint == "" || ce.RetryAfter == 0 {
				t.Fatalf("%#v", ce)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q does not say %q", err, c.says)
			}
		})
	}
}

// TestSpare shows that spare work is let in only while nobody waits. It counts as inside. If the
// machine refuses it, that does not count as a refusal.
func TestSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full error
		g := one(Options{MaxWait: time.Hour, Check: func(Request, int) error { return full }})
		p, err := g.Spare(create("me"))
		if err != nil || g.State().Starting != 1 {
			t.Fatalf("%v, %+v", err, g.State())
		}
		if _, err := g.Spare(create("me")); !errors.Is(err, ErrBusy) {
			t.Errorf("beside another: %v", err)
		}
		out := make(chan outcome, 2)
		enter(t.Context(), g, "a", create("a"), out)
		enter(t.Context(), g, "b", create("b"), out)
		synctest.Wait()
		if g.State().Creates != 2 {
			t.Errorf("%+v", g.State())
		}
		p.Done(nil)
		first := <-out
		if _, err := g.Spare(create("me")); !errors.Is(err, ErrBusy) {
			t.Errorf("while one waits: %v", err)
		}
		first.pass.Done(nil)
		(<-out).pass.Done(nil)
		full = &carrel.Error{Kind: carrel.Unavailable, Field: "memory"}
		if _, err := g.Spare(create("me")); !errors.Is(err, carrel.Unavailable) || errors.Is(err, ErrBusy) || g.State().Refused != 0 {
			t.Errorf("without room: %v, %+v", err, g.State())
		}
		full = nil
		if p, err = g.Spare(create("me")); err != nil {
			t.Fatal(err)
		}
		p.Done(nil)
		g.Close(carrel.Unavailable)
		if _, err := g.Spare(create("me")); err == nil || errors.Is(err, ErrBusy) {
			t.Errorf("closed: %v", err)
		}
	})
}

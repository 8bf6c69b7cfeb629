package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// trial is one run of one kind of fault.
type trial struct {
	tb   testing.TB // for real servers that tests share; the oracle itself never uses it
	name string
	seed uint64
	rng  *rand.Rand
	dir  string // of everything that it makes
	ctx  context.Context
	j    *journal

	patch   string // fail points of its daemons; "": the built binary runs
	servers int
	calm    atomic.Bool // no fault is under way: an operation that fails is a violation
	dark    atomic.Bool // the power is off: an answer that comes now would never have come
	ops     atomic.Int64
	faults  int
	tiers   []carrel.Tier
	wanted  []content // of a copy's sandboxes, whose IDs are not known

	mu         sync.Mutex
	violations []string
	own        string // why the trial itself failed
	notes      []string
	cleanups   []func()
	marks      map[string][]string // of data directories that were seen
	skipped    string
}

// kind is a kind of trial.
type kind struct {
	name  string
	short bool // it is part of the short form
	run   func(*trial)
}

// abort ends a trial from inside.
type abort struct{}

// violate writes a broken promise down. The trial goes on.
func (t *trial) violate(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.violations = append(t.violations, fmt.Sprintf(format, args...))
}

// fatalf is violate, and ends the trial. Only the trial's own goroutine may call it.
func (t *trial) fatalf(format string, args ...any) {
	t.violate(format, args...)
	panic(abort{})
}

// skip ends a trial that this machine can't run.
func (t *trial) skip(why string) {
	t.skipped = why
	panic(abort{})
}

// giveUp ends a trial that can't do its own part, such as one that finds no memory for its
// sandboxes. It says nothing about the daemon's promises. Only the trial's own goroutine may call
// it.
func (t *trial) giveUp(format string, args ...any) {
	t.mu.Lock()
	t.own = cmp.Or(t.own, fmt.Sprintf(format, args...))
	t.mu.Unlock()
	panic(abort{})
}

// check ends the trial for an error of the suite's own.
func (t *trial) check(err error) {
	if err != nil {
		t.giveUp("%v\n%s", err, debug.Stack())
	}
}

// must returns a value, or ends the trial for an error of the suite's own.
func (t *trial) must(s string, err error) string {
	t.check(err)
	return s
}

// note adds a remark to the trial's line.
func (t *trial) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// later adds a step of the clean-up. Steps run in reverse order.
func (t *trial) later(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, fn)
}

// result is how a trial ended.
type result struct {
	violations []string
	own        string // why the trial itself failed; "" if it did not
	skipped    string
	line       string
	kept       string // the directory of a trial that failed; "" if it was removed
}

// runTrial runs one trial, and removes what it made. The directory of a failed trial stays.
func runTrial(tb testing.TB, k kind, seed uint64, patch string) result {
	ctx, cancel := context.WithTimeout(tb.Context(), 15*time.Minute)
	defer cancel()
	t := &trial{tb: tb, name: k.name, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), ctx: ctx,
		j: newJournal(), patch: patch}
	t.tiers = []carrel.Tier{carrel.GVisor, carrel.NS, carrel.Sim}
	var err error
	if t.dir, err = os.MkdirTemp("", "carrel-chaos-"); err != nil {
		tb.Fatal(err)
	}
	begin := time.Now()
	func() {
		defer func() {
			if p := recover(); p != nil {
				if _, ok := p.(abort); !ok {
					t.own = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
				}
			}
		}()
		k.run(t)
	}()
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
	r := result{violations: t.violations, own: t.own, skipped: t.skipped}
	word, rest := "ok", ""
	switch {
	case len(r.violations) > 0:
		word = "FAIL"
		rest = fmt.Sprintf(", %d violations, kept in %s", len(r.violations), t.dir)
	case r.own != "":
		word = "none"
		rest = ", the trial itself failed and shows nothing, kept in " + t.dir
	case r.skipped != "":
		word, rest = "skip", ": "+r.skipped
	}
	for _, n := range t.notes {
		rest += ", " + n
	}
	r.line = fmt.Sprintf("%-4s %-14s seed=%d, %d operations, %d faults, %.1fs%s", word, k.name, seed,
		t.ops.Load(), t.faults, time.Since(begin).Seconds(), rest)
	good := len(r.violations) == 0 && r.own == ""
	if good || patch != "" || k.name == "oracle" { // those are wanted
		_ = os.RemoveAll(t.dir)
	} else {
		r.kept = t.dir
		_ = os.WriteFile(filepath.Join(t.dir, "violations.txt"),
			[]byte(r.line+"\n"+join(r.violations)+r.own), 0o600)
	}
	return r
}

// rounds is how often a trial repeats its fault: n times, but once in the short form.
func rounds(n int) int {
	if testing.Short() {
		return 1
	}
	return n
}

// together lets the tests of the short form run at the same time: they mostly wait.
func together(t *testing.T) {
	if testing.Short() {
		t.Parallel()
	}
}

func join(list []string) (out string) {
	for _, s := range list {
		out += "  " + s + "\n"
	}
	return out
}

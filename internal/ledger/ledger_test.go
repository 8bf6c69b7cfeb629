package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ledger"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/memory"
)

// world is a store, clocks that tests set, and the ledgers of one daemon after another.
type world struct {
	t     *testing.T
	store *flaky
	*ledger.Ledger
	records state.Store

	mu    sync.Mutex
	now   ledger.Moment
	opts  ledger.Options
	truth map[carrel.ID]time.Duration // how long each sandbox really ran
	runs  map[carrel.ID]bool
	recs  map[carrel.ID]state.Record
}

// flaky is a store whose writes fail on request: before or after they were made.
type flaky struct {
	state.Store
	before, after error
}

func (f *flaky) Apply(ctx context.Context, c state.Change) error {
	if f.before != nil {
		return f.before
	}
	return errors.Join(f.Store.Apply(ctx, c), f.after)
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: &flaky{Store: memory.Open()},
		now:   ledger.Moment{Wall: time.Date(2026, 3, 1, 9, 59, 50, 0, time.UTC), Mono: 7*time.Hour + 123456789, Boot: "a"},
		truth: map[carrel.ID]time.Duration{}, runs: map[carrel.ID]bool{}, recs: map[carrel.ID]state.Record{}}
	w.start()
	return w
}

// start begins a new daemon. The one before it, if any, was killed.
func (w *world) start() {
	w.t.Helper()
	o := w.opts
	o.Store, o.Clock = w.store, func() ledger.Moment { w.mu.Lock(); defer w.mu.Unlock(); return w.now }
	l, err := ledger.Open(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Ledger, w.records = l, l.Store()
}

// adopt tells the ledger which sandboxes live.
func (w *world) adopt() {
	for id, runs := range w.runs {
		if runs {
			w.Adopted(id)
		}
	}
}

// pass lets time pass, with heartbeats.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for d > 0 {
		step := min(d, 10*time.Second)
		w.sleep(step)
		if err := w.Tick(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		d -= step
	}
}

// sleep lets time pass without heartbeats.
func (w *world) sleep(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now.Wall, w.now.Mono = w.now.Wall.Add(d), w.now.Mono+d
	for id, runs := range w.runs {
		if runs {
			w.truth[id] += d
		}
	}
}

// step moves the wall clock.
func (w *world) step(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now.Wall = w.now.Wall.Add(d)
}

func (w *world) create(project string, labels map[string]string) carrel.ID {
	rec := state.Record{By: "k-" + project, Sandbox: carrel.Sandbox{ID: carrel.NewID(), Project: project, Template: "base",
		Tier: carrel.Sim, State: carrel.Starting, Metadata: labels, Started: w.now.Wall,
		Limits: carrel.Limits{CPUs: 1.5, MemoryMB: 512}}}
	w.put(rec)
	w.set(rec, carrel.Running)
	return rec.Sandbox.ID
}

// set writes a sandbox's state.
func (w *world) set(rec state.Record, st carrel.State) {
	rec.Sandbox.State = st
	w.put(rec)
	w.runs[rec.Sandbox.ID] = st == carrel.Running
}

func (w *world) put(rec state.Record) {
	w.t.Helper()
	w.recs[rec.Sandbox.ID] = rec
	if err := w.records.PutSandbox(w.t.Context(), rec); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pause(id carrel.ID)  { w.set(w.recs[id], carrel.Paused) }
func (w *world) resume(id carrel.ID) { w.set(w.recs[id], carrel.Running) }

func (w *world) kill(id carrel.ID) {
	w.t.Helper()
	w.runs[id] = false
	if err := w.records.DeleteSandbox(w.t.Context(), id); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) usage(o carrel.UsageOptions) carrel.UsageReport {
	w.t.Helper()
	if o.From.IsZero() {
		o.From = time.Unix(1, 0)
	}
	r, err := w.Usage(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// agree compares the ledger with the truth.
func (w *world) agree(when string) {
	w.t.Helper()
	got := map[string]carrel.Milli{}
	r := w.usage(carrel.UsageOptions{By: []string{"sandbox"}})
	for _, row := range r.Rows {
		got[row.Group[0]] = row.AliveSeconds
	}
	var sum carrel.Milli
	for id, want := range w.truth {
		if got[string(id)] != carrel.Milli(want.Milliseconds()) {
			w.t.Errorf("%s: sandbox %s: %s seconds, want %v", when, id, got[string(id)], want)
		}
		sum += got[string(id)]
	}
	if r.Total.AliveSeconds != sum || r.Total.VCPUSeconds != carrel.Micro(sum)*1500 || r.Total.MemoryMiBSeconds != sum*512 {
		w.t.Errorf("%s: total %+v, want %s seconds", when, r.Total, sum)
	}
}

// TestScriptedDay plays a day: creations, pauses, forks, rollbacks, kills, deaths of the daemon, and
// steps of the clock in both directions. The ledger agrees with the truth after each step.
func TestScriptedDay(t *testing.T) {
	w := newWorld(t)
	a := w.create("red", map[string]string{"task": "one"})
	w.pass(3 * time.Minute) // over a full hour
	b := w.create("red", nil)
	w.pass(90 * time.Minute)
	w.agree("two sandboxes")

	w.pause(a)
	w.pass(time.Hour)
	w.agree("one is paused")
	w.resume(a)
	w.pass(17 * time.Second)

	w.step(3 * time.Hour)
	w.pass(time.Minute)
	w.agree("a step forward")
	w.step(-5 * time.Hour)
	w.sleep(4 * time.Second)
	w.agree("a step back, before a heartbeat")
	w.pass(time.Minute)
	w.agree("a step back")
	w.step(-time.Hour)
	w.kill(b)
	w.agree("a kill right after a step")

	forks := []carrel.ID{w.create("red", nil), w.create("blue", nil), w.create("blue", nil)}
	w.sleep(12345 * time.Millisecond)
	w.start() // the daemon was killed
	w.adopt()
	w.agree("a killed daemon")
	w.pass(time.Minute)
	w.sleep(2 * time.Hour) // no daemon, and the sandboxes run on
	w.step(-24 * time.Hour)
	w.start()
	w.adopt()
	w.agree("two hours without a daemon, and a step meanwhile")
	w.pass(25 * time.Second)

	w.pause(forks[0]) // a rollback
	w.sleep(1500 * time.Millisecond)
	w.resume(forks[0])
	w.pass(13 * time.Hour)
	w.agree("a rollback, and half a day")
	for _, id := range forks {
		w.kill(id)
	}
	w.kill(a)
	w.pass(time.Hour)
	w.agree("all are killed")
}

// TestDiedMeanwhile has a sandbox die while no daemon is there. It is charged up to the last
// heartbeat, or up to the pause that was found.
func TestDiedMeanwhile(t *testing.T) {
	w := newWorld(t)
	a, b := w.create("red", nil), w.create("red", nil)
	w.pass(5 * time.Minute)
	atBeat := w.truth[a]
	w.sleep(3 * time.Second)
	sn := state.SnapshotRecord{Snapshot: carrel.Snapshot{ID: carrel.NewSnapshotID(), Sandbox: b, Created: w.now.Wall, Size: 1 << 20}}
	atPause := w.truth[b]
	w.sleep(time.Hour)
	w.start()
	w.kill(a) // recovery found that it is gone
	rec := w.recs[b]
	rec.Sandbox.State, rec.Paused = carrel.Paused, sn.Snapshot.ID
	w.runs[b] = false
	if err := w.records.Apply(t.Context(), state.Change{Put: []state.Record{rec}, PutSnapshots: []state.SnapshotRecord{sn}}); err != nil {
		t.Fatal(err)
	}
	w.truth[a], w.truth[b] = atBeat, atPause
	w.agree("one died, one was paused")

	c := w.create("red", nil)
	w.pass(time.Minute)
	atBeat = w.truth[c]
	w.now.Boot, w.now.Mono = "b", time.Minute // the machine stopped
	w.step(time.Hour)
	w.start()
	w.kill(c)
	w.truth[c] = atBeat
	w.agree("the machine stopped")
}

// TestFailedWrites fails writes before and after they reach the disk. The records say what happened,
// and the usage agrees.
func TestFailedWrites(t *testing.T) {
	for name, fault := range map[string]func(*flaky, error){
		"before": func(f *flaky, err error) { f.before = err },
		"after":  func(f *flaky, err error) { f.after = err },
	} {
		for _, again := range []bool{false, true} { // a new daemon follows
			t.Run(fmt.Sprint(name, again), func(t *testing.T) {
				w := newWorld(t)
				a := w.create("red", nil)
				w.pass(time.Minute)
				fault(w.store, errors.New("disk on fire"))
				paused := w.recs[a]
				paused.Sandbox.State = carrel.Paused
				if err := w.records.PutSandbox(t.Context(), paused); err == nil {
					t.Fatal("no error")
				}
				fault(w.store, nil)
				w.sleep(time.Second)
				w.resume(a) // the service takes it back: it ran on
				w.agree("taken back")
				if again {
					w.sleep(time.Second)
					w.start()
					w.adopt()
				}
				w.pass(2 * time.Hour)
				w.agree("ran on")
				w.kill(a)
				w.pass(time.Hour)
				w.agree("killed")
			})
		}
	}
}

// TestPartsAddUp makes random usage and groups it at random, also after it was folded. The rows add
// up to the total, and the total never changes.
func TestPartsAddUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	w := newWorld(t)
	w.opts = ledger.Options{Prices: &ledger.Prices{Currency: "EUR", Default: ledger.Rates{VCPUHour: 50_001,
		MemoryGiBHour: 7_003, CPUHour: 11, MemoryUsedHour: 13, EgressGB: 90_000, SnapshotGBMonth: 23_000}}}
	w.start()
	var ids []carrel.ID
	cpu := map[carrel.ID]time.Duration{}
	for range 120 {
		switch n := rnd.IntN(6); {
		case n < 2 || len(ids) == 0:
			ids = append(ids, w.create(fmt.Sprint("p", rnd.IntN(3)), map[string]string{"task": fmt.Sprint("t", rnd.IntN(4))}))
		case n == 2:
			w.kill(ids[0])
			ids = ids[1:]
		default:
			id := ids[rnd.IntN(len(ids))]
			cpu[id] += time.Duration(rnd.Int64N(1e12))
			w.Sample(id, state.Reading{CPU: cpu[id], Memory: rnd.Int64N(1 << 33), Disk: rnd.Int64N(1 << 33), Sent: rnd.Int64N(1 << 40)})
		}
		w.sleep(time.Duration(rnd.Int64N(int64(4 * time.Hour))))
		if err := w.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		w.kill(id)
	}
	columns := []string{"project", "key", "template", "tier", "kind", "sandbox", "day", "label:task", "label:none"}
	before := w.usage(carrel.UsageOptions{}).Total
	days := w.usage(carrel.UsageOptions{By: []string{"day", "project", "label:task"}})
	check := func(when string) {
		t.Helper()
		for range 12 {
			rnd.Shuffle(len(columns), func(i, j int) { columns[i], columns[j] = columns[j], columns[i] })
			by := slices.Clone(columns[:rnd.IntN(5)])
			r := w.usage(carrel.UsageOptions{By: by})
			var sum carrel.UsageTotals
			var cost carrel.Micro
			for _, row := range r.Rows {
				sum.Add(row.UsageTotals)
				cost += *row.Cost
			}
			if d := cost - *before.Cost; d > carrel.Micro(len(r.Rows)) || -d > carrel.Micro(len(r.Rows)) {
				t.Errorf("%s: by %v: the rows cost %s, all %s", when, by, cost, before.Cost)
			}
			if *r.Total.Cost != *before.Cost {
				t.Errorf("%s: by %v: cost %s, want %s", when, by, r.Total.Cost, before.Cost)
			}
			got, want := r.Total, before
			got.Cost, want.Cost = nil, nil
			if got != want || sum != want {
				t.Errorf("%s: by %v: rows %+v, total %+v, want %+v", when, by, sum, got, want)
			}
		}
		at := time.Unix(1, 0)
		var sum carrel.UsageTotals
		for at.Before(w.now.Wall.AddDate(0, 0, 2)) { // any split of the time; days after they were folded
			next := at.Add(24 * time.Hour * time.Duration(1+rnd.IntN(3000)))
			if when == "fine" {
				next = next.Add(time.Duration(rnd.Int64N(1e15)))
			} else {
				next = next.Truncate(24 * time.Hour)
			}
			sum.Add(w.usage(carrel.UsageOptions{From: at, To: next}).Total)
			at = next
		}
		if want := before; func() bool { want.Cost = nil; return sum != want }() {
			t.Errorf("%s: parts of the time %+v, want %+v", when, sum, want)
		}
		if got := w.usage(carrel.UsageOptions{By: days.By}); fmt.Sprint(figuresOf(got)) != fmt.Sprint(figuresOf(days)) {
			t.Errorf("%s: days changed:\n%+v\n%+v", when, got.Rows, days.Rows)
		}
	}
	check("fine")
	rows := w.count()
	w.sleep(10 * 24 * time.Hour)
	for range 2 { // the second time changes nothing
		if err := w.Fold(t.Context(), w.now.Wall); err != nil {
			t.Fatal(err)
		}
		check("folded")
	}
	folded := w.count()
	w.sleep(100 * 24 * time.Hour)
	for range 2 {
		if err := w.Fold(t.Context(), w.now.Wall.Add(-20*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		columns = slices.DeleteFunc(columns, func(c string) bool { return c == "sandbox" })
		check("merged")
	}
	if merged := w.count(); merged >= folded || folded >= rows {
		t.Errorf("%d rows, %d folded, %d merged", rows, folded, merged)
	}
}

// figuresOf lists the rows without their costs, which are pointers.
func figuresOf(r carrel.UsageReport) (out []string) {
	for _, row := range r.Rows {
		cost := *row.Cost
		row.Cost = nil
		out = append(out, fmt.Sprint(row, cost))
	}
	return out
}

// count counts the rows of usage.
func (w *world) count() (n int) {
	err := w.store.EachUsage(w.t.Context(), time.Time{}, time.Time{}, func(state.Usage) error { n++; return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestActive measures a sandbox over the deaths of a daemon. The counters of its instance survive
// them.
func TestActive(t *testing.T) {
	w := newWorld(t)
	w.sleep(11 * time.Second) // away from the full hour
	a := w.create("red", nil)
	reading := state.Reading{Memory: 100 << 20, Disk: 50 << 20}
	sample := func(cpu time.Duration, sent int64) {
		reading.CPU, reading.Sent, reading.Received = cpu, sent, 2*sent
		w.Sample(a, reading)
	}
	w.sleep(10 * time.Second)
	sample(3*time.Second, 1000)
	w.sleep(10 * time.Second)
	w.start() // nothing of this was saved
	w.adopt()
	w.sleep(10 * time.Second)
	sample(5*time.Second, 77)
	w.sleep(30 * time.Second)
	w.pass(2 * time.Hour) // saved and cut
	sample(6*time.Second, 100)
	w.pause(a)
	w.sleep(time.Minute)
	w.resume(a) // another instance, whose counter begins at zero
	w.sleep(10 * time.Second)
	sample(2*time.Second, 200)
	w.kill(a)
	got := w.usage(carrel.UsageOptions{Sandbox: a}).Total
	alive := carrel.Milli(w.truth[a].Milliseconds())
	// 1000 bytes were lost with the first daemon: they were not saved yet.
	if got.CPUSeconds != 8_000_000 || got.BytesOut != 300 || got.BytesIn != 600 ||
		got.MemoryUsedMiBSeconds != alive*100 || got.DiskUsedMiBSeconds != alive*50 {
		t.Errorf("%+v, alive %s", got, alive)
	}
}

// TestOverflow has counters and sizes that no sum can hold.
func TestOverflow(t *testing.T) {
	w := newWorld(t)
	const most = 1<<63 - 1
	a := w.create("red", nil)
	b := w.create("red", nil)
	for _, id := range []carrel.ID{a, b} {
		w.sleep(time.Second)
		w.Sample(id, state.Reading{CPU: most, Memory: most, Disk: most, Sent: most, Received: most})
		w.sleep(40 * 365 * 24 * time.Hour)
		w.Sample(id, state.Reading{CPU: most, Memory: most, Disk: most, Sent: 1, Received: -5})
		w.kill(id)
	}
	got := w.usage(carrel.UsageOptions{By: []string{"day"}, From: w.now.Wall.Add(-24 * time.Hour)}).Total
	if got.BytesOut < 0 || got.MemoryUsedMiBSeconds <= 0 || got.CPUSeconds <= 0 {
		t.Errorf("%+v", got)
	}
	if all := w.usage(carrel.UsageOptions{}).Total; all.BytesOut != most || all.BytesIn < 0 {
		t.Errorf("%+v", all)
	}
}

// TestBadQuestions asks questions that have no answer, or one that is too large.
func TestBadQuestions(t *testing.T) {
	w := newWorld(t)
	for field, o := range map[string]carrel.UsageOptions{
		"by":   {By: []string{"colour"}},
		"by ":  {By: []string{"day", "day"}},
		"by  ": {By: []string{"label:"}},
		"by.":  {By: slices.Repeat([]string{"label:x"}, 100)},
		"from": {From: w.now.Wall, To: w.now.Wall.Add(-time.Second)},
	} {
		_, err := w.Usage(t.Context(), o)
		ce, ok := errors.AsType[*carrel.Error](err)
		if !ok || ce.Kind != carrel.Invalid || ce.Field != strings0(field) {
			t.Errorf("%q: %v", field, err)
		}
	}
	// The range of all time is cheap: only days with usage are rows.
	r, err := w.Usage(t.Context(), carrel.UsageOptions{By: []string{"day"}, From: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		To: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil || len(r.Rows) != 0 {
		t.Errorf("%v %v", r, err)
	}
	for i := range 10_001 {
		w.create("red", map[string]string{"task": fmt.Sprint(i)})
	}
	w.sleep(time.Second)
	if _, err := w.Usage(t.Context(), carrel.UsageOptions{By: []string{"label:task"}}); carrel.KindOf(err) != carrel.Invalid || carrel.HintOf(err) == "" {
		t.Errorf("an answer with too many groups: %v", err)
	}
}

// strings0 is the first word of a text.
func strings0(s string) string {
	for i, r := range s {
		if r == ' ' || r == '.' {
			return s[:i]
		}
	}
	return s
}

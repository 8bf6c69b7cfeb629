package ledger

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// Options configures a Ledger. Store is required.
type Options struct {
	// Store keeps records and usage. The ledger does not close it.
	Store state.Store
	// Clock is the machine's when nil.
	Clock Clock
	// Every is the time between heartbeats; 0 is 10 seconds.
	Every time.Duration
	// Save is how long the active figures of an open piece stay only in memory; 0 is 10 minutes.
	// They are saved earlier when its network carried SaveBytes; 0 is 64 MiB.
	Save      time.Duration
	SaveBytes int64
	// FoldAfter is the age at which a sandbox's pieces become one for each day; 0 is 3 days.
	// MergeAfter is the age at which days of equal sandboxes become one; 0 is 90 days.
	FoldAfter, MergeAfter time.Duration
	// Prices turns usage into money; nil is no price list.
	Prices *Prices
	Log    *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Every, o.Save = cmp.Or(o.Every, 10*time.Second), cmp.Or(o.Save, 10*time.Minute)
	o.SaveBytes = cmp.Or(o.SaveBytes, 64<<20)
	o.FoldAfter, o.MergeAfter = cmp.Or(o.FoldAfter, 72*time.Hour), cmp.Or(o.MergeAfter, 90*24*time.Hour)
	if o.Clock == nil {
		o.Clock = SystemClock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Ledger meters usage. It is safe for concurrent use.
type Ledger struct {
	opts Options
	log  *slog.Logger

	mu   sync.Mutex
	open map[string]*piece // by subject
	// doubts says what undoes a write that failed but may have reached the disk, by subject.
	doubts map[string]doubt
	held   map[string]chan struct{} // subjects whose records are being written

	boot   string // this boot; fixed for life
	before Moment // the last heartbeat of the earlier process; fixed for life
	// beats and failures count calls of Tick, and seen is when the last one succeeded, in Unix
	// time's nanoseconds.
	beats, failures atomic.Uint64
	seen            atomic.Int64
	// Of the goroutine that calls Tick:
	last   Moment    // the last heartbeat
	folded time.Time // until when usage is folded
}

// doubt is what undoes a failed write about one subject.
type doubt struct {
	drop []string
	put  []state.Usage
}

// Open returns a ledger over a store. It goes on with the pieces of an earlier process.
func Open(ctx context.Context, opts Options) (*Ledger, error) {
	opts = opts.withDefaults()
	l := &Ledger{opts: opts, log: opts.Log, open: map[string]*piece{}, doubts: map[string]doubt{},
		held: map[string]chan struct{}{}}
	var rows []state.Usage
	err := opts.Store.OpenUsage(ctx, func(u state.Usage) error {
		if u.Kind == state.UsageSeen {
			l.before = Moment{u.Start, u.Mono, u.Boot}
		} else {
			rows = append(rows, u)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.last = opts.Clock()
	l.boot = l.last.Boot
	return l, l.reconcile(ctx, rows)
}

// reconcile makes the open pieces agree with the records. They differ after an upgrade from a
// version without a ledger, and after damage.
func (l *Ledger) reconcile(ctx context.Context, rows []state.Usage) error {
	now := l.last
	want := map[string]state.Usage{}
	records, err := l.opts.Store.Sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, rec := range records {
		if what, ok := describe(rec); ok {
			want[what.Subject] = what
		}
	}
	snaps, err := l.opts.Store.Snapshots(ctx)
	if err != nil {
		return err
	}
	for _, sr := range snaps {
		what := describeSnapshot(sr)
		want[what.Subject] = what
	}
	var c state.Change
	for _, u := range rows {
		p := load(u)
		what, there := want[u.Subject]
		delete(want, u.Subject)
		switch {
		case !there:
			c.PutUsage = append(c.PutUsage, l.lastKnown(p))
		case p.runs() && alike(u, what):
			l.open[u.Subject] = p
		case p.runs(): // the record is right
			c.PutUsage = append(c.PutUsage, l.lastKnown(p))
			n := begin(what, now)
			n.known = false
			c.PutUsage, l.open[u.Subject] = append(c.PutUsage, n.row), n
		default:
			p.known = true
			l.open[u.Subject] = p
			if u.Boot != now.Boot { // the monotonic clock does not reach across
				n := begin(what, now)
				c.PutUsage, l.open[u.Subject] = append(c.PutUsage, closed(p, now), n.row), n
			}
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(want)) {
		n := begin(want[subject], now)
		n.known = want[subject].Kind == carrel.UsageSnapshot
		c.PutUsage, l.open[subject] = append(c.PutUsage, n.row), n
	}
	return l.write(ctx, c.PutUsage)
}

// writeAtOnce is how many rows the ledger writes in one transaction, so that a creation never waits
// long behind it.
const writeAtOnce = 256

// write writes rows.
func (l *Ledger) write(ctx context.Context, rows []state.Usage) error {
	for part := range slices.Chunk(rows, writeAtOnce) {
		if err := l.opts.Store.Apply(ctx, state.Change{PutUsage: part}); err != nil {
			return err
		}
	}
	return nil
}

// closed returns the row of a piece that ends now.
func closed(p *piece, now Moment) state.Usage {
	if p.row.Boot == now.Boot {
		return end(p.at(now.Mono))
	}
	// A snapshot is stored while the machine is off, too. Only the wall clock tells for how long.
	u := p.at(p.row.Mono)
	lengthen(&u, max(0, now.Wall.Sub(u.Start).Milliseconds()))
	return end(u)
}

// lastKnown returns the row of a piece that ends at the last moment at which its subject was known
// to live.
func (l *Ledger) lastKnown(p *piece) state.Usage {
	u := p.at(p.row.Mono + time.Duration(p.row.AliveMS)*time.Millisecond)
	if p.row.Boot == l.before.Boot && p.row.Boot != "" {
		if seen := p.at(l.before.Mono); seen.AliveMS > u.AliveMS {
			u = seen
		}
	}
	return end(u)
}

// Adopted tells that a sandbox, which an earlier process started, lives.
func (l *Ledger) Adopted(id carrel.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.open[string(id)]; p != nil {
		p.known = true
	}
}

// Sample passes on a measurement of a running sandbox, made just now.
func (l *Ledger) Sample(id carrel.ID, r state.Reading) {
	r.Mono = l.opts.Clock().Mono
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.open[string(id)]
	if p == nil || !p.runs() {
		return
	}
	p.known = true
	if p.row.Boot == l.boot { // otherwise a piece of this boot begins soon
		p.sample(r)
	}
}

// Store returns the ledger's store as the service uses it.
func (l *Ledger) Store() state.Store { return &store{l.opts.Store, l} }

// store is a [state.Store] whose writes of records also write usage.
type store struct {
	state.Store
	ledger *Ledger
}

var _ state.Store = (*store)(nil)

// PutSandbox implements state.Store.
func (s *store) PutSandbox(ctx context.Context, r state.Record) error {
	return s.Apply(ctx, state.Change{Put: []state.Record{r}})
}

// DeleteSandbox implements state.Store.
func (s *store) DeleteSandbox(ctx context.Context, id carrel.ID) error {
	return s.Apply(ctx, state.Change{Delete: []carrel.ID{id}})
}

// Apply implements state.Store.
func (s *store) Apply(ctx context.Context, c state.Change) error {
	l := s.ledger
	want := wanted(c)
	subjects := slices.Sorted(maps.Keys(want))
	release, err := l.hold(ctx, subjects)
	if err != nil {
		return err
	}
	defer release()
	steps := l.plan(subjects, want, c)
	for _, st := range steps {
		c.DropUsage, c.PutUsage = append(c.DropUsage, st.drop...), append(c.PutUsage, st.put...)
	}
	err = s.Store.Apply(ctx, c)
	l.settle(steps, err)
	return err
}

// wanted lists the subjects of a change, each with the piece that it is in afterwards; nil is none.
func wanted(c state.Change) map[string]*state.Usage {
	want := map[string]*state.Usage{}
	for _, rec := range c.Put {
		if what, ok := describe(rec); ok {
			want[what.Subject] = &what
		} else {
			want[what.Subject] = nil
		}
	}
	for _, id := range c.Delete {
		want[string(id)] = nil
	}
	for _, sr := range c.PutSnapshots {
		what := describeSnapshot(sr)
		want[what.Subject] = &what
	}
	for _, id := range c.DeleteSnapshots {
		want[string(id)] = nil
	}
	return want
}

// step is what a change does to the usage of one subject.
type step struct {
	subject string
	drop    []string
	put     []state.Usage
	after   *piece // the open piece afterwards
	undo    doubt  // what undoes it
}

// plan computes the steps of a change. The caller holds the subjects.
func (l *Ledger) plan(subjects []string, want map[string]*state.Usage, c state.Change) []step {
	now := l.opts.Clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []step
	for _, subject := range subjects {
		have, what := l.open[subject], want[subject]
		st := step{subject: subject, after: have, drop: l.doubts[subject].drop, put: l.doubts[subject].put}
		if have != nil && (what == nil || !alike(have.row, *what)) {
			st.undo.put = append(st.undo.put, have.row)
			st.put = append(slices.Clone(st.put), l.ending(have, now, c))
			st.after = nil
		}
		if what != nil && st.after == nil {
			st.after = begin(*what, now)
			if have != nil {
				st.after = have.next(*what, now)
			}
			st.undo.drop = append(st.undo.drop, st.after.row.ID)
			st.put = append(slices.Clone(st.put), st.after.row)
		}
		if len(st.put) > 0 || len(st.drop) > 0 {
			out = append(out, st)
		}
	}
	return out
}

// ending returns the row of a piece that a change closes.
func (l *Ledger) ending(p *piece, now Moment, c state.Change) state.Usage {
	if !p.runs() || p.known && p.row.Boot == now.Boot {
		return closed(p, now)
	}
	u := l.lastKnown(p)
	for _, sr := range c.PutSnapshots { // a pause that was found says that it lived until then
		if string(sr.Snapshot.Sandbox) != p.row.Subject {
			continue
		}
		if ms := sr.Snapshot.Created.Sub(p.row.Start).Milliseconds(); ms > u.AliveMS && !sr.Snapshot.Created.After(now.Wall) {
			u = end(p.at(p.row.Mono + time.Duration(ms)*time.Millisecond))
		}
	}
	return u
}

// settle takes over the result of a write.
func (l *Ledger) settle(steps []step, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, st := range steps {
		if err != nil {
			d := l.doubts[st.subject]
			l.doubts[st.subject] = doubt{append(d.drop, st.undo.drop...), append(d.put, st.undo.put...)}
			continue
		}
		delete(l.doubts, st.subject)
		if st.after == nil {
			delete(l.open, st.subject)
		} else {
			l.open[st.subject] = st.after
		}
	}
}

// hold waits until nobody else writes about the subjects, which are sorted.
func (l *Ledger) hold(ctx context.Context, subjects []string) (release func(), err error) {
	for i, subject := range subjects {
		for {
			taken := l.holdOne(subject)
			if taken == nil {
				break
			}
			select {
			case <-taken:
				continue
			case <-ctx.Done():
				l.release(subjects[:i])
				return nil, &carrel.Error{Op: "write change", Kind: carrel.Internal, Err: context.Cause(ctx)}
			}
		}
	}
	return func() { l.release(subjects) }, nil
}

// holdOne holds a subject, or returns a channel that is closed when it is free.
func (l *Ledger) holdOne(subject string) (taken chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if taken = l.held[subject]; taken == nil {
		l.held[subject] = make(chan struct{})
	}
	return taken
}

func (l *Ledger) release(subjects []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, subject := range subjects {
		close(l.held[subject])
		delete(l.held, subject)
	}
}

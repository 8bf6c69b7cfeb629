package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	window       = 256 // deliveries that wait in one webhook's memory
	atOnce       = 4   // attempts of one webhook
	downAfter    = 8   // failures in a row after which the receiver counts as down
	longestProbe = 5 * time.Minute
	markEvery    = 512 // events between two lines of the position
)

// Retry says when a failed delivery is tried again. Zero fields are the defaults.
type Retry struct {
	First   time.Duration // before the second attempt; 5 s. Each later one waits twice as long.
	Longest time.Duration // the longest wait; an hour
	For     time.Duration // after this long it is given up; a day
}

func (r Retry) wait(tries int) time.Duration {
	d := r.First
	for range min(tries-1, 40) {
		if d *= 2; d >= r.Longest {
			d = r.Longest
			break
		}
	}
	return d - d/10 + rand.N(d/5+1) // so that those that failed together don't return together
}

// runner delivers the events of one webhook.
type runner struct {
	all *Hooks
	log *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	turns  chan struct{} // one for each attempt
	room   chan struct{} // one for each that waits

	mu    sync.Mutex
	hook  hook
	p     *progress
	scan  int64 // the newest event that was read
	lanes map[carrel.ID][]*item
	open  map[int64]bool // in lanes
	fails int            // in a row, of all deliveries
	hold  time.Time      // no attempt before
	freed chan struct{}  // closed and made anew when hold goes
}

func newRunner(all *Hooks, h hook, p *progress) *runner {
	r := &runner{all: all, hook: h, p: p, log: all.opts.Logger.With("webhook", h.ID)}
	return r
}

// start begins to deliver, if the webhook is enabled.
func (r *runner) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns, r.room = make(chan struct{}, atOnce), make(chan struct{}, window)
	r.lanes, r.open, r.freed = map[carrel.ID][]*item{}, map[int64]bool{}, make(chan struct{})
	r.fails, r.hold, r.scan = 0, time.Time{}, r.p.at
	r.ctx, r.cancel = context.WithCancel(r.all.ctx)
	if r.hook.Enabled && r.all.delivers() {
		r.work.Go(r.read)
	}
}

// stop ends all attempts. What waits is in the file, or is found again by its number.
func (r *runner) stop() {
	r.cancel()
	r.work.Wait()
}

// read reads the events and gives each one that the webhook asks for to its lane.
func (r *runner) read() {
	r.mu.Lock()
	replays := []*item{}
	for _, it := range r.p.waiting {
		if it.replay {
			replays = append(replays, it)
		}
	}
	h, at := r.hook, r.scan
	r.mu.Unlock()
	slices.SortFunc(replays, func(a, b *item) int { return int(a.Seq - b.Seq) })
	for _, it := range replays {
		if !r.enter(it) {
			return
		}
	}
	for r.ctx.Err() == nil {
		for e, err := range r.all.opts.Follow(r.ctx, at) {
			if err != nil {
				if r.ctx.Err() == nil && carrel.KindOf(err) != carrel.Unavailable {
					r.log.Error("read events", "err", err)
				}
				break
			}
			if at = e.Seq; !r.take(&h, &e) {
				return
			}
		}
		select {
		case <-r.ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// take takes one event in. It reports whether the runner goes on.
func (r *runner) take(h *hook, e *carrel.Event) bool {
	if kind := lifecycleType(e); h.wants(e) {
		r.mu.Lock()
		it, done := r.p.waiting[e.Seq], r.p.settled[e.Seq] || r.open[e.Seq]
		if it == nil {
			it = &item{line: line{Seq: e.Seq, Type: kind, Sandbox: e.ID, Time: e.Time}}
		}
		r.mu.Unlock()
		if !done && !it.replay && !r.enter(it) {
			return false
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scan = e.Seq
	if at := r.position(); at >= r.p.at+markEvery {
		_ = r.keep(false, line{Kind: lineAt, Seq: at})
	}
	return true
}

// position is the number up to which everything is settled. The caller holds mu.
func (r *runner) position() int64 {
	at := r.scan
	for seq := range r.open {
		if it := r.p.waiting[seq]; it == nil || !it.replay {
			at = min(at, seq-1)
		}
	}
	return at
}

// keep writes lines to the file. Who goes on after an error repeats some deliveries later, at worst. The caller holds mu.
func (r *runner) keep(sync bool, lines ...line) error {
	err := r.p.add(sync, lines...)
	if err != nil && !errors.Is(err, errStale) {
		r.log.Error("write progress of a webhook; its deliveries may be repeated", "err", err)
	}
	return err
}

// enter puts a delivery into its sandbox's lane. It waits while too many wait.
func (r *runner) enter(it *item) bool {
	select {
	case r.room <- struct{}{}:
	case <-r.ctx.Done():
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[it.Seq] {
		<-r.room
		return true
	}
	r.open[it.Seq] = true
	lane, runs := r.lanes[it.Sandbox]
	r.lanes[it.Sandbox] = append(lane, it)
	if !runs {
		r.work.Go(func() { r.lane(it.Sandbox) })
	}
	return true
}

// lane delivers the events of one sandbox, one after the other, until none waits.
func (r *runner) lane(id carrel.ID) {
	for {
		r.mu.Lock()
		if len(r.lanes[id]) == 0 {
			delete(r.lanes, id)
			r.mu.Unlock()
			return
		}
		it := r.lanes[id][0]
		r.mu.Unlock()
		if !r.deliver(it) {
			return
		}
		r.mu.Lock()
		r.lanes[id] = r.lanes[id][1:]
		delete(r.open, it.Seq)
		r.mu.Unlock()
		<-r.room
	}
}

// deliver tries until the delivery is settled. It reports false when the runner stops first.
func (r *runner) deliver(it *item) bool {
	for {
		if !r.wait(it) {
			return false
		}
		if r.tooOld(it) {
			return true
		}
		turn := func() bool { return r.attempt(it) }
		settled, ok := r.all.turn(r.ctx, r.turns, r.hook.Project, turn)
		if !ok {
			return false
		}
		if settled {
			return true
		}
	}
}

// wait waits for the time of the next attempt.
func (r *runner) wait(it *item) bool {
	for {
		r.mu.Lock()
		until, freed := it.Next, r.freed
		if r.hold.After(until) {
			until = r.hold
		}
		r.mu.Unlock()
		d := time.Until(until)
		if d <= 0 {
			return r.ctx.Err() == nil
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-freed:
		case <-r.ctx.Done():
			t.Stop()
			return false
		}
		t.Stop()
	}
}

// tooOld gives up a delivery whose time has passed while the receiver is down.
func (r *runner) tooOld(it *item) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.late(it) || it.Tries == 0 && r.fails < downAfter {
		return false
	}
	if it.Error == "" {
		it.Error = "the receiver has failed for so long that this was not tried"
	}
	it.Kind, it.Next = lineDead, time.Time{}
	_ = r.keep(true, it.line)
	return true
}

func (r *runner) late(it *item) bool {
	since := it.Time
	if it.replay {
		since = it.Since
	}
	return time.Since(since) > r.all.opts.Retry.For
}

// attempt makes one attempt, unless the receiver was found to be down meanwhile. It reports whether
// the delivery is settled.
func (r *runner) attempt(it *item) bool {
	r.mu.Lock()
	h, held := r.hook, time.Now().Before(r.hold)
	r.mu.Unlock()
	if held {
		return false
	}
	body, found, err := r.body(it)
	if r.ctx.Err() != nil {
		return false
	}
	if err == nil && !found {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = r.keep(false, line{Kind: lineDropped, Seq: it.Seq})
		return true
	}
	status := 0
	if s := r.p.shared; err == nil && s != nil && s.may(r.ctx) != nil {
		r.pause() // the records don't answer, or the attempt is another's
		return false
	}
	if err == nil {
		status, err = r.all.sender.send(r.ctx, &h, newID(), body)
	}
	if err != nil && r.ctx.Err() != nil {
		return false // it was cut off, and says nothing about the receiver
	}
	return r.record(it, status, err)
}

// pauseTime is how long a delivery waits that could not be begun.
const pauseTime = 500 * time.Millisecond

// pause waits, until the runner stops.
func (r *runner) pause() {
	select {
	case <-time.After(pauseTime):
	case <-r.ctx.Done():
	}
}

// record records an attempt. It reports whether the delivery is settled.
func (r *runner) record(it *item, status int, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	it.Tries, it.Tried, it.Status, it.Error, it.Next = it.Tries+1, time.Now().UTC(), status, "", time.Time{}
	if err == nil {
		r.all.taken.Add(1)
		it.Kind, r.fails = lineDelivered, 0
		if !r.hold.IsZero() {
			r.hold = time.Time{}
			close(r.freed)
			r.freed = make(chan struct{})
		}
		_ = r.keep(false, it.line)
		return true
	}
	r.all.failed.Add(1)
	retry := r.all.opts.Retry
	it.Error = err.Error()
	if r.fails++; r.fails >= downAfter {
		probe := retry
		probe.Longest = min(probe.Longest, longestProbe)
		r.hold = time.Now().Add(probe.wait(r.fails - downAfter + 1))
	}
	if r.late(it) {
		it.Kind = lineDead
		r.log.Warn("a delivery was given up", "event", r.all.events.id(it.Seq), "attempts", it.Tries, "reason", it.Error)
		_ = r.keep(true, it.line)
		return true
	}
	it.Kind, it.Next = lineFailed, time.Now().Add(retry.wait(it.Tries)).UTC()
	_ = r.keep(false, it.line)
	return false
}

// delivered is the body of a delivery. E2B's documents give the fields' names in camel case, and its
// deliveries have them in snake case. Receivers were written for either, so a body has both.
type delivered struct {
	carrel.LifecycleEvent
	Category    string                `json:"event_category"`
	Label       string                `json:"event_label"`
	SnakeData   *carrel.LifecycleData `json:"event_data"`
	SandboxID   carrel.ID             `json:"sandbox_id"`
	ExecutionID string                `json:"sandbox_execution_id"`
	TemplateID  string                `json:"sandbox_template_id"`
	BuildID     string                `json:"sandbox_build_id"`
	TeamID      string                `json:"sandbox_team_id"`
}

// body makes the body of a delivery. found says whether the event is still kept.
func (r *runner) body(it *item) (body []byte, found bool, err error) {
	page, err := r.all.opts.Store.Events(r.ctx, "", it.Seq-1, 1)
	if err != nil || len(page) == 0 || page[0].Seq != it.Seq {
		return nil, false, err
	}
	e, err := r.all.events.lifecycle(r.ctx, &page[0])
	if err != nil {
		r.log.Error("make the body of a delivery", "err", err)
		return nil, true, errors.New("the event can't be read")
	}
	body, err = json.Marshal(delivered{e, "lifecycle", e.Type[strings.LastIndexByte(e.Type, '.')+1:],
		e.Data, e.SandboxID, e.ExecutionID, e.TemplateID, e.BuildID, e.TeamID})
	return body, true, err
}

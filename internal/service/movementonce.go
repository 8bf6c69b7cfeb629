package service

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/state"
)

// publicationCounts is how long a publication answers for the next ones of the same state. A drain
// publishes what the pause just published, and the machine that adopts it does so once more: each
// asks the shared store dozens of times. The time is short, so that who publishes again because the
// store has lost something is not put off.
const publicationCounts = 10 * time.Second

// turns has one at a time do something to a sandbox. The zero value is ready.
type turns struct {
	mu    sync.Mutex
	taken map[carrel.ID]chan struct{} // closed when it is done
}

// take waits until nobody else has the turn. Error: TimedOut.
func (t *turns) take(ctx context.Context, id carrel.ID) (done func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		other := t.taken[id]
		if other == nil {
			if t.taken == nil {
				t.taken = map[carrel.ID]chan struct{}{}
			}
			t.taken[id] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.taken, id)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, &carrel.Error{Kind: carrel.TimedOut, Err: context.Cause(ctx)}
		}
	}
}

// publications remembers the publications of the last moments. The zero value is ready.
type publications struct {
	mu   sync.Mutex
	made map[carrel.ID]publication
}

type publication struct {
	state    [sha256.Size]byte // stateSum of what was published
	passport carrel.Passport
	at       time.Time
}

// find returns the passport that was made of this very state a moment ago.
func (p *publications) find(id carrel.ID, sum [sha256.Size]byte) (carrel.Passport, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.made[id]
	return m.passport, ok && m.state == sum && time.Since(m.at) < publicationCounts
}

// note remembers a publication, and forgets those that count no more.
func (p *publications) note(id carrel.ID, sum [sha256.Size]byte, passport carrel.Passport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, m := range p.made {
		if time.Since(m.at) >= publicationCounts {
			delete(p.made, other)
		}
	}
	if p.made == nil {
		p.made = map[carrel.ID]publication{}
	}
	p.made[id] = publication{sum, passport, time.Now()}
}

// forget has the next publication of a sandbox look at the store.
func (p *publications) forget(id carrel.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.made, id)
}

// stateSum is a hash of all that a passport of a sandbox says.
func (m *Movement) stateSum(rec state.Record, past map[carrel.SnapshotID]carrel.Snapshot) ([sha256.Size]byte, error) {
	rec.Handle, rec.Wake = nil, false
	all := map[carrel.SnapshotID]state.SnapshotRecord{}
	all[rec.Paused], _ = m.snaps.Get(rec.Paused)
	for id, sn := range past {
		if !timeline.Hidden(sn) {
			all[id], _ = m.snaps.Get(id)
		}
	}
	b, err := json.Marshal(struct {
		Record    state.Record
		Snapshots map[carrel.SnapshotID]state.SnapshotRecord
	}{rec, all})
	return sha256.Sum256(b), err
}

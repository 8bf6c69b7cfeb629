package hostdoor

import (
	"context"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// limits bound each sandbox's requests: their rate, and one at a time.
type limits struct {
	every time.Duration
	burst int

	mu   sync.Mutex
	byID map[carrel.ID]*limit
}

// limit is one sandbox's.
type limit struct {
	full  time.Time     // when the whole burst is available again
	turn  chan struct{} // holds a token while a request is carried out
	users int           // who has or waits for the turn
}

func (l *limits) init(every time.Duration, burst int) {
	l.every, l.burst, l.byID = every, burst, map[carrel.ID]*limit{}
}

// acquire waits for the sandbox's turn. The caller must release it. If the sandbox sends too many
// requests, acquire returns at once with the time to wait.
func (l *limits) acquire(ctx context.Context, id carrel.ID) (release func(), wait time.Duration, err error) {
	own, wait := l.spend(id)
	if wait > 0 {
		return nil, wait, nil
	}
	select {
	case own.turn <- struct{}{}:
		return func() { <-own.turn; l.leave(own) }, 0, nil
	case <-ctx.Done():
		l.leave(own)
		return nil, 0, ctx.Err()
	}
}

// spend takes one request from the burst. If there is none, it returns the time until the next.
func (l *limits) spend(id carrel.ID) (*limit, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	own := l.byID[id]
	if own == nil {
		l.sweep(now)
		own = &limit{turn: make(chan struct{}, 1)}
		l.byID[id] = own
	}
	if own.full.Before(now) {
		own.full = now
	}
	next := own.full.Add(l.every)
	if over := next.Sub(now) - time.Duration(l.burst)*l.every; over > 0 {
		return nil, over
	}
	own.full = next
	own.users++
	return own, 0
}

func (l *limits) leave(own *limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own.users--
}

// sweep forgets limits that are the same as new ones. The caller holds l.mu.
func (l *limits) sweep(now time.Time) {
	for id, own := range l.byID {
		if own.users == 0 && !own.full.After(now) {
			delete(l.byID, id)
		}
	}
}

package engine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// Followed is an event of a fleet.
type Followed struct {
	carrel.Event        // its Seq is the node's own
	Node         string // where it happened
	// Position is an opaque text: [Engine.Follow] goes on after this event with it.
	Position string
}

// position says which events a follower has: the last one of each node, and since when it follows.
type position struct {
	// Since is when the stream began, in Unix milliseconds. It is for nodes that are not in Seqs:
	// they have had no event since then, or have joined later.
	Since int64            `json:"since"`
	Seqs  map[string]int64 `json:"seqs,omitempty"`
}

// maxPosition bounds the text of a position, in bytes.
const maxPosition = 512 << 10

func (p position) text() string {
	raw, _ := json.Marshal(p) // numbers and names always marshal
	return base64.RawURLEncoding.EncodeToString(raw)
}

// readPosition reads the text that text wrote.
func readPosition(op, text string) (position, error) {
	var p position
	bad := func(why error) (position, error) {
		return position{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "Last-Event-ID",
			Err: fmt.Errorf("it is not the position of a fleet's event: %w", why)}
	}
	if len(text) > maxPosition {
		return bad(errors.New("it is too long"))
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil {
		return bad(errors.New("it is not of the right form"))
	}
	if p.Since < 0 || len(p.Seqs) > maxNodes {
		return bad(errors.New("a number in it is out of range"))
	}
	for name, seq := range p.Seqs {
		if seq < 0 || name == "" || len(name) > 63 {
			return bad(errors.New("a number in it is out of range"))
		}
	}
	if p.Seqs == nil {
		p.Seqs = map[string]int64{}
	}
	return p, nil
}

// sinceSlack is how much later than this engine's clock a node's may be, for nodes of which the
// position says nothing. A follower may get events twice in that time, rather than miss one.
const sinceSlack = time.Minute

// Follow streams the events of all nodes until ctx ends. Those of one sandbox are in order, because
// they come from one node at a time. position "" begins now; the position of an event goes on after
// it. A node that is away sends its events when it is back, and none is missed. A node that joins
// sends those since the stream began. One thing can be missed: if the connection to a node breaks
// before the node's first event in a stream that began now, those until it is there again. Errors:
// Invalid (the position).
func (e *Engine) Follow(ctx context.Context, at string) iter.Seq2[Followed, error] {
	const op = "read events"
	return func(yield func(Followed, error) bool) {
		now := at == ""
		pos := position{Since: time.Now().UnixMilli(), Seqs: map[string]int64{}}
		project, err := projectOf(ctx, op)
		if err == nil && !now {
			pos, err = readPosition(op, at)
		}
		if err != nil {
			yield(Followed{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		var readers sync.WaitGroup
		defer readers.Wait()
		defer cancel()
		defer context.AfterFunc(e.ctx, cancel)()
		type got struct {
			node string
			ev   carrel.Event
		}
		events := make(chan got)
		reading := map[*member]bool{}
		for {
			members, changed := e.watch()
			for _, m := range members {
				if reading[m] {
					continue
				}
				reading[m] = true
				after, known := pos.Seqs[m.name]
				since := time.Time{}
				if !known && !now {
					after, since = 1, time.UnixMilli(pos.Since).Add(-sinceSlack) // the first event is the node's start
				}
				began := time.UnixMilli(pos.Since)
				readers.Go(func() {
					m.follow(ctx, project, after, since, began, func(ev carrel.Event) bool {
						select {
						case events <- got{m.name, ev}:
							return true
						case <-ctx.Done():
							return false
						}
					})
				})
			}
			now = false // who joins later is read from the stream's beginning on
		drain:
			for {
				select {
				case g := <-events:
					pos.Seqs[g.node] = g.ev.Seq
					copied := position{pos.Since, maps.Clone(pos.Seqs)}
					if !yield(Followed{g.ev, g.node, copied.text()}, nil) {
						return
					}
				case <-changed:
					break drain
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

// watch returns the members, and a channel that is closed when they are others.
func (e *Engine) watch() ([]*member, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.members, e.changed
}

// Waits between two tries to read a node's events.
const (
	firstGap   = 100 * time.Millisecond
	longestGap = 2 * time.Second
)

// follow reads a node's events after one, until ctx ends, the node leaves, or give returns false.
// Events before since are left out. If after is 0, which is from now, and the node can't be reached
// now, those since the stream began are read later.
func (m *member) follow(ctx context.Context, project string, after int64, since, began time.Time,
	give func(carrel.Event) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	for gap := firstGap; ctx.Err() == nil; gap = min(2*gap, longestGap) {
		r, err := m.remote(project)
		if err == nil {
			for ev, err := range r.Events(ctx, after) {
				if err != nil {
					if after == 0 {
						after, since = 1, began
					}
					break
				}
				gap, after = firstGap, max(after, ev.Seq)
				if ev.Time.Before(since) {
					continue
				}
				if !give(ev) {
					return
				}
			}
		}
		select {
		case <-time.After(gap):
		case <-ctx.Done():
		}
	}
}

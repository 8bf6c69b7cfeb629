// Package memory keeps a service's records in memory: the twin of package sqlite
// for tests and for services that live no longer than their process.
//
// It keeps records in their written form, as the file would, so that nothing a
// caller does to a value afterwards changes what is remembered.
package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// defaultLimit bounds Events where the caller sets no limit.
const defaultLimit = 1000

// Store is a [state.Store] without a file.
type Store struct {
	mu        sync.Mutex
	closed    bool
	sandboxes map[carrel.ID]row
	events    []event
	seq       int64 // of the newest event
}

var _ state.Store = (*Store)(nil)

// row is one record as written, with what it is sorted by.
type row struct {
	id      carrel.ID
	started time.Time
	body    []byte
}

// event is one event as written, with what it is found by.
type event struct {
	seq  int64
	id   carrel.ID
	time time.Time
	body []byte
}

// Open returns an empty store.
func Open() *Store { return &Store{sandboxes: map[carrel.ID]row{}} }

// PutSandbox implements state.Store.
func (s *Store) PutSandbox(ctx context.Context, r state.Record) error {
	const op = "write record"
	body, err := json.Marshal(r)
	if err != nil {
		return internal(op, r.Sandbox.ID, err)
	}
	if err := s.lock(ctx, op, r.Sandbox.ID); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.sandboxes[r.Sandbox.ID] = row{r.Sandbox.ID, r.Sandbox.Started, body}
	return nil
}

// GetSandbox implements state.Store.
func (s *Store) GetSandbox(ctx context.Context, id carrel.ID) (state.Record, error) {
	const op = "read record"
	if err := s.lock(ctx, op, id); err != nil {
		return state.Record{}, err
	}
	r, ok := s.sandboxes[id]
	s.mu.Unlock()
	if !ok {
		return state.Record{}, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id}
	}
	return decode(r)
}

// DeleteSandbox implements state.Store.
func (s *Store) DeleteSandbox(ctx context.Context, id carrel.ID) error {
	if err := s.lock(ctx, "delete record", id); err != nil {
		return err
	}
	defer s.mu.Unlock()
	delete(s.sandboxes, id)
	return nil
}

// Sandboxes implements state.Store.
func (s *Store) Sandboxes(ctx context.Context) ([]state.Record, error) {
	if err := s.lock(ctx, "read records", ""); err != nil {
		return nil, err
	}
	rows := make([]row, 0, len(s.sandboxes))
	for _, r := range s.sandboxes {
		rows = append(rows, r)
	}
	s.mu.Unlock()
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.id, b.id))
	})
	out := make([]state.Record, 0, len(rows))
	for _, r := range rows {
		rec, err := decode(r)
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, nil
}

// AppendEvent implements state.Store.
func (s *Store) AppendEvent(ctx context.Context, e carrel.Event) (carrel.Event, error) {
	const op = "write event"
	if err := s.lock(ctx, op, e.ID); err != nil {
		return carrel.Event{}, err
	}
	defer s.mu.Unlock()
	e.Seq = s.seq + 1
	body, err := json.Marshal(e)
	if err != nil {
		return carrel.Event{}, internal(op, e.ID, err)
	}
	s.seq++
	s.events = append(s.events, event{e.Seq, e.ID, e.Time, body})
	return e, nil
}

// Events implements state.Store.
func (s *Store) Events(ctx context.Context, id carrel.ID, after int64, limit int) ([]carrel.Event, error) {
	const op = "read events"
	if limit <= 0 {
		limit = defaultLimit
	}
	if err := s.lock(ctx, op, id); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	first, _ := slices.BinarySearchFunc(s.events, after+1, func(e event, seq int64) int { return cmp.Compare(e.seq, seq) })
	var out []carrel.Event
	for _, ev := range s.events[first:] {
		if len(out) == limit {
			break
		}
		if id != "" && ev.id != id {
			continue
		}
		var e carrel.Event
		if err := json.Unmarshal(ev.body, &e); err != nil {
			return nil, internal(op, ev.id, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// TrimEvents implements state.Store.
func (s *Store) TrimEvents(ctx context.Context, before time.Time) error {
	if err := s.lock(ctx, "trim events", ""); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.events = slices.DeleteFunc(s.events, func(e event) bool { return e.time.Before(before) })
	return nil
}

// Close implements state.Store. What was remembered is gone.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.sandboxes, s.events = true, nil, nil
	return nil
}

// lock takes mu unless ctx has ended or the store is closed.
func (s *Store) lock(ctx context.Context, op string, id carrel.ID) error {
	if err := ctx.Err(); err != nil {
		return internal(op, id, err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return internal(op, id, errors.New("the store is closed"))
	}
	return nil
}

func decode(r row) (state.Record, error) {
	var rec state.Record
	if err := json.Unmarshal(r.body, &rec); err != nil {
		return state.Record{}, internal("read record", r.id, err)
	}
	return rec, nil
}

func internal(op string, id carrel.ID, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
}

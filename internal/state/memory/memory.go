// Package memory keeps a service's records in memory. It is the twin of package sqlite, for tests
// and for services that live no longer than their process.
//
// It keeps records in their encoded form, as the file would. So a later change of a caller's value
// never changes the stored record.
package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
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
	snapshots map[carrel.SnapshotID]row
	projects  map[string]row
	keys      map[string]row
	persons   map[string]row
	orgs      map[string]row
	sessions  map[string]row
	deleted   map[string]time.Time // tombstones, by ID
	usage     map[string]piece
	events    []event
	of        map[carrel.ID][]event // the same, by sandbox
	seq       int64                 // of the newest event
}

var _ state.Store = (*Store)(nil)

// row is one encoded record, with its sort keys.
type row struct {
	id   string
	time time.Time
	body []byte
}

// event is one encoded event, with its search keys.
type event struct {
	seq  int64
	id   carrel.ID
	time time.Time
	body []byte
}

// Open returns an empty store.
func Open() *Store {
	return &Store{sandboxes: map[carrel.ID]row{}, snapshots: map[carrel.SnapshotID]row{},
		projects: map[string]row{}, keys: map[string]row{},
		persons: map[string]row{}, orgs: map[string]row{}, sessions: map[string]row{},
		deleted: map[string]time.Time{}, usage: map[string]piece{}, of: map[carrel.ID][]event{}}
}

// PutSandbox implements state.Store.
func (s *Store) PutSandbox(ctx context.Context, r state.Record) error {
	return s.apply(ctx, "write record", r.Sandbox.ID, state.Change{Put: []state.Record{r}})
}

// Apply implements state.Store.
func (s *Store) Apply(ctx context.Context, c state.Change) error {
	return s.apply(ctx, "write change", "", c)
}

// apply makes all writes of a change. Everything that can fail is done before the first write.
func (s *Store) apply(ctx context.Context, op string, id carrel.ID, c state.Change) error {
	var sandboxes, snapshots []row
	for _, r := range c.Put {
		body, err := json.Marshal(r)
		if err != nil {
			return internal(op, r.Sandbox.ID, err)
		}
		sandboxes = append(sandboxes, row{string(r.Sandbox.ID), r.Sandbox.Started, body})
	}
	for _, r := range c.PutSnapshots {
		body, err := json.Marshal(r)
		if err != nil {
			return internal(op, r.Snapshot.Sandbox, fmt.Errorf("snapshot %s: %w", r.Snapshot.ID, err))
		}
		snapshots = append(snapshots, row{string(r.Snapshot.ID), r.Snapshot.Created, body})
	}
	who, err := people(op, c)
	if err != nil {
		return err
	}
	pieces, err := encodePieces(c.PutUsage)
	if err != nil {
		return internal(op, "", err)
	}
	if err := s.lock(ctx, op, id); err != nil {
		return err
	}
	defer s.mu.Unlock()
	change(s.projects, who.projects, c.DeleteProjects)
	change(s.keys, who.keys, c.DeleteKeys)
	change(s.persons, who.persons, c.DeletePeople)
	change(s.orgs, who.orgs, c.DeleteOrganisations)
	change(s.sessions, who.sessions, c.DeleteSessions)
	for _, r := range sandboxes {
		s.sandboxes[carrel.ID(r.id)] = r
		delete(s.deleted, r.id)
	}
	for _, id := range c.Delete {
		delete(s.sandboxes, id)
		s.deleted[string(id)] = time.Now()
	}
	for _, r := range snapshots {
		s.snapshots[carrel.SnapshotID(r.id)] = r
		delete(s.deleted, r.id)
	}
	for _, id := range c.DeleteSnapshots {
		delete(s.snapshots, id)
		s.deleted[string(id)] = time.Now()
	}
	for _, id := range c.Bury {
		s.deleted[string(id)] = time.Now()
	}
	for _, id := range c.DropUsage {
		delete(s.usage, id)
	}
	maps.Copy(s.usage, pieces)
	return nil
}

// peopleRows are the rows of a change that are about people and what they own.
type peopleRows struct{ projects, keys, persons, orgs, sessions []row }

// people encodes a change's projects, keys, people, organisations and sessions.
func people(op string, c state.Change) (out peopleRows, err error) {
	add := func(to *[]row, id string, created time.Time, record any) {
		body, merr := json.Marshal(record)
		if merr != nil && err == nil {
			err = internal(op, "", fmt.Errorf("%s: %w", id, merr))
		}
		*to = append(*to, row{id, created, body})
	}
	for _, r := range c.PutProjects {
		add(&out.projects, r.Project.Name, r.Project.Created, r)
	}
	for _, r := range c.PutKeys {
		add(&out.keys, r.Key.ID, r.Key.Created, r)
	}
	for _, r := range c.PutPeople {
		add(&out.persons, r.Person.ID, r.Person.Created, r)
	}
	for _, r := range c.PutOrganisations {
		add(&out.orgs, r.Organisation.Name, r.Organisation.Created, r)
	}
	for _, r := range c.PutSessions {
		add(&out.sessions, r.ID, r.Created, r)
	}
	return out, err
}

// change puts rows into a table and deletes others.
func change(rows map[string]row, put []row, remove []string) {
	for _, r := range put {
		rows[r.id] = r
	}
	for _, id := range remove {
		delete(rows, id)
	}
}

// Projects implements state.Store.
func (s *Store) Projects(ctx context.Context) ([]state.ProjectRecord, error) {
	return list[state.ProjectRecord](ctx, s, "read projects", func() map[string]row { return s.projects })
}

// Keys implements state.Store.
func (s *Store) Keys(ctx context.Context) ([]state.KeyRecord, error) {
	return list[state.KeyRecord](ctx, s, "read keys", func() map[string]row { return s.keys })
}

// People implements state.Store.
func (s *Store) People(ctx context.Context) ([]state.PersonRecord, error) {
	return list[state.PersonRecord](ctx, s, "read people",
		func() map[string]row { return s.persons })
}

// Organisations implements state.Store.
func (s *Store) Organisations(ctx context.Context) ([]state.OrganisationRecord, error) {
	return list[state.OrganisationRecord](ctx, s, "read organisations",
		func() map[string]row { return s.orgs })
}

// Sessions implements state.Store.
func (s *Store) Sessions(ctx context.Context) ([]state.SessionRecord, error) {
	return list[state.SessionRecord](ctx, s, "read sessions",
		func() map[string]row { return s.sessions })
}

// list decodes the rows of a table.
func list[T any](ctx context.Context, s *Store, op string, table func() map[string]row) ([]T, error) {
	if err := s.lock(ctx, op, ""); err != nil {
		return nil, err
	}
	rows := slices.Collect(maps.Values(table()))
	s.mu.Unlock()
	return decodeAll[T](rows)
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
	return decode[state.Record](r)
}

// GetSnapshot implements state.Store.
func (s *Store) GetSnapshot(ctx context.Context, id carrel.SnapshotID) (state.SnapshotRecord, error) {
	const op = "read snapshot record"
	if err := s.lock(ctx, op, ""); err != nil {
		return state.SnapshotRecord{}, err
	}
	r, ok := s.snapshots[id]
	s.mu.Unlock()
	if !ok {
		return state.SnapshotRecord{}, &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("no snapshot %s", id)}
	}
	return decode[state.SnapshotRecord](r)
}

// DeleteSandbox implements state.Store.
func (s *Store) DeleteSandbox(ctx context.Context, id carrel.ID) error {
	return s.apply(ctx, "delete record", id, state.Change{Delete: []carrel.ID{id}})
}

// Sandboxes implements state.Store.
func (s *Store) Sandboxes(ctx context.Context) ([]state.Record, error) {
	if err := s.lock(ctx, "read records", ""); err != nil {
		return nil, err
	}
	rows := slices.Collect(maps.Values(s.sandboxes))
	s.mu.Unlock()
	return decodeAll[state.Record](rows)
}

// Snapshots implements state.Store.
func (s *Store) Snapshots(ctx context.Context) ([]state.SnapshotRecord, error) {
	if err := s.lock(ctx, "read snapshot records", ""); err != nil {
		return nil, err
	}
	rows := slices.Collect(maps.Values(s.snapshots))
	s.mu.Unlock()
	return decodeAll[state.SnapshotRecord](rows)
}

// Tombstones implements state.Store.
func (s *Store) Tombstones(ctx context.Context) (state.Tombstones, error) {
	var out state.Tombstones
	if err := s.lock(ctx, "read tombstones", ""); err != nil {
		return out, err
	}
	defer s.mu.Unlock()
	for id := range s.deleted {
		out.Add(id)
	}
	return out, nil
}

// TrimTombstones implements state.Store.
func (s *Store) TrimTombstones(ctx context.Context, before time.Time) error {
	if err := s.lock(ctx, "trim tombstones", ""); err != nil {
		return err
	}
	defer s.mu.Unlock()
	maps.DeleteFunc(s.deleted, func(_ string, at time.Time) bool { return at.Before(before) })
	return nil
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
	ev := event{e.Seq, e.ID, e.Time, body}
	s.events, s.of[e.ID] = append(s.events, ev), append(s.of[e.ID], ev)
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
	list := s.eventsOf(id)
	list = list[place(list, after+1):]
	return decodeEvents(op, list[:min(limit, len(list))])
}

// EventsBefore implements state.Store.
func (s *Store) EventsBefore(ctx context.Context, id carrel.ID, seq int64, limit int) ([]carrel.Event, error) {
	const op = "read events"
	if limit <= 0 {
		limit = defaultLimit
	}
	if seq == 0 {
		seq = math.MaxInt64
	}
	if err := s.lock(ctx, op, id); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	list := s.eventsOf(id)
	end := place(list, seq)
	out, err := decodeEvents(op, list[max(0, end-limit):end])
	slices.Reverse(out)
	return out, err
}

// eventsOf returns the events of one sandbox, or all for "". The caller holds mu.
func (s *Store) eventsOf(id carrel.ID) []event {
	if id == "" {
		return s.events
	}
	return s.of[id]
}

// place returns the index of the first event whose number is seq or more.
func place(list []event, seq int64) int {
	first, _ := slices.BinarySearchFunc(list, seq, func(e event, seq int64) int { return cmp.Compare(e.seq, seq) })
	return first
}

// decodeEvents decodes events.
func decodeEvents(op string, list []event) ([]carrel.Event, error) {
	var out []carrel.Event
	for _, ev := range list {
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
	old := func(e event) bool { return e.time.Before(before) }
	s.events = slices.DeleteFunc(s.events, old)
	for id, list := range s.of {
		if s.of[id] = slices.DeleteFunc(list, old); len(s.of[id]) == 0 {
			delete(s.of, id)
		}
	}
	return nil
}

// Close implements state.Store. It drops all records.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.sandboxes, s.snapshots, s.deleted, s.events, s.of = true, nil, nil, nil, nil, nil
	s.projects, s.keys, s.usage = nil, nil, nil
	s.persons, s.orgs, s.sessions = nil, nil, nil
	return nil
}

// lock takes mu. It returns an error if ctx has ended or the store is closed.
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

// decode decodes a record.
func decode[T any](r row) (T, error) {
	var v T
	if err := json.Unmarshal(r.body, &v); err != nil {
		return v, internal("read record", "", fmt.Errorf("%s: %w", r.id, err))
	}
	return v, nil
}

// decodeAll decodes records, the oldest first.
func decodeAll[T any](rows []row) ([]T, error) {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.id, b.id))
	})
	out := make([]T, 0, len(rows))
	for _, r := range rows {
		v, err := decode[T](r)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func internal(op string, id carrel.ID, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
}

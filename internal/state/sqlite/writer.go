package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// The statements of the writer, by the names that they have in the ledger. A name never changes.
const (
	opPutSandbox     = "put sandbox"     // id, started, record
	opDeleteSandbox  = "delete sandbox"  // id
	opPutSnapshot    = "put snapshot"    // id, sandbox, created, record
	opDeleteSnapshot = "delete snapshot" // id
	opPutProject     = "put project"     // name, created, record
	opDeleteProject  = "delete project"  // name
	opPutKey         = "put key"         // id, created, record
	opDeleteKey      = "delete key"      // id
	opPutPerson      = "put person"      // id, created, record
	opDeletePerson   = "delete person"   // id
	opPutSession     = "put session"     // id, created, record
	opDeleteSession  = "delete session"  // id
	opEvent          = "event"           // time, sandbox, body; in the ledger also seq
	opTrimEvents     = "trim events"     // time
	opTombstone      = "tombstone"       // id, time
	opUnbury         = "unbury"          // id
	opTrimTombstones = "trim tombstones" // time
	opPutUsage       = "put usage"       // id, start, until, body
	opDropUsage      = "drop usage"      // id

	opPutOrganisation    = "put organisation"    // name, created, record
	opDeleteOrganisation = "delete organisation" // name

	// In the ledger's base only: the number of the newest event.
	opFirstSequence = "first sequence"
	opSequence      = "sequence"
)

// queries are the SQL texts of the statements.
var queries = map[string]string{
	opPutSandbox: `INSERT INTO sandboxes (id, started, record) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET started = excluded.started, record = excluded.record`,
	opDeleteSandbox: `DELETE FROM sandboxes WHERE id = ?`,
	opPutSnapshot: `INSERT INTO snapshots (id, sandbox, created, record) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET sandbox = excluded.sandbox, created = excluded.created, record = excluded.record`,
	opDeleteSnapshot: `DELETE FROM snapshots WHERE id = ?`,
	opPutProject: `INSERT INTO projects (name, created, record) VALUES (?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET created = excluded.created, record = excluded.record`,
	opDeleteProject: `DELETE FROM projects WHERE name = ?`,
	opPutKey: `INSERT INTO keys (id, created, record) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET created = excluded.created, record = excluded.record`,
	opDeleteKey: `DELETE FROM keys WHERE id = ?`,
	opPutPerson: `INSERT INTO people (id, created, record) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET created = excluded.created, record = excluded.record`,
	opDeletePerson: `DELETE FROM people WHERE id = ?`,
	opPutOrganisation: `INSERT INTO organisations (name, created, record) VALUES (?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET created = excluded.created, record = excluded.record`,
	opDeleteOrganisation: `DELETE FROM organisations WHERE name = ?`,
	opPutSession: `INSERT INTO sessions (id, created, record) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET created = excluded.created, record = excluded.record`,
	opDeleteSession:  `DELETE FROM sessions WHERE id = ?`,
	opEvent:          `INSERT INTO events (time, sandbox, body) VALUES (?, ?, ?)`,
	opTrimEvents:     `DELETE FROM events WHERE time < ?`,
	opTombstone:      `INSERT INTO tombstones (id, time) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET time = excluded.time`,
	opUnbury:         `DELETE FROM tombstones WHERE id = ?`,
	opTrimTombstones: `DELETE FROM tombstones WHERE time < ?`,
	opPutUsage: `INSERT INTO usage (id, start, until, body) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET start = excluded.start, until = excluded.until, body = excluded.body`,
	opDropUsage: `DELETE FROM usage WHERE id = ?`,
}

// replayQueries are the SQL texts of the same statements when they come from the ledger. They write
// whole rows: an event keeps its number.
var replayQueries = func() map[string]string {
	m := maps.Clone(queries)
	for _, t := range tables {
		m[t.put] = t.replacement()
	}
	m[opFirstSequence] = `INSERT INTO sqlite_sequence (name, seq) SELECT 'events', ? WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'events')`
	m[opSequence] = `UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'events'`
	return m
}()

// statement is one SQL text with its parameters: strings and numbers.
type statement struct {
	Op   string `json:"op"`
	Args []any  `json:"args"`
}

// write is one caller's set of statements, on its way to the writer.
type write struct {
	statements []statement
	rowID      int64      // of the last statement, an insert, when done
	done       chan error // buffered: the writer never waits for a caller that left
}

// PutSandbox implements state.Store.
func (s *Store) PutSandbox(ctx context.Context, r state.Record) error {
	const op = "write record"
	put, err := putRecord(r)
	if err != nil {
		return internal(op, r.Sandbox.ID, err)
	}
	_, err = s.submit(ctx, op, r.Sandbox.ID, put...)
	return err
}

// DeleteSandbox implements state.Store.
func (s *Store) DeleteSandbox(ctx context.Context, id carrel.ID) error {
	_, err := s.submit(ctx, "delete record", id, remove(opDeleteSandbox, string(id))...)
	return err
}

// Apply implements state.Store. The statements of a change stay together: the writer puts them into
// one transaction, with other writes or alone.
func (s *Store) Apply(ctx context.Context, c state.Change) error {
	const op = "write change"
	var list []statement
	for _, r := range c.Put {
		put, err := putRecord(r)
		if err != nil {
			return internal(op, r.Sandbox.ID, err)
		}
		list = append(list, put...)
	}
	for _, id := range c.Delete {
		list = append(list, remove(opDeleteSandbox, string(id))...)
	}
	for _, r := range c.PutSnapshots {
		body, err := json.Marshal(r)
		if err != nil {
			return internal(op, r.Snapshot.Sandbox, fmt.Errorf("snapshot %s: %w", r.Snapshot.ID, err))
		}
		list = append(list, statement{opUnbury, []any{string(r.Snapshot.ID)}}, statement{opPutSnapshot,
			[]any{string(r.Snapshot.ID), string(r.Snapshot.Sandbox), stamp(r.Snapshot.Created), string(body)}})
	}
	for _, id := range c.DeleteSnapshots {
		list = append(list, remove(opDeleteSnapshot, string(id))...)
	}
	for _, id := range c.Bury {
		list = append(list, statement{opTombstone, []any{string(id), stamp(time.Now())}})
	}
	people, err := putPeople(c)
	if err != nil {
		return internal(op, "", err)
	}
	usage, err := usageStatements(c)
	if err != nil {
		return internal(op, "", err)
	}
	_, err = s.submit(ctx, op, subject(c), slices.Concat(list, people, usage)...)
	return err
}

// putPeople lists the statements that write a change's projects, keys and people.
func putPeople(c state.Change) (list []statement, err error) {
	put := func(op, id string, created time.Time, record any) error {
		body, err := json.Marshal(record)
		list = append(list, statement{op, []any{id, stamp(created), string(body)}})
		return err
	}
	for _, r := range c.PutProjects {
		if err := put(opPutProject, r.Project.Name, r.Project.Created, r); err != nil {
			return nil, fmt.Errorf("project %s: %w", r.Project.Name, err)
		}
	}
	for _, name := range c.DeleteProjects {
		list = append(list, statement{opDeleteProject, []any{name}})
	}
	for _, r := range c.PutKeys {
		if err := put(opPutKey, r.Key.ID, r.Key.Created, r); err != nil {
			return nil, fmt.Errorf("key %s: %w", r.Key.ID, err)
		}
	}
	for _, id := range c.DeleteKeys {
		list = append(list, statement{opDeleteKey, []any{id}})
	}
	for _, r := range c.PutPeople {
		if err := put(opPutPerson, r.Person.ID, r.Person.Created, r); err != nil {
			return nil, fmt.Errorf("person %s: %w", r.Person.ID, err)
		}
	}
	for _, r := range c.PutOrganisations {
		if err := put(opPutOrganisation, r.Organisation.Name, r.Organisation.Created, r); err != nil {
			return nil, fmt.Errorf("organisation %s: %w", r.Organisation.Name, err)
		}
	}
	for _, r := range c.PutSessions {
		if err := put(opPutSession, r.ID, r.Created, r); err != nil {
			return nil, fmt.Errorf("session %s: %w", r.ID, err)
		}
	}
	for _, gone := range []struct {
		op   string
		keys []string
	}{{opDeletePerson, c.DeletePeople}, {opDeleteOrganisation, c.DeleteOrganisations},
		{opDeleteSession, c.DeleteSessions}} {
		for _, key := range gone.keys {
			list = append(list, statement{gone.op, []any{key}})
		}
	}
	return list, nil
}

// subject is the sandbox that an error about a change names. It is the only sandbox that the change
// writes, or "".
func subject(c state.Change) carrel.ID {
	switch {
	case len(c.Put) == 1 && len(c.Delete) == 0:
		return c.Put[0].Sandbox.ID
	case len(c.Put) == 0 && len(c.Delete) == 1:
		return c.Delete[0]
	}
	return ""
}

// putRecord lists the statements that write one record.
func putRecord(r state.Record) ([]statement, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	id := string(r.Sandbox.ID)
	return []statement{{opUnbury, []any{id}}, {opPutSandbox, []any{id, stamp(r.Sandbox.Started), string(body)}}}, nil
}

// remove lists the statements that delete one record and leave a tombstone.
func remove(op, id string) []statement {
	return []statement{{op, []any{id}}, {opTombstone, []any{id, stamp(time.Now())}}}
}

// TrimTombstones implements state.Store.
func (s *Store) TrimTombstones(ctx context.Context, before time.Time) error {
	_, err := s.submit(ctx, "trim tombstones", "", statement{opTrimTombstones, []any{stamp(before)}})
	return err
}

// AppendEvent implements state.Store.
func (s *Store) AppendEvent(ctx context.Context, e carrel.Event) (carrel.Event, error) {
	const op = "write event"
	body, err := json.Marshal(e)
	if err != nil {
		return carrel.Event{}, internal(op, e.ID, err)
	}
	e.Seq, err = s.submit(ctx, op, e.ID, statement{opEvent, []any{stamp(e.Time), string(e.ID), string(body)}})
	if err != nil {
		return carrel.Event{}, err
	}
	return e, nil
}

// TrimEvents implements state.Store.
func (s *Store) TrimEvents(ctx context.Context, before time.Time) error {
	_, err := s.submit(ctx, "trim events", "", statement{opTrimEvents, []any{stamp(before)}})
	return err
}

// submit hands statements to the writer. It returns when all of them are on the disk, or none is.
// If ctx ends first, they may still be carried out.
func (s *Store) submit(ctx context.Context, op string, id carrel.ID, list ...statement) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, internal(op, id, err)
	}
	w := &write{statements: list, done: make(chan error, 1)}
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return 0, internal(op, id, errors.New("the store is closed"))
	}
	select {
	case s.writes <- w:
		s.mu.RUnlock()
	case <-ctx.Done():
		s.mu.RUnlock()
		return 0, internal(op, id, ctx.Err())
	}
	select {
	case err := <-w.done:
		if err != nil {
			return 0, s.writeError(op, id, err)
		}
		return w.rowID, nil
	case <-ctx.Done():
		return 0, internal(op, id, ctx.Err())
	}
}

// writeError adds a hint to the error of a write that the disk refused.
func (s *Store) writeError(op string, id carrel.ID, err error) error {
	if failedWith(err, codeFull) {
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "disk", ID: id, Err: err,
			Hint: "free some disk space under the data directory"}
	}
	return &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err,
		Hint: "is the disk that holds " + s.path + " full or read-only?"}
}

// SQLite's error codes for a disk without room.
const (
	codeIOError = 10
	codeFull    = 13
)

// SQLite's error codes for a file that other programs or the system keep from being used.
const (
	codePermission = 3
	codeBusy       = 5
	codeLocked     = 6
	codeReadOnly   = 8
	codeCantOpen   = 14
)

// failedWith reports whether SQLite returned one of these codes, or an extended form of one.
func failedWith(err error, codes ...int) bool {
	var e interface{ Code() int }
	return errors.As(err, &e) && slices.Contains(codes, e.Code()&0xff)
}

// writer carries out writes until Close. All waiting writes go into one transaction.
func (s *Store) writer() {
	defer close(s.done)
	defer s.release()
	batch := make([]*write, 0, maxBatch)
	for first := range s.writes {
		batch = append(batch[:0], first)
	more:
		for len(batch) < maxBatch {
			select {
			case w, ok := <-s.writes:
				if !ok {
					break more
				}
				batch = append(batch, w)
			default:
				break more
			}
		}
		err := s.commit(batch)
		for failedWith(err, codeFull, codeIOError) && s.giveReserve() {
			err = s.commit(batch)
		}
		for _, w := range batch {
			w.done <- err
		}
		s.tendLedger()
	}
}

// giveReserve reports whether there is some room now that was not there before.
func (s *Store) giveReserve() bool {
	give := s.reserve.Load()
	return give != nil && (*give)()
}

// commit carries out a whole batch, durably, or nothing of it. The ledger gets the batch
// afterwards, because it must never have a change that the state file refused.
func (s *Store) commit(batch []*write) error {
	ctx := context.Background() // one caller that gives up must not stop the others
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var done []statement
	for _, w := range batch {
		list, err := w.run(ctx, tx)
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		done = append(done, list...)
	}
	if _, err := tx.ExecContext(ctx, "UPDATE meta SET value = ? WHERE key = ?", s.change+1, metaChange); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.change++
	s.ledger.append(s.change, done)
	return nil
}

// run carries out one caller's statements, and returns them as the ledger has them.
func (w *write) run(ctx context.Context, tx *sql.Tx) ([]statement, error) {
	out := slices.Clone(w.statements)
	for i, st := range w.statements {
		res, err := tx.ExecContext(ctx, queries[st.Op], st.Args...)
		if err != nil {
			return nil, err
		}
		if w.rowID, err = res.LastInsertId(); err != nil {
			return nil, err
		}
		if st.Op == opEvent {
			out[i].Args = append(slices.Clone(st.Args), w.rowID)
		}
	}
	return out, nil
}

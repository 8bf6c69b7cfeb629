package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// statement is one SQL text with its parameters.
type statement struct {
	sql  string
	args []any
}

// A write is one caller's set of statements, on its way to the writer.
type write struct {
	fences     []Fence // checked first
	statements []statement
	event      bool  // its only statement is putEvent
	seq        int64 // of the event, when done

	// taken says who decides about the write: the writer, when it takes it into a transaction, or
	// its caller, when it gives up before that. The first to set it wins.
	taken atomic.Bool
	done  chan error // buffered: the writer never waits for a caller that left
}

// PutSandbox implements state.Store.
func (s *Store) PutSandbox(ctx context.Context, r state.Record) error {
	const op = "write record"
	put, err := putRecord(r)
	if err != nil {
		return internal(op, r.Sandbox.ID, err)
	}
	return s.submit(ctx, op, r.Sandbox.ID, &write{statements: put})
}

// DeleteSandbox implements state.Store.
func (s *Store) DeleteSandbox(ctx context.Context, id carrel.ID) error {
	return s.submit(ctx, "delete record", id, &write{statements: remove(deleteSandbox, string(id))})
}

// Apply implements state.Store. The statements of a change stay together: the writer puts them into
// one transaction, with other writes or alone.
func (s *Store) Apply(ctx context.Context, c state.Change) error { return s.apply(ctx, c, nil) }

// apply makes the writes of a change if all fences hold.
func (s *Store) apply(ctx context.Context, c state.Change, fences []Fence) error {
	const op = "write change"
	list, err := changeStatements(c)
	if err != nil {
		return internal(op, subject(c), err)
	}
	return s.submit(ctx, op, subject(c), &write{statements: list, fences: fences})
}

// TrimTombstones implements state.Store.
func (s *Store) TrimTombstones(ctx context.Context, before time.Time) error {
	return s.submit(ctx, "trim tombstones", "", &write{statements: []statement{{trimTombstones, []any{stamp(before)}}}})
}

// TrimEvents implements state.Store.
func (s *Store) TrimEvents(ctx context.Context, before time.Time) error {
	return s.submit(ctx, "trim events", "", &write{statements: []statement{{trimEvents, []any{stamp(before)}}}})
}

// AppendEvent implements state.Store.
func (s *Store) AppendEvent(ctx context.Context, e carrel.Event) (carrel.Event, error) {
	const op = "write event"
	body, err := json.Marshal(e)
	if err != nil {
		return carrel.Event{}, internal(op, e.ID, err)
	}
	w := &write{event: true, statements: []statement{{putEvent, []any{stamp(e.Time), key(string(e.ID)), string(body)}}}}
	if err := s.submit(ctx, op, e.ID, w); err != nil {
		return carrel.Event{}, err
	}
	e.Seq = w.seq
	return e, nil
}

// submit hands a write to the writer. It returns when all of it is on the disk, or none is. If ctx
// ends while the writer has it, it may still be carried out: the error is a [state.ErrUnknown], too.
func (s *Store) submit(ctx context.Context, op string, id carrel.ID, w *write) error {
	if err := ended(ctx, op, id, nil); err != nil {
		return err
	}
	w.done = make(chan error, 1)
	late := time.NewTimer(s.timeout)
	defer late.Stop()
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return internal(op, id, errClosed)
	}
	select {
	case s.writes <- w:
		s.mu.RUnlock()
	case <-ctx.Done():
		s.mu.RUnlock()
		return internal(op, id, ctx.Err())
	case <-late.C:
		s.mu.RUnlock()
		return mapError(op, id, errAway)
	}
	for {
		select {
		case err := <-w.done:
			if err != nil {
				return mapError(op, id, err)
			}
			return nil
		case <-ctx.Done():
			if w.taken.CompareAndSwap(false, true) {
				return internal(op, id, ctx.Err())
			}
			return internal(op, id, fmt.Errorf("%w: %w", state.ErrUnknown, ctx.Err()))
		case <-late.C:
			if w.taken.CompareAndSwap(false, true) {
				return mapError(op, id, errAway)
			}
			// The writer has it, and ends in bounded time.
		}
	}
}

// writer carries out writes until Close. All waiting writes go into one transaction.
func (s *Store) writer() {
	defer close(s.done)
	defer s.read.Close()
	defer s.write.Close()
	defer s.leave()
	for first := range s.writes {
		batch := []*write{first}
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
		batch = slices.DeleteFunc(batch, func(w *write) bool { return !w.taken.CompareAndSwap(false, true) })
		s.carryOut(batch)
	}
}

// carryOut makes the writes of a batch and answers all its callers. It makes the transaction again
// if it did not happen for a passing reason, and without a write that the server refuses.
func (s *Store) carryOut(batch []*write) {
	for len(batch) > 0 {
		refused := -1
		err := s.try(context.Background(), func(ctx context.Context) (err error) {
			refused, err = s.transact(ctx, batch)
			return err
		})
		if refused < 0 {
			for _, w := range batch {
				w.done <- err
			}
			return
		}
		batch[refused].done <- err
		batch = slices.Delete(batch, refused, refused+1)
	}
}

// transact makes one transaction of a batch: all of it happens, or nothing. If the error is one of a
// single write, refused is its place; otherwise it is -1.
func (s *Store) transact(ctx context.Context, batch []*write) (refused int, err error) {
	c, err := s.write.Acquire(ctx)
	if err != nil {
		return -1, err
	}
	defer c.Release()
	tx, err := c.Begin(ctx)
	if err != nil {
		return -1, broken(c.Conn(), err)
	}
	s.number++
	if refused, err = s.fill(ctx, tx, batch); err != nil {
		err = broken(c.Conn(), err)
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		_ = tx.Rollback(bound) // without a commit, nothing happens
		return refused, err
	}
	if err := tx.Commit(ctx); err != nil {
		err = broken(c.Conn(), err)
		if code := codeOf(err); code != "" && classOf(code) != classOperator && !c.Conn().IsClosed() {
			return -1, err // the server refused it
		}
		c.Release() // the only one: the question needs another
		return -1, s.settle(err)
	}
	return -1, nil
}

// fill sends all statements of a batch at once, and reads their results.
func (s *Store) fill(ctx context.Context, tx pgx.Tx, batch []*write) (refused int, err error) {
	b := &pgx.Batch{}
	b.Queue("SELECT pg_advisory_xact_lock_shared($1)", schemaLock)
	// No row is written if the tables have another version by now.
	b.Queue(`INSERT INTO writers AS w (store, number, void, seen)
		SELECT $1, $2, false, clock_timestamp() FROM version WHERE number = $3
		ON CONFLICT (store) DO UPDATE SET number = excluded.number, void = false, seen = excluded.seen
		WHERE w.number < excluded.number`, s.id, s.number, len(migrations))
	// Events come last: they hold the row of their number until the end of the transaction. Another
	// program's transaction that waits for it holds nothing that this one waits for.
	order := make([]int, 0, len(batch))
	for _, event := range []bool{false, true} {
		for i, w := range batch {
			if w.event == event {
				order = append(order, i)
				w.queue(b)
			}
		}
	}
	results := tx.SendBatch(ctx, b)
	defer func() {
		if cerr := results.Close(); err == nil && cerr != nil {
			refused, err = -1, cerr
		}
	}()
	if _, err := results.Exec(); err != nil {
		return -1, err
	}
	switch tag, err := results.Exec(); {
	case err != nil:
		return -1, err
	case tag.RowsAffected() != 1:
		return -1, &carrel.Error{Op: "write to database", Kind: carrel.Unsupported, Field: "database",
			Err:  fmt.Errorf("the tables are no longer of version %d", len(migrations)),
			Hint: "a newer carrel uses this database now: run that version or a later one"}
	}
	for _, i := range order {
		if err := batch[i].results(results); err != nil {
			if ownFault(err) {
				return i, err
			}
			return -1, err
		}
	}
	return -1, nil
}

// queue adds a write's fences and statements to a batch.
func (w *write) queue(b *pgx.Batch) {
	for _, f := range w.fences {
		b.Queue(checkFence, key(string(f.Sandbox)))
	}
	for _, st := range w.statements {
		b.Queue(st.sql, st.args...)
	}
}

// results reads the results of a write's fences and statements.
func (w *write) results(results pgx.BatchResults) error {
	for _, f := range w.fences {
		var token int64
		err := results.QueryRow().Scan(&token)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if err := f.against(token); err != nil {
			return err
		}
	}
	if w.event {
		return results.QueryRow().Scan(&w.seq)
	}
	for range w.statements {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	return nil
}

// errVoid says that a transaction whose commit was not answered did not happen, and never will.
var errVoid = fmt.Errorf("%w before the commit", errBroken)

// settle finds out what became of the last transaction, whose commit has the error lost. It returns
// nil if it happened, errVoid if not, and otherwise an error that holds [state.ErrUnknown].
//
// The first statement waits for a transaction that is still on its way. It leaves a mark: whatever
// the lost connection still does, the number can't be written any more. Both may be repeated.
func (s *Store) settle(lost error) error {
	var void bool
	var number int64
	err := s.try(context.Background(), func(ctx context.Context) error {
		return withConn(ctx, s.write, func(ctx context.Context, c *pgxpool.Conn) error {
			_, err := c.Exec(ctx, `INSERT INTO writers AS w (store, number, void, seen)
				VALUES ($1, $2, true, clock_timestamp())
				ON CONFLICT (store) DO UPDATE SET number = excluded.number, void = true, seen = excluded.seen
				WHERE w.number < excluded.number`, s.id, s.number)
			if err != nil {
				return err
			}
			return c.QueryRow(ctx, "SELECT number, void FROM writers WHERE store = $1", s.id).Scan(&number, &void)
		})
	})
	switch {
	case err != nil:
		return &carrel.Error{Op: "commit", Kind: carrel.Unavailable, Err: errors.Join(state.ErrUnknown, lost, err),
			Hint: "the database went away in the middle of a write: look whether it happened before you repeat it"}
	case number != s.number:
		return &carrel.Error{Op: "commit", Kind: carrel.Unavailable,
			Err: fmt.Errorf("%w: transaction %d, and the database has %d", state.ErrUnknown, s.number, number)}
	case void:
		return errVoid
	}
	return nil
}

// leave takes the store's row from the table writers, with those of stores that were not closed and
// have been silent for long. If it fails, a later one does it.
func (s *Store) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_, _ = s.write.Exec(ctx, `DELETE FROM writers WHERE store = $1 OR seen < clock_timestamp() - interval '30 days'`, s.id)
}

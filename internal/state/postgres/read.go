package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// Steps between the tries of a call that met a passing error.
const (
	firstStep = 20 * time.Millisecond
	lastStep  = 500 * time.Millisecond
)

// GetSandbox implements state.Store.
func (s *Store) GetSandbox(ctx context.Context, id carrel.ID) (state.Record, error) {
	const op = "read record"
	r, err := one[state.Record](ctx, s, op, id, "SELECT record FROM sandboxes WHERE id = $1", key(string(id)))
	if errors.Is(err, pgx.ErrNoRows) {
		return r, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id}
	}
	return r, err
}

// GetSnapshot implements state.Store.
func (s *Store) GetSnapshot(ctx context.Context, id carrel.SnapshotID) (state.SnapshotRecord, error) {
	const op = "read snapshot record"
	r, err := one[state.SnapshotRecord](ctx, s, op, "", "SELECT record FROM snapshots WHERE id = $1", key(string(id)))
	if errors.Is(err, pgx.ErrNoRows) {
		return r, &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("no snapshot %s", id)}
	}
	return r, err
}

// Snapshots implements state.Store.
func (s *Store) Snapshots(ctx context.Context) ([]state.SnapshotRecord, error) {
	return all[state.SnapshotRecord](ctx, s, "read snapshot records", "SELECT record FROM snapshots ORDER BY created, id")
}

// Sandboxes implements state.Store.
func (s *Store) Sandboxes(ctx context.Context) ([]state.Record, error) {
	return all[state.Record](ctx, s, "read records", "SELECT record FROM sandboxes ORDER BY started, id")
}

// Projects implements state.Store.
func (s *Store) Projects(ctx context.Context) ([]state.ProjectRecord, error) {
	return all[state.ProjectRecord](ctx, s, "read projects", "SELECT record FROM projects ORDER BY created, id")
}

// Keys implements state.Store.
func (s *Store) Keys(ctx context.Context) ([]state.KeyRecord, error) {
	return all[state.KeyRecord](ctx, s, "read keys", "SELECT record FROM keys ORDER BY created, id")
}

// People implements state.Store.
func (s *Store) People(ctx context.Context) ([]state.PersonRecord, error) {
	return all[state.PersonRecord](ctx, s, "read people", "SELECT record FROM people ORDER BY created, id")
}

// Organisations implements state.Store.
func (s *Store) Organisations(ctx context.Context) ([]state.OrganisationRecord, error) {
	return all[state.OrganisationRecord](ctx, s, "read organisations", "SELECT record FROM organisations ORDER BY created, id")
}

// Sessions implements state.Store.
func (s *Store) Sessions(ctx context.Context) ([]state.SessionRecord, error) {
	return all[state.SessionRecord](ctx, s, "read sessions", "SELECT record FROM sessions ORDER BY created, id")
}

// Tombstones implements state.Store.
func (s *Store) Tombstones(ctx context.Context) (state.Tombstones, error) {
	var out state.Tombstones
	err := s.look(ctx, "read tombstones", "", func(ctx context.Context, c *pgxpool.Conn) error {
		out = state.Tombstones{}
		rows, err := c.Query(ctx, "SELECT id FROM tombstones ORDER BY id")
		if err != nil {
			return err
		}
		var id []byte
		_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
			out.Add(string(id))
			return nil
		})
		return err
	})
	return out, err
}

// Events implements state.Store.
func (s *Store) Events(ctx context.Context, id carrel.ID, after int64, limit int) ([]carrel.Event, error) {
	if limit <= 0 {
		limit = defaultLimit
	}
	if id == "" {
		return s.events(ctx, "SELECT seq, body FROM events WHERE seq > $1 ORDER BY seq LIMIT $2", after, limit)
	}
	return s.events(ctx, "SELECT seq, body FROM events WHERE sandbox = $1 AND seq > $2 ORDER BY seq LIMIT $3",
		key(string(id)), after, limit)
}

// EventsBefore implements state.Store.
func (s *Store) EventsBefore(ctx context.Context, id carrel.ID, seq int64, limit int) ([]carrel.Event, error) {
	if limit <= 0 {
		limit = defaultLimit
	}
	if seq == 0 {
		seq = math.MaxInt64
	}
	if id == "" {
		return s.events(ctx, "SELECT seq, body FROM events WHERE seq < $1 ORDER BY seq DESC LIMIT $2", seq, limit)
	}
	return s.events(ctx, "SELECT seq, body FROM events WHERE sandbox = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3",
		key(string(id)), seq, limit)
}

// events reads the events of a query. One that is unreadable must not hide the others.
func (s *Store) events(ctx context.Context, q string, args ...any) ([]carrel.Event, error) {
	var out []carrel.Event
	err := s.look(ctx, "read events", "", func(ctx context.Context, c *pgxpool.Conn) error {
		out = nil
		rows, err := c.Query(ctx, q, args...)
		if err != nil {
			return err
		}
		var seq int64
		var body string
		_, err = pgx.ForEachRow(rows, []any{&seq, &body}, func() error {
			var e carrel.Event
			if json.Unmarshal([]byte(body), &e) == nil {
				e.Seq = seq // the database assigned it after the body was encoded
				out = append(out, e)
			}
			return nil
		})
		return err
	})
	return out, err
}

// one reads the JSON text of a query's row. If there is no row, it returns pgx.ErrNoRows.
func one[T any](ctx context.Context, s *Store, op string, id carrel.ID, q string, arg []byte) (v T, err error) {
	missing := false
	err = s.look(ctx, op, id, func(ctx context.Context, c *pgxpool.Conn) error {
		var body string
		if err := c.QueryRow(ctx, q, arg).Scan(&body); err != nil {
			missing = errors.Is(err, pgx.ErrNoRows)
			if missing {
				return nil
			}
			return err
		}
		return json.Unmarshal([]byte(body), &v)
	})
	if err == nil && missing {
		err = pgx.ErrNoRows
	}
	return v, err
}

// all reads the JSON texts of a query's rows.
func all[T any](ctx context.Context, s *Store, op, q string) ([]T, error) {
	var out []T
	err := s.pages(ctx, op, q, nil, func(body string) error {
		var v T
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			return internal(op, "", err)
		}
		out = append(out, v)
		return nil
	})
	return out, err
}

// look calls fn with a connection, within the store's timeout. After a passing error it calls fn
// again, so fn must begin anew each time and must only read.
func (s *Store) look(ctx context.Context, op string, id carrel.ID, fn func(context.Context, *pgxpool.Conn) error) error {
	if err := ended(ctx, op, id, nil); err != nil {
		return err
	}
	if s.isClosed() {
		return internal(op, id, errClosed)
	}
	err := s.try(ctx, func(ctx context.Context) error { return withConn(ctx, s.read, fn) })
	if err == nil {
		return nil
	}
	if err := ended(ctx, op, id, err); err != nil {
		return err
	}
	return mapError(op, id, err)
}

// try calls fn, and again after passing errors, until the store's timeout has passed. It returns the
// last error.
func (s *Store) try(ctx context.Context, fn func(context.Context) error) error {
	bound, cancel := context.WithTimeoutCause(ctx, s.timeout+grace, errAway)
	defer cancel()
	started := time.Now()
	for step := firstStep; ; step = min(2*step, lastStep) {
		err := fn(bound)
		if err != nil && errors.Is(context.Cause(bound), errAway) {
			err = fmt.Errorf("%w: %w", errAway, err)
		}
		if err == nil || !passing(err) || time.Since(started)+step > s.timeout {
			return err
		}
		select {
		case <-bound.Done():
			return err
		case <-time.After(step):
		}
	}
}

// withConn calls fn with a connection of a pool.
func withConn(ctx context.Context, pool *pgxpool.Pool, fn func(context.Context, *pgxpool.Conn) error) error {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return broken(c.Conn(), fn(ctx, c))
}

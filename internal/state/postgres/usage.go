package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carrel-dev/carrel/internal/state"
)

// usagePage is how many pieces of usage are in memory during a walk.
const usagePage = 500

// EachUsage implements state.Store.
func (s *Store) EachUsage(ctx context.Context, from, to time.Time, fn func(state.Usage) error) error {
	first, last := int64(math.MinInt64), int64(math.MaxInt64)
	if !from.IsZero() {
		first = from.UnixNano()
	}
	if !to.IsZero() {
		last = to.UnixNano()
	}
	return s.walk(ctx, fn, "SELECT body FROM usage WHERE until >= $1 AND start <= $2", first, last)
}

// OpenUsage implements state.Store.
func (s *Store) OpenUsage(ctx context.Context, fn func(state.Usage) error) error {
	return s.walk(ctx, fn, "SELECT body FROM usage WHERE until = $1", int64(math.MaxInt64))
}

// walk calls fn for the pieces of usage that a query finds, all of one moment. It has a connection
// of its own until fn has seen them all. Half of the connections are never used for walks, so that fn
// can read from the store. A piece that is unreadable must not hide the others.
func (s *Store) walk(ctx context.Context, fn func(state.Usage) error, q string, args ...any) error {
	const op = "read usage"
	if err := ended(ctx, op, "", nil); err != nil {
		return err
	}
	if s.isClosed() {
		return internal(op, "", errClosed)
	}
	late := time.NewTimer(s.timeout)
	defer late.Stop()
	select {
	case s.walks <- struct{}{}:
		defer func() { <-s.walks }()
	case <-ctx.Done():
		return internal(op, "", ctx.Err())
	case <-late.C:
		return mapError(op, "", errAway)
	}
	tx, err := s.beginWalk(ctx, q, args)
	if err == nil {
		defer func() { // nothing was written
			bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
			defer cancel()
			_ = tx.Rollback(bound)
		}()
	}
	for err == nil {
		var bodies []string
		if bodies, err = s.fetch(ctx, tx); err != nil {
			break
		}
		for _, body := range bodies {
			var u state.Usage
			if json.Unmarshal([]byte(body), &u) != nil {
				continue
			}
			if err := fn(u); err != nil {
				return err
			}
		}
		if len(bodies) < usagePage {
			return nil
		}
	}
	if err := ended(ctx, op, "", err); err != nil {
		return err
	}
	return mapError(op, "", err)
}

// beginWalk begins a transaction with the cursor "walk". The transaction may stay open for as long
// as its user needs.
func (s *Store) beginWalk(ctx context.Context, q string, args []any) (tx pgx.Tx, err error) {
	err = s.try(ctx, func(ctx context.Context) error {
		begun, err := s.read.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
		if err != nil {
			return err
		}
		if _, err = begun.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err == nil {
			_, err = begun.Exec(ctx, "DECLARE walk NO SCROLL CURSOR FOR "+q, args...)
		}
		if err != nil {
			return errors.Join(broken(begun.Conn(), err), begun.Rollback(ctx))
		}
		tx = begun
		return nil
	})
	return tx, err
}

// fetch reads the next pieces of a walk.
func (s *Store) fetch(ctx context.Context, tx pgx.Tx) ([]string, error) {
	bound, cancel := context.WithTimeoutCause(ctx, s.timeout+grace, errAway)
	defer cancel()
	rows, err := tx.Query(bound, "FETCH FORWARD "+strconv.Itoa(usagePage)+" FROM walk")
	if err != nil {
		return nil, err
	}
	bodies, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return bodies, broken(tx.Conn(), err)
}

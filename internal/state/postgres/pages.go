package postgres

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// page is how many rows are read at once.
const page = 500

// pages calls fn for the JSON text of each row that a query finds, all of one moment. It returns
// an error of fn as it is. The store's timeout bounds each page alone: neither a long list nor a
// slow fn makes the call fail.
func (s *Store) pages(ctx context.Context, op, q string, args []any, fn func(body string) error) error {
	if err := ended(ctx, op, "", nil); err != nil {
		return err
	}
	if s.isClosed() {
		return internal(op, "", errClosed)
	}
	tx, err := s.beginPages(ctx, q, args)
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
			if err := fn(body); err != nil {
				return err
			}
		}
		if len(bodies) < page {
			return nil
		}
	}
	if err := ended(ctx, op, "", err); err != nil {
		return err
	}
	return mapError(op, "", err)
}

// beginPages begins a transaction with the cursor "pages". The transaction may stay open for as long
// as its user needs.
func (s *Store) beginPages(ctx context.Context, q string, args []any) (tx pgx.Tx, err error) {
	err = s.try(ctx, func(ctx context.Context) error {
		begun, err := s.read.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue("SET LOCAL idle_in_transaction_session_timeout = 0")
		b.Queue("DECLARE pages NO SCROLL CURSOR FOR "+q, args...)
		if err := begun.SendBatch(ctx, b).Close(); err != nil {
			return errors.Join(broken(begun.Conn(), err), begun.Rollback(ctx))
		}
		tx = begun
		return nil
	})
	return tx, err
}

// fetch reads the next page.
func (s *Store) fetch(ctx context.Context, tx pgx.Tx) ([]string, error) {
	bound, cancel := context.WithTimeoutCause(ctx, s.timeout+grace, errAway)
	defer cancel()
	rows, err := tx.Query(bound, "FETCH FORWARD "+strconv.Itoa(page)+" FROM pages")
	if err != nil {
		return nil, err
	}
	bodies, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return bodies, broken(tx.Conn(), err)
}

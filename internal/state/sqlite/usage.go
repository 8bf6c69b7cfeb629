package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/carrel-dev/carrel/internal/state"
)

// usageStatements lists the statements for the usage in a change.
func usageStatements(c state.Change) ([]statement, error) {
	var list []statement
	for _, id := range c.DropUsage {
		list = append(list, statement{opDropUsage, []any{id}})
	}
	for _, u := range c.PutUsage {
		body, err := json.Marshal(u)
		if err != nil {
			return nil, fmt.Errorf("usage %s: %w", u.ID, err)
		}
		list = append(list, statement{opPutUsage, []any{u.ID, stamp(u.Start), u.Until(), string(body)}})
	}
	return list, nil
}

// EachUsage implements state.Store.
func (s *Store) EachUsage(ctx context.Context, from, to time.Time, fn func(state.Usage) error) error {
	first, last := int64(math.MinInt64), int64(math.MaxInt64)
	if !from.IsZero() {
		first = from.UnixNano()
	}
	if !to.IsZero() {
		last = to.UnixNano()
	}
	return s.pieces(ctx, "SELECT body FROM usage WHERE until >= ? AND start <= ?", []any{first, last}, fn)
}

// OpenUsage implements state.Store.
func (s *Store) OpenUsage(ctx context.Context, fn func(state.Usage) error) error {
	return s.pieces(ctx, "SELECT body FROM usage WHERE until = ?", []any{int64(math.MaxInt64)}, fn)
}

// pieces calls fn for the pieces of usage that a query finds. It reads with a connection of its own
// until fn has seen them all, and so sees one moment of the file. A piece that damage made
// unreadable must not hide the others: the comparison with the ledger takes it out at the next
// start.
func (s *Store) pieces(ctx context.Context, query string, args []any, fn func(state.Usage) error) error {
	const op = "read usage"
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return internal(op, "", err)
	}
	defer rows.Close()
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return internal(op, "", err)
		}
		var u state.Usage
		if json.Unmarshal(body, &u) != nil {
			continue
		}
		if err := fn(u); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return internal(op, "", err)
	}
	return nil
}

package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/carrel-dev/carrel/internal/state"
)

// piece is one encoded piece of usage, with its search keys in nanoseconds since 1970.
type piece struct {
	start, until int64
	open         bool
	body         []byte
}

// encodePieces encodes pieces of usage, by ID.
func encodePieces(list []state.Usage) (map[string]piece, error) {
	out := make(map[string]piece, len(list))
	for _, u := range list {
		body, err := json.Marshal(u)
		if err != nil {
			return nil, fmt.Errorf("usage %s: %w", u.ID, err)
		}
		out[u.ID] = piece{u.Start.UnixNano(), u.Until(), u.Open(), body}
	}
	return out, nil
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
	return s.pieces(ctx, func(p piece) bool { return p.until >= first && p.start <= last }, fn)
}

// OpenUsage implements state.Store.
func (s *Store) OpenUsage(ctx context.Context, fn func(state.Usage) error) error {
	return s.pieces(ctx, func(p piece) bool { return p.open }, fn)
}

// pieces calls fn for the pieces that want accepts. It holds no lock meanwhile.
func (s *Store) pieces(ctx context.Context, want func(piece) bool, fn func(state.Usage) error) error {
	const op = "read usage"
	if err := s.lock(ctx, op, ""); err != nil {
		return err
	}
	var list []piece
	for _, p := range s.usage {
		if want(p) {
			list = append(list, p)
		}
	}
	s.mu.Unlock()
	for _, p := range list {
		var u state.Usage
		if err := json.Unmarshal(p.body, &u); err != nil {
			return internal(op, "", err)
		}
		if err := fn(u); err != nil {
			return err
		}
	}
	return nil
}

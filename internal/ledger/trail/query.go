package trail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// defaultLimit is the limit of a question without one.
const defaultLimit = 1000

// kinds are all kinds of records, for the check of a question.
var kinds = []string{carrel.TrailRead, carrel.TrailChange, carrel.TrailEnter, carrel.TrailRefuse, carrel.TrailStart,
	carrel.TrailSeal, carrel.TrailCut, carrel.TrailTorn, carrel.TrailLost, carrel.TrailEgress, carrel.TrailEgressCut}

// Records streams the records that opts select, oldest first. Error: Invalid.
func (t *Trail) Records(ctx context.Context, opts carrel.TrailOptions) iter.Seq2[carrel.TrailRecord, error] {
	return func(yield func(carrel.TrailRecord, error) bool) {
		if err := t.records(ctx, opts, func(r carrel.TrailRecord) bool { return yield(r, nil) }); err != nil {
			yield(carrel.TrailRecord{}, err)
		}
	}
}

var errEnough = errors.New("the reader has enough")

func (t *Trail) records(ctx context.Context, opts carrel.TrailOptions, yield func(carrel.TrailRecord) bool) error {
	const op = "read audit trail"
	if opts.Kind != "" && !slices.Contains(kinds, opts.Kind) {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "kind",
			Err: fmt.Errorf("%.40q is none of %s", opts.Kind, strings.Join(kinds, ", "))}
	}
	if opts.Limit == 0 {
		opts.Limit = defaultLimit
	}
	t.mu.Lock()
	list, end := slices.Clone(t.list), t.written
	t.mu.Unlock()
	// The files are searched from the newest one back until they have enough.
	start, missing := 0, opts.Limit
	if opts.Limit > 0 {
		skip := 0
		for start = len(list); start > 0 && missing > 0 && (start == len(list) || list[start].first > opts.After+1); start-- {
			n := 0
			err := t.each(ctx, list[start-1], end, opts, func(carrel.TrailRecord) error { n++; return nil })
			if err != nil {
				return readError(op, err)
			}
			missing, skip = missing-n, max(0, n-missing)
		}
		missing = skip // records of the oldest file that are too many
	} else {
		missing = 0
	}
	for i, seg := range list[start:] {
		if i+1 < len(list[start:]) && list[start+i+1].first <= opts.After+1 {
			continue // all of it is known
		}
		err := t.each(ctx, seg, end, opts, func(r carrel.TrailRecord) error {
			if missing > 0 {
				missing--
				return nil
			}
			if !yield(r) {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return readError(op, err)
		}
	}
	return nil
}

func readError(op string, err error) error {
	kind := carrel.Internal
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		kind = carrel.Unavailable
	}
	return &carrel.Error{Op: op, Kind: kind, Err: err}
}

// each passes on the selected records of one file. A file that retention removed meanwhile is empty.
func (t *Trail) each(ctx context.Context, seg segment, end int64, opts carrel.TrailOptions, fn func(carrel.TrailRecord) error) error {
	in, err := os.Open(t.path(fileName(seg.first)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	n := 0
	_, err = eachLine(in, func(line []byte, _ int64) error {
		if n++; n%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if seq, ok := lineSeq(line); ok && seq <= opts.After {
			return nil // much faster than to parse it
		}
		r, _, ok := parse(line)
		if !ok {
			return nil
		}
		if r.Seq > end {
			return io.EOF
		}
		if !selects(opts, r) {
			return nil
		}
		return fn(r)
	})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// lineSeq reads only the number of a line.
func lineSeq(line []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	digits, _, found := bytes.Cut(rest[:min(len(rest), 24)], []byte(","))
	if !ok || !found {
		return 0, false
	}
	seq, err := strconv.ParseInt(string(digits), 10, 64)
	return seq, err == nil
}

// selects reports whether a question asks for a record.
func selects(o carrel.TrailOptions, r carrel.TrailRecord) bool {
	switch {
	case r.Seq <= o.After,
		o.Project != "" && r.Project != o.Project,
		o.Key != "" && r.Key != o.Key && r.KeyID != o.Key,
		o.Kind != "" && r.Kind != o.Kind,
		o.Op != "" && !strings.Contains(r.Op, o.Op),
		o.Target != "" && !slices.Contains(strings.Fields(r.Target), o.Target),
		!o.Since.IsZero() && r.Time.Before(o.Since),
		!o.Until.IsZero() && !r.Time.Before(o.Until):
		return false
	}
	return true
}

// Wait returns when there are records after seq, or false when ctx or the trail has ended.
func (t *Trail) Wait(ctx context.Context, seq int64) bool {
	for {
		t.mu.Lock()
		written, closed, change := t.written, t.closed, t.change
		t.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return false
		case written > seq:
			return true
		case closed:
			return false
		}
		select {
		case <-change:
		case <-ctx.Done():
			return false
		}
	}
}

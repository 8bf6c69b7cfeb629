package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/failpoint"
)

// SQLite's own check finds damage to the structure of the file. It does not see a changed byte
// inside a text. So [Open] compares each row with the ledger, whose lines have checksums.
//
// A row that differs is written again from the ledger. That needs a ledger that knows the row's
// newest state, and there are three cases in which it may not:
//
//   - The ledger ends before the state file does: power was cut, or the daemon was killed between
//     its two writes.
//   - A line of the ledger is damaged or missing. Rows whose newest mention stands before that line
//     are in doubt.
//   - There is no ledger.
//
// Then the state file is right as long as its row can be read. A row that can't be read gets the
// state that the ledger has, or is taken out.

// Dropped is the name of the file that keeps rows as they were before a comparison corrected them
// or took them out of the state file. It has the form of a ledger's lines.
const Dropped = "records.dropped"

// maxNamed is how many rows a report names.
const maxNamed = 8

// verdict is a row of the state file that must change, or one that is missing in it.
type verdict struct {
	table *table
	key   any
	found []any  // the row in the state file; nil: it is missing there
	from  *known // where the ledger has it; nil: the row is taken out
}

// verifier compares the state file with its ledger.
type verifier struct {
	store *Store
	image *image
	lag   bool // the ledger ends before the state file
	wrong []verdict
	// doubt lists rows that differ from a damaged ledger and stay as they are.
	doubt []verdict
}

// verify compares every row with the ledger, and corrects the state file. It reports whether the
// ledger still says the same as the file.
func (s *Store) verify(ctx context.Context, m *image) (same bool, err error) {
	if failpoint.Mutant("content") {
		return true, nil
	}
	v := &verifier{store: s, image: m, lag: s.change > m.last}
	for _, t := range tables {
		if err := v.compare(ctx, t); err != nil {
			return false, err
		}
	}
	if err := v.correct(ctx); err != nil {
		return false, err
	}
	v.report()
	return !slices.ContainsFunc(v.wrong, func(w verdict) bool { return !v.sure(w.from) }), nil
}

// sure reports whether the ledger knows the newest state of a row; k is nil for a row that it never
// mentions.
func (v *verifier) sure(k *known) bool {
	if v.image.head == nil || v.lag {
		return false
	}
	if k == nil {
		return !v.image.damaged()
	}
	return k.place > v.image.hole
}

// compare judges all rows of one table.
func (v *verifier) compare(ctx context.Context, t *table) error {
	mentioned := v.image.rows[t]
	query := t.selection()
	if !t.inBase { // rows from before the base of the ledger can't be compared
		if len(mentioned) == 0 {
			return nil
		}
		query += fmt.Sprintf(" WHERE %s >= %d", t.columns[t.key], oldest(mentioned))
	}
	rows, err := v.store.read.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	row, into := make([]any, len(t.columns)), make([]any, len(t.columns))
	for i := range row {
		into[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		key := row[t.key]
		if blob, ok := key.([]byte); ok { // damage made it one: the ledger has no such key
			v.judge(t, blob, row, nil)
			continue
		}
		k, ok := mentioned[key]
		if !ok {
			v.judge(t, key, row, nil)
			continue
		}
		delete(mentioned, key) // those that are left are missing
		if k.gone || k.sum != sumRow(row) {
			v.judge(t, key, row, &k)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return v.missing(ctx, t, mentioned)
}

// oldest returns the smallest of the keys that are numbers.
func oldest(mentioned map[any]known) int64 {
	first, least := true, int64(0)
	for key := range mentioned {
		if n, ok := key.(int64); ok && (first || n < least) {
			first, least = false, n
		}
	}
	return least
}

// judge decides on a row that differs from the ledger.
func (v *verifier) judge(t *table, key any, row []any, k *known) {
	w := verdict{table: t, key: key, found: slices.Clone(row), from: k}
	if !v.sure(k) && t.readable(row) {
		if v.image.damaged() {
			v.doubt = append(v.doubt, w)
		}
		return
	}
	v.wrong = append(v.wrong, w)
}

// missing decides on rows that the ledger has and the state file has not.
func (v *verifier) missing(ctx context.Context, t *table, left map[any]known) error {
	for key, k := range left {
		if k.gone {
			continue
		}
		if !v.sure(&k) {
			// The ledger may lack its deletion. That would have left a tombstone.
			if t.remove == "" || t.put == opTombstone {
				continue
			}
			var buried int
			err := v.store.read.QueryRowContext(ctx, "SELECT count(*) FROM tombstones WHERE id = ?",
				key).Scan(&buried)
			if err != nil {
				return err
			}
			if buried > 0 {
				continue
			}
		}
		v.wrong = append(v.wrong, verdict{table: t, key: key, from: &k})
	}
	return nil
}

// correct changes the state file, in one transaction.
func (v *verifier) correct(ctx context.Context) error {
	s := v.store
	short, err := s.sequenceBehind(ctx, v.image.seq)
	if err != nil {
		return err
	}
	if len(v.wrong) == 0 && !short && !s.metaDamaged {
		return nil
	}
	s.keepDropped(v.wrong)
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing, after a commit
	for _, w := range v.wrong {
		if w.from == nil || w.from.gone {
			_, err = tx.ExecContext(ctx, w.table.deletion(), w.key)
		} else {
			var row []any
			if row, err = v.image.row(w.table, w.key, *w.from); err == nil {
				_, err = tx.ExecContext(ctx, w.table.replacement(), row...)
			}
		}
		if err != nil {
			return err
		}
	}
	if short {
		for _, op := range []string{opFirstSequence, opSequence} {
			if _, err := tx.ExecContext(ctx, replayQueries[op], v.image.seq); err != nil {
				return err
			}
		}
		s.repair.Records++
	}
	if s.metaDamaged {
		if err := s.writeMeta(ctx, tx); err != nil {
			return err
		}
		s.repair.Records++
	}
	return tx.Commit()
}

// sequenceBehind reports whether the number of the newest event is lower than the ledger says.
// Numbers would then be given twice.
func (s *Store) sequenceBehind(ctx context.Context, want int64) (bool, error) {
	var have int64
	err := s.write.QueryRowContext(ctx,
		"SELECT seq FROM sqlite_sequence WHERE name = 'events' AND typeof(seq) = 'integer'").Scan(&have)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	return have < want, nil
}

// keepDropped adds the rows that will be corrected or taken out to the file [Dropped], for a person
// who knows better. A disk without room is no reason not to start.
func (s *Store) keepDropped(list []verdict) {
	var text []byte
	for _, w := range list {
		if w.found == nil {
			continue
		}
		line, err := entry{Ops: []statement{{Op: w.table.put, Args: w.found}}}.encode()
		if err != nil { // a number without a form in JSON
			continue
		}
		text = append(text, line...)
	}
	if len(text) == 0 {
		return
	}
	path := filepath.Join(filepath.Dir(s.path), Dropped)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	_, err = f.Write(text)
	if errors.Join(err, f.Sync(), f.Close()) == nil {
		s.repair.Kept = path
	}
}

// report adds the verdicts to the store's [Repair].
func (v *verifier) report() {
	r := &v.store.repair
	var names []string
	for _, w := range v.wrong {
		names = append(names, w.name())
		if w.from == nil && !v.sure(nil) || w.from != nil && w.from.gone && !v.sure(w.from) {
			r.Dropped++
		} else {
			r.Records++
		}
	}
	r.Doubtful = len(v.doubt)
	for _, w := range v.doubt {
		names = append(names, w.name())
	}
	slices.Sort(names)
	if len(names) > maxNamed {
		names = append(names[:maxNamed], fmt.Sprintf("and %d more", len(names)-maxNamed))
	}
	r.Which = strings.Join(names, ", ")
}

// name names a row for a person.
func (w verdict) name() string {
	return fmt.Sprintf("%s %.40v", strings.TrimSuffix(w.table.name, "s"), w.key)
}

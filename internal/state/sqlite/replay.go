package sqlite

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
)

// Repair says what [Open] put back from the ledger. The zero value says that nothing was wrong.
type Repair struct {
	// Rebuilt says that the records were written anew from the ledger: the state file was not
	// there, was damaged, was empty, or was older than the ledger's base.
	Rebuilt bool
	// Damaged is where a damaged state file was moved to; "" if none was.
	Damaged string
	// Changes is how many changes the state file had lost and the ledger still had.
	Changes int
	// Lost is how many lines of the ledger were needed and unreadable.
	Lost int
	// Foreign is where a ledger was moved to that belongs to another state file; "" if there was
	// none.
	Foreign string
	// Indexes says that indexes of the state file were damaged and were made anew.
	Indexes bool
	// Records is how many rows differed from the ledger and were corrected: they were changed,
	// missing, or there without reason.
	Records int
	// Dropped is how many rows could not be read, and are not in the ledger either. They were taken
	// out of the state file.
	Dropped int
	// Doubtful is how many rows differ from a damaged ledger. They stay as the state file has them.
	Doubtful int
	// Which names the first of these rows; "" if there are none.
	Which string
	// Kept is the file that has these rows as they were; "" if there were none.
	Kept string
}

// Repaired says what Open had to put back.
func (s *Store) Repaired() Repair { return s.repair }

// Keys of the table meta.
const (
	metaIdentity = "identity"
	metaChange   = "change"
)

// querier is a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// metaNumber reads a number of the table meta.
func metaNumber(ctx context.Context, q querier, key string) (n int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", key).Scan(&n)
	return n, err
}

// matchLedger compares the state file with its ledger, puts back what the file has lost, and
// corrects rows that differ.
func (s *Store) matchLedger(ctx context.Context) error {
	const op = "compare state file with its ledger"
	m, err := readImage(s.ledger.path)
	if err != nil {
		return s.ledgerError(op, err)
	}
	if failpoint.Mutant("ledger") {
		m = noImage(s.ledger.path)
	}
	if err := s.readMeta(ctx, m); err != nil {
		return s.broken(op, err)
	}
	lacking := false // the file lacks what the ledger has
	switch {
	case m.head == nil: // no ledger, or one without a readable beginning
	case m.head.Identity != s.identity:
		if lacking, err = s.empty(ctx); err != nil {
			return s.broken(op, err)
		}
		if !lacking {
			if err := s.setAside(m.head.Identity); err != nil {
				return s.ledgerError(op, err)
			}
			m = noImage(s.ledger.path)
		}
		s.repair.Rebuilt = lacking
	case s.change < m.head.From:
		s.repair.Rebuilt, lacking = true, true
	case s.change < m.last:
		lacking = true
	}
	if lacking {
		if err := s.replay(ctx, m.head); err != nil {
			return s.broken("put back records from the ledger", err)
		}
	}
	same, err := s.verify(ctx, m)
	if err != nil {
		return s.broken(op, err)
	}
	if same && m.head != nil && s.change == m.last && !lacking && !m.damaged() {
		return s.openLedger(op)
	}
	s.beginLedger()
	return nil
}

// ledgerError returns the error for a ledger that the system keeps from being used. Nothing is
// wrong with the state file.
func (s *Store) ledgerError(op string, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: Ledger, Err: err,
		Hint: "this user must be able to read and write " + s.ledger.path +
			": check its owner, and whether the disk is failing"}
}

// readMeta reads the identity of the file and the number of its last change. A value that damage
// made unusable comes from the ledger.
func (s *Store) readMeta(ctx context.Context, m *image) error {
	rows, err := s.write.QueryContext(ctx, "SELECT key, value FROM meta")
	if err != nil {
		return err
	}
	values := map[string]any{}
	for err == nil && rows.Next() {
		var key string
		var value any
		if err = rows.Scan(&key, &value); err == nil {
			values[key] = value
		}
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return err
	}
	identity, _ := values[metaIdentity].(string)
	change, ok := values[metaChange].(int64)
	s.metaDamaged = len(values) != 2 || identity == "" || !ok || change < 0
	switch {
	case m.head != nil && identity != m.head.Identity &&
		(identity == "" || alike(identity, m.head.Identity)):
		identity, s.metaDamaged = m.head.Identity, true
	case identity == "":
		identity = strings.ToLower(rand.Text())
	}
	if !ok || change < 0 {
		change = m.last
	}
	s.identity, s.change = identity, change
	return nil
}

// alike reports whether two identities are one, of which damage changed a few characters. Two
// random ones have about two of their 32 characters in common.
func alike(a, b string) bool {
	const most = 8
	if len(a) != len(b) {
		return false
	}
	differ := 0
	for i := range len(a) {
		if a[i] != b[i] {
			differ++
		}
	}
	return differ <= most
}

// writeMeta writes the table meta.
func (s *Store) writeMeta(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "DELETE FROM meta"); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO meta (key, value) VALUES (?, ?), (?, ?)",
		metaIdentity, s.identity, metaChange, s.change)
	return err
}

// empty reports whether the state file has no records at all.
func (s *Store) empty(ctx context.Context) (bool, error) {
	var n int
	err := s.write.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM sandboxes) + (SELECT count(*) FROM snapshots)").Scan(&n)
	return n == 0, err
}

// setAside moves the ledger of another state file away. A person can put it back beside its own
// file.
func (s *Store) setAside(identity string) error {
	s.repair.Foreign = s.ledger.path + "." + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'f' {
			return r
		}
		return '_'
	}, identity)
	return os.Rename(s.ledger.path, s.repair.Foreign)
}

// replay carries out the changes that the state file lacks, all in one transaction.
func (s *Store) replay(ctx context.Context, head *entry) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing, after a commit
	have := s.change
	if s.repair.Rebuilt {
		have = head.From
		for _, t := range tables {
			if !t.inBase {
				continue // the ledger has only some of its rows
			}
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+t.name); err != nil {
				return err
			}
		}
	}
	run := func(list []statement) error {
		for _, st := range list {
			if _, err := tx.ExecContext(ctx, replayQueries[st.Op], st.Args...); err != nil {
				return err
			}
		}
		return nil
	}
	base, last := true, have
	_, _, err = scanLedger(s.ledger.path, func(e entry, damaged bool) error {
		switch {
		case damaged && base:
			if s.repair.Rebuilt {
				s.repair.Lost++
			}
		case e.Complete:
			base = false
		case base && s.repair.Rebuilt:
			return run(e.Ops)
		case e.N > have:
			s.repair.Lost += int(e.N - last - 1)
			s.repair.Changes++
			last = e.N
			return run(e.Ops)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.identity, s.change = head.Identity, last
	if err := s.writeMeta(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// scanLedger reads a ledger from its beginning. It returns its first line, nil if that is damaged,
// and the number of the last change in it. fn, which may be nil, gets each further line.
func scanLedger(path string, fn func(e entry, damaged bool) error) (head *entry, last int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	next := int64(0) // where the next line begins
	for first := true; ; first = false {
		line, err := r.ReadBytes('\n')
		at := next
		next += int64(len(line))
		if err == io.EOF {
			return head, last, nil // an unfinished line was never acknowledged by anybody
		} else if err != nil {
			return nil, 0, err
		}
		e, err := decodeEntry(line)
		e.at = at
		switch {
		case first && (err != nil || e.Ledger != ledgerVersion):
			return nil, 0, nil
		case first:
			head, last = &e, e.From
			continue
		case err == nil:
			last = max(last, e.N)
		}
		if fn != nil {
			if err := fn(e, err != nil); err != nil {
				return nil, 0, err
			}
		}
	}
}

// openLedger opens a ledger that is up to date.
func (s *Store) openLedger(op string) error {
	f, err := os.OpenFile(s.ledger.path, os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	size, err := trimLine(f)
	if err != nil {
		_ = f.Close()
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	s.ledger.file, s.ledger.size = f, size
	s.ledger.base = size // the real size of the base is not known, but it is not larger
	return nil
}

// trimLine cuts an unfinished last line off, and returns the size.
func trimLine(f *os.File) (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size := fi.Size()
	buf := make([]byte, 4096)
	for end := size; end > 0; {
		n := min(int64(len(buf)), end)
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] == '\n' {
				end = end - n + i + 1
				if end == size {
					return size, nil
				}
				return end, f.Truncate(end)
			}
		}
		end -= n
	}
	return 0, f.Truncate(0)
}

// beginLedger writes a new ledger from the state file. A disk that has no room is no error: the
// ledger is tried again later.
func (s *Store) beginLedger() {
	s.ledger.err, s.ledger.next = errNoLedger, time.Time{}
	s.tendLedger()
}

// errNoLedger says that there is no ledger yet.
var errNoLedger = errors.New("not written yet")

// moveDamaged moves a state file that can't be read out of the way, if the ledger can replace it.
func (s *Store) moveDamaged() bool {
	head, _, err := scanLedger(s.ledger.path, nil)
	if err != nil || head == nil {
		return false
	}
	to := fmt.Sprintf("%s.damaged-%d", s.path, time.Now().Unix())
	if err := os.Rename(s.path, to); err != nil {
		return false
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		_ = os.Rename(s.path+suffix, to+suffix)
	}
	s.repair.Damaged = to
	return true
}

// sweepTemporary removes the temporary files of rewritings that a crash cut off.
func (s *Store) sweepTemporary() {
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(s.path), "."+filepath.Base(s.ledger.path)+".*"))
	for _, name := range left {
		_ = os.Remove(name)
	}
}

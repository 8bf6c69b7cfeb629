// Package sqlite keeps a service's records in one SQLite file.
//
// # Durability
//
// The file is in write-ahead mode with synchronous=FULL. A write has reached the disk when its
// method returns. A crash at any moment leaves each write whole or absent. One goroutine writes. It
// takes all writers that wait during a sync into its next transaction, so many of them share one
// sync.
//
// # The second copy
//
// One damaged page of the write-ahead log costs SQLite all later pages of the log, without a word.
// A deleted or damaged file costs everything. So each committed change is also added to a ledger
// beside the file: one line of JSON with a checksum for each change, behind a base that holds all
// records. [Open] compares the two by the number of their last change and puts back what the file
// has lost. Then it compares each row with the ledger, because SQLite does not see a changed byte
// inside a text. [Store.Repaired] says what had to be corrected. The ledger is not synced at each
// change: it protects against damage and mistakes, and the file itself against the loss of power.
//
// # Secrets
//
// Records hold access tokens and environments. Only the file's owner can read it. If a file is open
// to other users, Open closes it to them.
package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite", without cgo

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	readers      = 4    // read connections, which never wait for the writer
	maxBatch     = 256  // writes in one transaction
	defaultLimit = 1000 // for Events without a limit
)

// Store is a [state.Store] on a file.
type Store struct {
	path  string
	lock  *os.File // held while open: one process per file
	write *sql.DB  // one connection, used by the writer goroutine
	read  *sql.DB

	writes chan *write

	mu     sync.RWMutex // held for reading while a write is handed over
	closed bool

	identity string // of the file; the writer goroutine owns this and the next two
	change   int64  // the number of the last change
	reserve  atomic.Pointer[func() bool]
	ledger   ledger
	repair   Repair // what Open put back

	metaDamaged bool // Open found rows of the table meta that it must write again

	done     chan struct{} // closed when the writer goroutine has ended
	closeErr error
}

var _ state.Store = (*Store)(nil)

// Open opens the store in the file path, and makes the file if it is missing. The directory must
// exist. Errors: Conflict when another process has it open, Internal when it is damaged or can't be
// read.
func Open(ctx context.Context, path string) (_ *Store, err error) {
	s := &Store{path: path, writes: make(chan *write, maxBatch), done: make(chan struct{}), ledger: ledger{path: ledgerPath(path)}}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	s.sweepTemporary()
	if err := s.load(ctx); err != nil {
		// A full or failing disk is not the file's fault.
		if ctx.Err() != nil || carrel.KindOf(err) != carrel.Internal {
			return nil, err
		}
		_ = s.closeDB() // the error above is the one to tell
		s.repair = Repair{}
		if !s.moveDamaged() {
			return nil, err
		}
		if err := s.load(ctx); err != nil {
			return nil, err
		}
	}
	go s.writer()
	return s, nil
}

// load opens the file and makes it agree with its ledger.
func (s *Store) load(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	return s.matchLedger(ctx)
}

// UseReserve gives the store a function that makes some room on a full disk, and reports whether it
// did. A write that finds no room calls it and tries again.
func (s *Store) UseReserve(give func() bool) { s.reserve.Store(&give) }

// open opens the file and brings it to the newest version.
func (s *Store) open(ctx context.Context) (err error) {
	if err := s.prepareFile(); err != nil {
		return err
	}
	if s.write, err = openDB(s.path, 1, "_txlock=immediate"); err != nil {
		return s.broken("open state file", err)
	}
	if s.read, err = openDB(s.path, readers, "_pragma=query_only(1)"); err != nil {
		return s.broken("open state file", err)
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	return s.checkSchema(ctx)
}

// takeLock makes this process the only one that has the file open.
func (s *Store) takeLock() error {
	const op = "open state file"
	lock, err := os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	s.lock = lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return &carrel.Error{Op: op, Kind: carrel.Conflict, Err: fmt.Errorf("%s is in use by another process", s.path),
				Hint: "stop the other daemon, or give this one a data directory of its own"}
		}
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	return nil
}

// prepareFile makes the file and closes it to other users.
func (s *Store) prepareFile() error {
	const op = "open state file"
	// Make the file here, because SQLite's mode would follow the umask. Its -wal and -shm files get
	// the mode of this one.
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	defer f.Close()
	if err := f.Chmod(0o600); err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	return nil
}

// openDB opens a pool of at most n connections.
func openDB(path string, n int, extra string) (*sql.DB, error) {
	sync := "FULL"
	if failpoint.Mutant("sync-records") {
		sync = "OFF"
	}
	// Escape the path: a '?' or '%' in it must not become an option.
	dsn := (&url.URL{Scheme: "file", OmitHost: true, Path: path}).String() +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(" + sync +
		")&_pragma=foreign_keys(1)&" + extra
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// broken returns the error for a file that can't be used.
func (s *Store) broken(op string, err error) error {
	if failedWith(err, codeFull, codeIOError) { // the file itself may be sound
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "disk", Err: fmt.Errorf("%s: %w", s.path, err),
			Hint: "is the disk full or failing? Free some space under the data directory and try again"}
	}
	switch { // nothing is wrong with the file in these cases either
	case failedWith(err, codeBusy, codeLocked):
		return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "state.db",
			Err:  fmt.Errorf("another program has locked %s: %w", s.path, err),
			Hint: "end that program (fuser " + s.path + " shows it), and start again"}
	case failedWith(err, codePermission, codeReadOnly, codeCantOpen):
		return &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "state.db",
			Err:  fmt.Errorf("%s can't be read and written: %w", s.path, err),
			Hint: "this user must be able to write the file and its directory: check their owner, and whether the disk is read-only"}
	}
	return &carrel.Error{Op: op, Kind: carrel.Internal, Err: fmt.Errorf("%s: %w", s.path, err),
		Hint: "restore the file from a backup, or move it away: the daemon then starts without records, keeps everything, and carrel fsck lists it"}
}

// GetSandbox implements state.Store.
func (s *Store) GetSandbox(ctx context.Context, id carrel.ID) (state.Record, error) {
	const op = "read record"
	r, err := one[state.Record](ctx, s.read, "SELECT record FROM sandboxes WHERE id = ?", string(id))
	if errors.Is(err, sql.ErrNoRows) {
		return state.Record{}, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id}
	}
	if err != nil {
		return state.Record{}, internal(op, id, err)
	}
	return r, nil
}

// GetSnapshot implements state.Store.
func (s *Store) GetSnapshot(ctx context.Context, id carrel.SnapshotID) (state.SnapshotRecord, error) {
	const op = "read snapshot record"
	r, err := one[state.SnapshotRecord](ctx, s.read, "SELECT record FROM snapshots WHERE id = ?", string(id))
	if errors.Is(err, sql.ErrNoRows) {
		return state.SnapshotRecord{}, &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("no snapshot %s", id)}
	}
	if err != nil {
		return state.SnapshotRecord{}, internal(op, "", fmt.Errorf("snapshot %s: %w", id, err))
	}
	return r, nil
}

// Snapshots implements state.Store.
func (s *Store) Snapshots(ctx context.Context) ([]state.SnapshotRecord, error) {
	var out []state.SnapshotRecord
	err := each(ctx, s.read, "read snapshot records", "SELECT 0, record FROM snapshots ORDER BY created, id", nil,
		func(_ int64, r state.SnapshotRecord) { out = append(out, r) })
	return out, err
}

// Sandboxes implements state.Store.
func (s *Store) Sandboxes(ctx context.Context) ([]state.Record, error) {
	var out []state.Record
	err := each(ctx, s.read, "read records", "SELECT 0, record FROM sandboxes ORDER BY started, id", nil,
		func(_ int64, r state.Record) { out = append(out, r) })
	return out, err
}

// Projects implements state.Store.
func (s *Store) Projects(ctx context.Context) ([]state.ProjectRecord, error) {
	var out []state.ProjectRecord
	err := each(ctx, s.read, "read projects", "SELECT 0, record FROM projects ORDER BY created, name", nil,
		func(_ int64, r state.ProjectRecord) { out = append(out, r) })
	return out, err
}

// Keys implements state.Store.
func (s *Store) Keys(ctx context.Context) ([]state.KeyRecord, error) {
	var out []state.KeyRecord
	err := each(ctx, s.read, "read keys", "SELECT 0, record FROM keys ORDER BY created, id", nil,
		func(_ int64, r state.KeyRecord) { out = append(out, r) })
	return out, err
}

// People implements state.Store.
func (s *Store) People(ctx context.Context) ([]state.PersonRecord, error) {
	var out []state.PersonRecord
	err := each(ctx, s.read, "read people", "SELECT 0, record FROM people ORDER BY created, id", nil,
		func(_ int64, r state.PersonRecord) { out = append(out, r) })
	return out, err
}

// Organisations implements state.Store.
func (s *Store) Organisations(ctx context.Context) ([]state.OrganisationRecord, error) {
	var out []state.OrganisationRecord
	err := each(ctx, s.read, "read organisations",
		"SELECT 0, record FROM organisations ORDER BY created, name", nil,
		func(_ int64, r state.OrganisationRecord) { out = append(out, r) })
	return out, err
}

// Sessions implements state.Store.
func (s *Store) Sessions(ctx context.Context) ([]state.SessionRecord, error) {
	var out []state.SessionRecord
	err := each(ctx, s.read, "read sessions",
		"SELECT 0, record FROM sessions ORDER BY created, id", nil,
		func(_ int64, r state.SessionRecord) { out = append(out, r) })
	return out, err
}

// Tombstones implements state.Store.
func (s *Store) Tombstones(ctx context.Context) (state.Tombstones, error) {
	const op = "read tombstones"
	var out state.Tombstones
	rows, err := s.read.QueryContext(ctx, "SELECT id FROM tombstones ORDER BY id")
	if err != nil {
		return out, internal(op, "", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return out, internal(op, "", err)
		}
		out.Add(id)
	}
	if err := rows.Err(); err != nil {
		return out, internal(op, "", err)
	}
	return out, nil
}

// Events implements state.Store.
func (s *Store) Events(ctx context.Context, id carrel.ID, after int64, limit int) ([]carrel.Event, error) {
	if limit <= 0 {
		limit = defaultLimit
	}
	q, args := "SELECT seq, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?", []any{after, limit}
	if id != "" {
		q, args = "SELECT seq, body FROM events WHERE sandbox = ? AND seq > ? ORDER BY seq LIMIT ?", []any{string(id), after, limit}
	}
	return s.events(ctx, q, args)
}

// EventsBefore implements state.Store.
func (s *Store) EventsBefore(ctx context.Context, id carrel.ID, seq int64, limit int) ([]carrel.Event, error) {
	if limit <= 0 {
		limit = defaultLimit
	}
	if seq == 0 {
		seq = math.MaxInt64
	}
	q, args := "SELECT seq, body FROM events WHERE seq < ? ORDER BY seq DESC LIMIT ?", []any{seq, limit}
	if id != "" {
		q = "SELECT seq, body FROM events WHERE sandbox = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
		args = []any{string(id), seq, limit}
	}
	return s.events(ctx, q, args)
}

// events reads the events of a query.
func (s *Store) events(ctx context.Context, q string, args []any) ([]carrel.Event, error) {
	var out []carrel.Event
	// Events are older than the ledger may be. One that damage made unreadable must not hide the
	// others.
	err := each(ctx, s.read, "read events", q, args, func(seq int64, text json.RawMessage) {
		var e carrel.Event
		if json.Unmarshal(text, &e) == nil {
			e.Seq = seq // the file assigned it after the body was encoded
			out = append(out, e)
		}
	})
	return out, err
}

// one reads the JSON text of a query's row.
func one[T any](ctx context.Context, db *sql.DB, q string, arg string) (v T, err error) {
	var body []byte
	if err := db.QueryRowContext(ctx, q, arg).Scan(&body); err != nil {
		return v, err
	}
	err = json.Unmarshal(body, &v)
	return v, err
}

// each calls fn for every row, which holds a number and a JSON text.
func each[T any](ctx context.Context, db *sql.DB, op, q string, args []any, fn func(int64, T)) error {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return internal(op, "", err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		var body []byte
		if err := rows.Scan(&n, &body); err != nil {
			return internal(op, "", err)
		}
		var v T
		if err := json.Unmarshal(body, &v); err != nil {
			return internal(op, "", err)
		}
		fn(n, v)
	}
	if err := rows.Err(); err != nil {
		return internal(op, "", err)
	}
	return nil
}

// Close implements state.Store. It finishes the accepted writes first.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.writes)
	}
	<-s.done
	return s.closeErr
}

// release closes everything that is open.
func (s *Store) release() {
	errs := []error{s.closeDB(), s.closeLedger()}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		s.closeErr = internal("close state file", "", err)
	}
}

// closeDB closes the connections.
func (s *Store) closeDB() error {
	var errs []error
	if s.read != nil {
		errs = append(errs, s.read.Close())
	}
	if s.write != nil {
		errs = append(errs, s.write.Close()) // the last connection merges the log into the file
	}
	return errors.Join(errs...)
}

func internal(op string, id carrel.ID, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
}

// stamp returns a time in its stored form: nanoseconds since 1970, or 0.
func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

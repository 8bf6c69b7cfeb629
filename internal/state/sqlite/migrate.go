package sqlite

import (
	"context"
	"fmt"

	"github.com/carrel-dev/carrel"
)

// migrations bring a file from version i to i+1. A released one is never changed: a new one is
// added.
var migrations = []string{
	// started is in nanoseconds since 1970; record and body are JSON. AUTOINCREMENT makes event
	// numbers rise even after the newest events were trimmed.
	`CREATE TABLE sandboxes (
		id      TEXT PRIMARY KEY,
		started INTEGER NOT NULL,
		record  TEXT NOT NULL
	) WITHOUT ROWID;
	CREATE TABLE events (
		seq     INTEGER PRIMARY KEY AUTOINCREMENT,
		time    INTEGER NOT NULL,
		sandbox TEXT NOT NULL,
		body    TEXT NOT NULL
	);
	CREATE INDEX events_sandbox ON events (sandbox, seq);
	CREATE INDEX events_time ON events (time);`,
	// created is in nanoseconds since 1970. Unlike those of sandboxes, the rows are not in the
	// primary key's tree, because each holds a whole record twice.
	`CREATE TABLE snapshots (
		id      TEXT PRIMARY KEY,
		sandbox TEXT NOT NULL,
		created INTEGER NOT NULL,
		record  TEXT NOT NULL
	);
	CREATE INDEX snapshots_created ON snapshots (created, id);`,
	// meta holds the identity of the file and the number of its last change, by which it is
	// compared with its ledger. tombstones are the IDs of deleted records, with the time in
	// nanoseconds since 1970.
	`CREATE TABLE meta (
		key   TEXT PRIMARY KEY,
		value NOT NULL
	) WITHOUT ROWID;
	INSERT INTO meta VALUES ('identity', lower(hex(randomblob(16)))), ('change', 0);
	CREATE TABLE tombstones (
		id   TEXT PRIMARY KEY,
		time INTEGER NOT NULL
	) WITHOUT ROWID;`,
	// created is in nanoseconds since 1970. The records of keys hold no secret, only its hash.
	`CREATE TABLE projects (
		name    TEXT PRIMARY KEY,
		created INTEGER NOT NULL,
		record  TEXT NOT NULL
	) WITHOUT ROWID;
	CREATE TABLE keys (
		id      TEXT PRIMARY KEY,
		created INTEGER NOT NULL,
		record  TEXT NOT NULL
	) WITHOUT ROWID;`,
	// start and until are in nanoseconds since 1970; until is the largest number in a piece without
	// an end.
	`CREATE TABLE usage (
		id    TEXT PRIMARY KEY,
		start INTEGER NOT NULL,
		until INTEGER NOT NULL,
		body  TEXT NOT NULL
	);
	CREATE INDEX usage_until ON usage (until, start);`,
	// The records of people hold hashes of passwords, and those of sessions hashes of secrets.
	`CREATE TABLE people (
		id      TEXT PRIMARY KEY,
		created INTEGER NOT NULL,
		record  TEXT NOT NULL
	) WITHOUT ROWID;
	CREATE TABLE organisations (
		name    TEXT PRIMARY KEY,
		created INTEGER NOT NULL,
		record  TEXT NOT NULL
	) WITHOUT ROWID;
	CREATE TABLE sessions (
		id      TEXT PRIMARY KEY,
		created INTEGER NOT NULL,
		record  TEXT NOT NULL
	) WITHOUT ROWID;`,
}

// migrate brings the file to the newest version. Each step is one transaction.
func (s *Store) migrate(ctx context.Context) error {
	const op = "migrate state file"
	var version int
	if err := s.write.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return s.broken(op, err)
	}
	if version > len(migrations) {
		return &carrel.Error{Op: op, Kind: carrel.Unsupported,
			Err:  fmt.Errorf("%s has version %d, this program knows %d", s.path, version, len(migrations)),
			Hint: "a newer carrel made this data directory: run that version or a later one"}
	}
	for ; version < len(migrations); version++ {
		tx, err := s.write.BeginTx(ctx, nil)
		if err != nil {
			return s.broken(op, err)
		}
		_, err = tx.ExecContext(ctx, migrations[version])
		if err == nil { // a pragma takes no parameters
			_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version+1))
		}
		if err != nil {
			_ = tx.Rollback() // report only the error above
			return s.broken(op, err)
		}
		if err := tx.Commit(); err != nil {
			return s.broken(op, err)
		}
	}
	return nil
}

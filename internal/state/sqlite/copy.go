package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/carrel-dev/carrel"
)

// Copy writes the records of the state file from, as they are at one moment, into a new file to. A
// daemon may have from open. Errors: Internal, also when to exists.
func Copy(ctx context.Context, from, to string) (err error) {
	const op = "copy state file"
	fail := func(err error) error {
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: fmt.Errorf("%s: %w", from, err)}
	}
	if _, err := os.Stat(from); err != nil { // SQLite would make an empty one
		return fail(err)
	}
	dsn := (&url.URL{Scheme: "file", OmitHost: true, Path: from}).String() + "?_pragma=busy_timeout(10000)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return fail(err)
	}
	if err := os.Chmod(to, 0o600); err != nil {
		return fail(err)
	}
	return nil
}

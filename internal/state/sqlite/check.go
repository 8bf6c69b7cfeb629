package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// check refuses a file whose structure is damaged, before the store uses it. Damage that is only in
// indexes is mended: they can be made from the tables.
func (s *Store) check(ctx context.Context) error {
	const op = "check state file"
	err := s.pragma(ctx, "integrity_check(1)")
	if err == nil {
		return nil
	}
	if s.pragma(ctx, "quick_check(1)") != nil { // this one leaves out the content of indexes
		return s.broken(op, err)
	}
	if err := s.rewriteTables(ctx); err != nil {
		return s.broken(op, err)
	}
	if err := s.pragma(ctx, "integrity_check(1)"); err != nil {
		return s.broken(op, err)
	}
	s.repair.Indexes = true
	return nil
}

// pragma runs a check of SQLite's.
func (s *Store) pragma(ctx context.Context, check string) error {
	var verdict string
	err := s.write.QueryRowContext(ctx, "PRAGMA "+check).Scan(&verdict)
	if err == nil && verdict != "ok" {
		err = errors.New(verdict)
	}
	return err
}

// rewriteTables empties each table and fills it with its own rows again, which makes its indexes
// anew. REINDEX would not do: it fails if damage gave two rows the same key. One of these goes, and
// the comparison with the ledger corrects the rest.
func (s *Store) rewriteTables(ctx context.Context) error {
	names, err := s.tableNames(ctx)
	if err != nil {
		return err
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing, after a commit
	for _, name := range names {
		for _, q := range []string{
			"CREATE TEMP TABLE rewritten AS SELECT * FROM main.%s NOT INDEXED",
			"DELETE FROM main.%s", // without a condition, it uses no index
			"INSERT OR IGNORE INTO main.%s SELECT * FROM temp.rewritten",
			"DROP TABLE temp.rewritten",
		} {
			if strings.Contains(q, "%s") {
				q = fmt.Sprintf(q, name)
			}
			if _, err := tx.ExecContext(ctx, q); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// tableNames returns the names of the tables of a file of any version.
func (s *Store) tableNames(ctx context.Context) (names []string, err error) {
	rows, err := s.write.QueryContext(ctx,
		"SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// checkSchema compares the definitions of tables and indexes with those of a new file. They are
// texts in the file, so a changed byte can rename a column or turn an index around.
func (s *Store) checkSchema(ctx context.Context) (err error) {
	const op = "check state file"
	fresh, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return s.broken(op, err)
	}
	defer func() { err = errors.Join(err, fresh.Close()) }()
	fresh.SetMaxOpenConns(1) // each connection would have a database of its own
	for _, m := range migrations {
		if _, err := fresh.ExecContext(ctx, m); err != nil {
			return s.broken(op, err)
		}
	}
	want, err := schema(ctx, fresh)
	if err != nil {
		return s.broken(op, err)
	}
	got, err := schema(ctx, s.write)
	if err != nil {
		return s.broken(op, err)
	}
	for name, text := range want {
		if got[name] != text {
			return s.broken(op, fmt.Errorf("the definition of %s is damaged", name))
		}
	}
	return nil
}

// schema returns the definitions of tables and indexes by name, without white space.
func schema(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx,
		"SELECT name, type || ' ' || tbl_name || ' ' || ifnull(sql, '') FROM sqlite_schema")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return nil, err
		}
		out[name] = strings.Join(strings.Fields(text), "")
	}
	return out, rows.Err()
}

package sqlite

import (
	"encoding/json"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// table is a table whose rows the ledger has, too. The base of the ledger, its replay and its
// comparison with the state file all go by [tables].
type table struct {
	name    string
	columns []string // in the order of the arguments of put
	key     int      // the place of the primary key in columns
	time    int      // the place of the column that trim compares

	// The operations that write a row, remove one, and remove old ones. trim may be "".
	put, remove, trim string
	// inBase says that the base of the ledger holds the rows. The ledger has the others only as
	// long as it has their changes.
	inBase bool
	// readable reports whether a row makes sense by itself. The comparison asks it only for rows
	// that the ledger can't judge.
	readable func(row []any) bool
}

// tables are all tables of records.
var tables = []*table{
	{name: "sandboxes", columns: []string{"id", "started", "record"},
		put: opPutSandbox, remove: opDeleteSandbox, inBase: true,
		readable: func(row []any) bool {
			var r state.Record
			return decodeColumn(row[2], &r) && row[0] == string(r.Sandbox.ID)
		}},
	{name: "snapshots", columns: []string{"id", "sandbox", "created", "record"},
		put: opPutSnapshot, remove: opDeleteSnapshot, inBase: true,
		readable: func(row []any) bool {
			var r state.SnapshotRecord
			return decodeColumn(row[3], &r) && row[0] == string(r.Snapshot.ID) &&
				row[1] == string(r.Snapshot.Sandbox)
		}},
	{name: "projects", columns: []string{"name", "created", "record"},
		put: opPutProject, remove: opDeleteProject, inBase: true,
		readable: func(row []any) bool {
			var r state.ProjectRecord
			return decodeColumn(row[2], &r) && row[0] == r.Project.Name
		}},
	{name: "keys", columns: []string{"id", "created", "record"},
		put: opPutKey, remove: opDeleteKey, inBase: true,
		readable: func(row []any) bool {
			var r state.KeyRecord
			return decodeColumn(row[2], &r) && row[0] == r.Key.ID
		}},
	{name: "people", columns: []string{"id", "created", "record"},
		put: opPutPerson, remove: opDeletePerson, inBase: true,
		readable: func(row []any) bool {
			var r state.PersonRecord
			return decodeColumn(row[2], &r) && row[0] == r.Person.ID
		}},
	{name: "organisations", columns: []string{"name", "created", "record"},
		put: opPutOrganisation, remove: opDeleteOrganisation, inBase: true,
		readable: func(row []any) bool {
			var r state.OrganisationRecord
			return decodeColumn(row[2], &r) && row[0] == r.Organisation.Name
		}},
	{name: "sessions", columns: []string{"id", "created", "record"},
		put: opPutSession, remove: opDeleteSession, inBase: true,
		readable: func(row []any) bool {
			var r state.SessionRecord
			return decodeColumn(row[2], &r) && row[0] == r.ID
		}},
	{name: "tombstones", columns: []string{"id", "time"}, time: 1,
		put: opTombstone, remove: opUnbury, trim: opTrimTombstones, inBase: true,
		readable: func(row []any) bool {
			id, ok := row[0].(string)
			if !ok {
				return false
			}
			_, sandbox := carrel.ParseID(id)
			_, snapshot := carrel.ParseSnapshotID(id)
			return sandbox == nil || snapshot == nil
		}},
	{name: "usage", columns: []string{"id", "start", "until", "body"},
		put: opPutUsage, remove: opDropUsage, inBase: true,
		readable: func(row []any) bool {
			var u state.Usage
			return decodeColumn(row[3], &u) && row[0] == u.ID
		}},
	{name: "events", columns: []string{"time", "sandbox", "body", "seq"}, key: 3,
		put: opEvent, trim: opTrimEvents,
		readable: func(row []any) bool {
			var e carrel.Event
			return decodeColumn(row[2], &e) && row[1] == string(e.ID)
		}},
}

// decodeColumn reads the JSON text of a column, and reports whether it is one.
func decodeColumn(column, into any) bool {
	text, ok := column.(string)
	return ok && json.Unmarshal([]byte(text), into) == nil
}

// selection is the query for all rows.
func (t *table) selection() string {
	return "SELECT " + strings.Join(t.columns, ", ") + " FROM " + t.name
}

// replacement is the statement that writes a row with all its columns, also over another one.
func (t *table) replacement() string {
	var set []string
	for i, c := range t.columns {
		if i != t.key {
			set = append(set, c+" = excluded."+c)
		}
	}
	return "INSERT INTO " + t.name + " (" + strings.Join(t.columns, ", ") + ") VALUES (?" +
		strings.Repeat(", ?", len(t.columns)-1) + ") ON CONFLICT (" + t.columns[t.key] +
		") DO UPDATE SET " + strings.Join(set, ", ")
}

// deletion is the statement that deletes the row with a key.
func (t *table) deletion() string {
	return "DELETE FROM " + t.name + " WHERE " + t.columns[t.key] + " IS ?"
}

package postgres

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// The statements of the writer.
const (
	putSandbox = `INSERT INTO sandboxes (id, started, record) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET started = excluded.started, record = excluded.record`
	deleteSandbox = `DELETE FROM sandboxes WHERE id = $1`
	putSnapshot   = `INSERT INTO snapshots (id, sandbox, created, record) VALUES ($1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET sandbox = excluded.sandbox, created = excluded.created, record = excluded.record`
	deleteSnapshot = `DELETE FROM snapshots WHERE id = $1`
	putTombstone   = `INSERT INTO tombstones (id, time) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET time = excluded.time`
	unbury         = `DELETE FROM tombstones WHERE id = $1`
	trimTombstones = `DELETE FROM tombstones WHERE time < $1`
	putUsage       = `INSERT INTO usage (id, start, until, body) VALUES ($1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET start = excluded.start, until = excluded.until, body = excluded.body`
	dropUsage  = `DELETE FROM usage WHERE id = $1`
	trimEvents = `DELETE FROM events WHERE time < $1`
	// putEvent holds the row of the last number until the transaction's end. So numbers have no
	// gaps, and no event becomes visible before one with a lower number.
	putEvent = `WITH next AS (UPDATE event_number SET value = value + 1 RETURNING value)
		INSERT INTO events (seq, time, sandbox, body) SELECT value, $1, $2, $3 FROM next RETURNING seq`
)

// raisePeople tells other programs that there is something new in the tables of people.
const raisePeople = `UPDATE people_version SET number = number + 1`

// longest is the longest ID or name that is a key by itself. The server's indexes take 2,700 bytes.
const longest = 1024

// key is the key of a row with an ID or a name. It holds any bytes. A text that no index has room
// for becomes its beginning and its SHA-256; the record holds all of it.
func key(id string) []byte {
	if len(id) <= longest {
		return []byte(id)
	}
	sum := sha256.Sum256([]byte(id))
	return append([]byte(id[:longest]), sum[:]...)
}

// stamp returns a time in its stored form: nanoseconds since 1970, or 0.
func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// changeStatements lists the statements of a change, in its order.
func changeStatements(c state.Change) (list []statement, err error) {
	for _, r := range c.Put {
		put, err := putRecord(r)
		if err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", r.Sandbox.ID, err)
		}
		list = append(list, put...)
	}
	for _, id := range c.Delete {
		list = append(list, remove(deleteSandbox, string(id))...)
	}
	for _, r := range c.PutSnapshots {
		body, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", r.Snapshot.ID, err)
		}
		id := key(string(r.Snapshot.ID))
		list = append(list, statement{unbury, []any{id}}, statement{putSnapshot,
			[]any{id, key(string(r.Snapshot.Sandbox)), stamp(r.Snapshot.Created), string(body)}})
	}
	for _, id := range c.DeleteSnapshots {
		list = append(list, remove(deleteSnapshot, string(id))...)
	}
	for _, id := range c.Bury {
		list = append(list, statement{putTombstone, []any{key(string(id)), stamp(time.Now())}})
	}
	people, err := peopleStatements(c)
	if err != nil {
		return nil, err
	}
	list = append(list, people...)
	for _, id := range c.DropUsage {
		list = append(list, statement{dropUsage, []any{key(id)}})
	}
	for _, u := range c.PutUsage {
		body, err := json.Marshal(u)
		if err != nil {
			return nil, fmt.Errorf("usage %s: %w", u.ID, err)
		}
		list = append(list, statement{putUsage, []any{key(u.ID), stamp(u.Start), u.Until(), string(body)}})
	}
	return list, nil
}

// putRecord lists the statements that write a sandbox's record.
func putRecord(r state.Record) ([]statement, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	id := key(string(r.Sandbox.ID))
	return []statement{{unbury, []any{id}}, {putSandbox, []any{id, stamp(r.Sandbox.Started), string(body)}}}, nil
}

// remove lists the statements that delete one record and leave a tombstone.
func remove(deletion, id string) []statement {
	return []statement{{deletion, []any{key(id)}}, {putTombstone, []any{key(id), stamp(time.Now())}}}
}

// peopleStatements lists the statements for a change's projects, keys, people, organisations and
// sessions.
func peopleStatements(c state.Change) (list []statement, err error) {
	put := func(table, id string, created time.Time, record any) {
		body, merr := json.Marshal(record)
		if merr != nil && err == nil {
			err = fmt.Errorf("%s %s: %w", table, id, merr)
		}
		list = append(list, statement{`INSERT INTO ` + table + ` (id, created, record) VALUES ($1, $2, $3)
			ON CONFLICT (id) DO UPDATE SET created = excluded.created, record = excluded.record`,
			[]any{key(id), stamp(created), string(body)}})
	}
	drop := func(table string, ids []string) {
		for _, id := range ids {
			list = append(list, statement{"DELETE FROM " + table + " WHERE id = $1", []any{key(id)}})
		}
	}
	for _, r := range c.PutProjects {
		put("projects", r.Project.Name, r.Project.Created, r)
	}
	drop("projects", c.DeleteProjects)
	for _, r := range c.PutKeys {
		put("keys", r.Key.ID, r.Key.Created, r)
	}
	drop("keys", c.DeleteKeys)
	for _, r := range c.PutPeople {
		put("people", r.Person.ID, r.Person.Created, r)
	}
	drop("people", c.DeletePeople)
	for _, r := range c.PutOrganisations {
		put("organisations", r.Organisation.Name, r.Organisation.Created, r)
	}
	drop("organisations", c.DeleteOrganisations)
	for _, r := range c.PutSessions {
		put("sessions", r.ID, r.Created, r)
	}
	drop("sessions", c.DeleteSessions)
	if len(list) > 0 {
		list = append(list, statement{raisePeople, nil})
	}
	return list, err
}

// subject is the sandbox that a change is about, if it is about one; for errors.
func subject(c state.Change) carrel.ID {
	switch {
	case len(c.Put) == 1 && len(c.Delete) == 0:
		return c.Put[0].Sandbox.ID
	case len(c.Delete) == 1 && len(c.Put) == 0:
		return c.Delete[0]
	}
	return ""
}

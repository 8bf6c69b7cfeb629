package postgres_test

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/postgres"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
	"github.com/carrel-dev/carrel/internal/state/statetest"
)

// nasty are texts that want to be SQL, or that PostgreSQL's type text refuses.
var nasty = []string{
	`'; DROP SCHEMA carrel CASCADE; --`, `"; DELETE FROM events; --`, `\'; SELECT pg_sleep(60); --`, `$1`, `%s%d`, `E'\x27'`,
	"a\x00b", "\x00", "\xff\xfe no UTF-8", "cut \xe6\x97", "surrogate \xed\xa0\x80", `\u0000`, `\ud800`, `\`, `\x00`, "",
	"\u202e\u2028\ufeff", "é e\u0301 ẞ İ", " ", "\n\r\t\v", `{"a": [`, "null", strings.Repeat("key ", 300),
}

// view is what a store shows of all of its tables.
type view struct {
	Sandboxes []state.Record
	Got       []state.Record
	Snapshots []state.SnapshotRecord
	Projects  []state.ProjectRecord
	Keys      []state.KeyRecord
	People    []state.PersonRecord
	Orgs      []state.OrganisationRecord
	Sessions  []state.SessionRecord
	Usage     map[string]state.Usage
	Events    [][]carrel.Event
}

// look reads everything, and what belongs to each of some IDs.
func look(t *testing.T, s state.Store, ids []string) (v view) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	v.Sandboxes, err = s.Sandboxes(ctx)
	check(err)
	v.Snapshots, err = s.Snapshots(ctx)
	check(err)
	v.Projects, err = s.Projects(ctx)
	check(err)
	v.Keys, err = s.Keys(ctx)
	check(err)
	v.People, err = s.People(ctx)
	check(err)
	v.Orgs, err = s.Organisations(ctx)
	check(err)
	v.Sessions, err = s.Sessions(ctx)
	check(err)
	v.Usage = map[string]state.Usage{}
	check(s.EachUsage(ctx, time.Time{}, time.Time{}, func(u state.Usage) error { v.Usage[u.ID] = u; return nil }))
	for _, id := range ids {
		got, err := s.GetSandbox(ctx, carrel.ID(id))
		if err == nil {
			v.Got = append(v.Got, got)
		} else if carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("%.20q: %v", id, err)
		}
		events, err := s.Events(ctx, carrel.ID(id), 0, 0)
		check(err)
		v.Events = append(v.Events, events)
	}
	return v
}

// testTexts puts nasty texts into every text that a record has: as IDs, as names and as labels. A
// database keeps and finds them exactly as a file does.
func testTexts(t *testing.T, server *postgrestest.Server) {
	ctx := t.Context()
	file, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	name := server.Database(t)
	base := open(t, postgres.Options{URL: server.URL(name), Timeout: time.Minute})
	at := time.Unix(1789000000, 0).UTC()
	// Longer than an index takes. Both begin alike, and compression does not make them short.
	long := strings.Repeat(rand.Text(), 300)
	ids := append([]string{long + "a", long + "b"}, nasty...)
	for i, text := range ids {
		c := textChange(text, at.Add(time.Duration(i)))
		e := carrel.Event{Time: at, ID: carrel.ID(text), Type: "x", Message: text, Fields: map[string]string{text: text}}
		for _, s := range []state.Store{file, base} {
			if err := s.Apply(ctx, c); err != nil {
				t.Errorf("%T: %.20q: %v", s, text, err)
			}
			if _, err := s.AppendEvent(ctx, e); err != nil {
				t.Errorf("%T: event %.20q: %v", s, text, err)
			}
		}
	}
	same := func(what string) {
		t.Helper()
		want, got := look(t, file, ids), look(t, base, ids)
		for i := range reflect.TypeFor[view]().NumField() {
			if g, w := reflect.ValueOf(got).Field(i), reflect.ValueOf(want).Field(i); !reflect.DeepEqual(g.Interface(), w.Interface()) {
				t.Errorf("%s: %s differ: %.2000s\nwant %.2000s", what, reflect.TypeFor[view]().Field(i).Name, fmt.Sprintf("%q", g), fmt.Sprintf("%q", w))
			}
		}
	}
	same("written")
	for i, text := range ids {
		if i%2 == 0 {
			continue
		}
		c := state.Change{Delete: []carrel.ID{carrel.ID(text)}, DeleteSnapshots: []carrel.SnapshotID{carrel.SnapshotID(text)},
			DeleteProjects: []string{text}, DeleteKeys: []string{text}, DeletePeople: []string{text},
			DeleteOrganisations: []string{text}, DeleteSessions: []string{text}, DropUsage: []string{text}}
		for _, s := range []state.Store{file, base} {
			if err := s.Apply(ctx, c); err != nil {
				t.Errorf("%T: %.20q: %v", s, text, err)
			}
		}
	}
	same("half of them deleted")
	big := statetest.Record(at)
	big.Sandbox.Metadata["plain"] = strings.Repeat(rand.Text()[:16], 1<<16)
	big.Sandbox.Metadata["escaped"] = strings.Repeat("\x00\xff", 1<<17)
	for _, s := range []state.Store{file, base} {
		if err := s.PutSandbox(ctx, big); err != nil {
			t.Errorf("%T: labels of 1 MB: %v", s, err)
		}
	}
	same("labels of 1 MB")
	if n := server.Exec(t, name, "SELECT count(*) FROM pg_tables WHERE schemaname = 'carrel'"); n != "28" {
		t.Errorf("there are %s tables, want 28", n)
	}
}

// textChange puts one text everywhere.
func textChange(text string, at time.Time) state.Change {
	r := statetest.Record(at)
	r.Sandbox.ID, r.Sandbox.Project, r.Sandbox.Template, r.Sandbox.AccessToken = carrel.ID(text), text, text, text
	r.Sandbox.Metadata = map[string]string{"label": text, text: "label"}
	r.Env, r.User, r.Start, r.By, r.Handle = map[string]string{text: text}, text, []string{text}, text, []byte(text)
	snap := statetest.SnapshotRecord(r, at)
	snap.Snapshot.ID, snap.Snapshot.Label, snap.Snapshot.Names = carrel.SnapshotID(text), text, []string{text}
	u := statetest.Usage(text, at, time.Second)
	u.Subject, u.Labels = text, map[string]string{text: text}
	k := statetest.KeyRecord(text, at)
	k.Key.Name = text
	p := statetest.PersonRecord(text, at)
	p.Person.Name, p.Password, p.Groups = text, text, []string{text}
	s := statetest.SessionRecord(text, at)
	s.Label, s.Person = text, text
	return state.Change{Put: []state.Record{r}, PutSnapshots: []state.SnapshotRecord{snap}, PutUsage: []state.Usage{u},
		PutProjects: []state.ProjectRecord{statetest.ProjectRecord(text, at)}, PutKeys: []state.KeyRecord{k},
		PutPeople: []state.PersonRecord{p}, PutOrganisations: []state.OrganisationRecord{statetest.OrganisationRecord(text, at)},
		PutSessions: []state.SessionRecord{s}}
}

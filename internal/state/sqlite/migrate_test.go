package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/statetest"
)

// versionOne is a file of the first release, with a record as that release wrote it. Neither ever
// changes.
const versionOne = `
CREATE TABLE sandboxes (id TEXT PRIMARY KEY, started INTEGER NOT NULL, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL, sandbox TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX events_sandbox ON events (sandbox, seq);
CREATE INDEX events_time ON events (time);
INSERT INTO sandboxes VALUES ('iaaaaaaaaaaaaaaaaaaaa', 1789000000000000000, '{
	"Sandbox": {"id": "iaaaaaaaaaaaaaaaaaaaa", "template": "tpl1", "alias": "base", "tier": "gvisor", "state": "running",
		"limits": {"cpus": 2, "memoryMB": 512, "diskMB": 1024, "pids": 256}, "metadata": {"a": "b"},
		"network": {"internet": true}, "started": "2026-09-10T00:26:40Z", "ends": "2026-09-10T00:31:40Z",
		"accessToken": "secret", "envdVersion": "0.2.0"},
	"Handle": "eyJ2IjoxfQ==", "Env": {"A": "b"}, "User": "user", "WorkDir": "/w", "Owner": "key1"}');
INSERT INTO events (time, sandbox, body) VALUES (1789000000000000000, 'iaaaaaaaaaaaaaaaaaaaa',
	'{"seq": 0, "time": "2026-09-10T00:26:40Z", "type": "sandbox.created", "sandboxID": "iaaaaaaaaaaaaaaaaaaaa"}');
PRAGMA user_version = 1;`

// TestVersionOne opens a file of the first release. Its contents must be there, newer fields must
// be zero, and it must be able to store snapshots.
func TestVersionOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(versionOne); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	started := time.Unix(1789000000, 0).UTC()
	want := state.Record{
		Sandbox: carrel.Sandbox{
			ID: "iaaaaaaaaaaaaaaaaaaaa", Project: "key1", Template: "tpl1", Alias: "base", Tier: carrel.GVisor, State: carrel.Running,
			Limits: carrel.Limits{CPUs: 2, MemoryMB: 512, DiskMB: 1024, Pids: 256}, Metadata: map[string]string{"a": "b"},
			Network: carrel.Network{Internet: true}, Started: started, Ends: started.Add(5 * time.Minute),
			AccessToken: "secret", EnvdVersion: "0.2.0",
		},
		Handle: []byte(`{"v":1}`), Env: map[string]string{"A": "b"}, User: "user", WorkDir: "/w",
	}
	for range 2 { // the second Open has nothing to migrate
		s := open(t, path)
		if got, err := s.Sandboxes(t.Context()); err != nil || !reflect.DeepEqual(got, []state.Record{want}) {
			t.Errorf("%+v, %v\nwant %+v", got, err, want)
		}
		if evs, err := s.Events(t.Context(), want.Sandbox.ID, 0, 0); err != nil || len(evs) != 1 || evs[0].Type != "sandbox.created" {
			t.Errorf("events %+v, %v", evs, err)
		}
		snap := statetest.SnapshotRecord(want, started)
		want.Paused = snap.Snapshot.ID
		if err := s.Apply(t.Context(), state.Change{Put: []state.Record{want}, PutSnapshots: []state.SnapshotRecord{snap}}); err != nil {
			t.Error(err)
		}
		if got, err := s.GetSnapshot(t.Context(), snap.Snapshot.ID); err != nil || !reflect.DeepEqual(got, snap) {
			t.Errorf("%+v, %v\nwant %+v", got, err, snap)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

package sqlite_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
	"github.com/carrel-dev/carrel/internal/state/statetest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// closed makes a closed state file with some records, and returns what it holds.
func closed(t *testing.T, changes int) (path string, want contents) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	fillSome(t, s, changes)
	want = read(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, want
}

// damage changes a closed state file behind the store's back.
func damage(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range statements {
		res, err := db.Exec(q)
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			t.Fatalf("%s: it changed nothing (%v)", q, err)
		}
	}
}

// same fails unless two contents are equal.
func same(t *testing.T, what string, got, want contents) {
	t.Helper()
	for name, pair := range map[string][2]any{
		"sandboxes":  {got.Sandboxes, want.Sandboxes},
		"snapshots":  {got.Snapshots, want.Snapshots},
		"tombstones": {got.Deleted, want.Deleted},
		"events":     {got.Events, want.Events},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: the %s are %+v\nwant %+v", what, name, pair[0], pair[1])
		}
	}
}

// The row that the tests damage: a sandbox and a snapshot in the middle.
const (
	oneSandbox  = "(SELECT id FROM sandboxes ORDER BY id LIMIT 1 OFFSET 3)"
	oneSnapshot = "(SELECT id FROM snapshots ORDER BY id LIMIT 1 OFFSET 3)"
)

// contentDamages are statements that damage what one record says, and nothing of the structure.
var contentDamages = map[string]string{
	"a sandbox, still JSON": `UPDATE sandboxes SET record = replace(record, '"running"', '"runnimg"')
		WHERE id = ` + oneSandbox,
	"a sandbox, no JSON": `UPDATE sandboxes SET record = '[' || substr(record, 2)
		WHERE id = ` + oneSandbox,
	"a sandbox, no text": `UPDATE sandboxes SET record = CAST(record AS BLOB)
		WHERE id = ` + oneSandbox,
	"a sandbox's time": `UPDATE sandboxes SET started = started + 1 WHERE id = ` + oneSandbox,
	"a sandbox's ID": `UPDATE sandboxes SET id = 'i' || substr(id, 2, 19) || 'z'
		WHERE id = ` + oneSandbox,
	"a missing sandbox": `DELETE FROM sandboxes WHERE id = ` + oneSandbox,
	"a doubled sandbox": `INSERT INTO sandboxes SELECT 'i' || substr(id, 2, 19) || 'z', started,
		record FROM sandboxes WHERE id = ` + oneSandbox,
	"a deleted sandbox": `INSERT INTO sandboxes SELECT (SELECT id FROM tombstones
		WHERE id LIKE 'i%' LIMIT 1), started, record FROM sandboxes WHERE id = ` + oneSandbox,
	"a snapshot, still JSON": `UPDATE snapshots SET record = replace(record, '"Env"', '"Enw"')
		WHERE id = ` + oneSnapshot,
	"a snapshot, no JSON": `UPDATE snapshots SET record = substr(record, 2)
		WHERE id = ` + oneSnapshot,
	"a snapshot's sandbox": `UPDATE snapshots SET sandbox = 'x' || sandbox
		WHERE id = ` + oneSnapshot,
	"a snapshot's ID": `UPDATE snapshots SET id = 's' || substr(id, 2, 19) || 'z'
		WHERE id = ` + oneSnapshot,
	"a missing snapshot": `DELETE FROM snapshots WHERE id = ` + oneSnapshot,
	"a tombstone's ID": `UPDATE tombstones SET id = substr(id, 1, 20) || '.'
		WHERE id = (SELECT id FROM tombstones LIMIT 1)`,
	"a tombstone of a sandbox that lives": `INSERT INTO tombstones
		SELECT id, started FROM sandboxes WHERE id = ` + oneSandbox,
	"a missing tombstone":  `DELETE FROM tombstones WHERE id = (SELECT id FROM tombstones LIMIT 1)`,
	"an event, still JSON": `UPDATE events SET body = replace(body, '"x"', '"y"') WHERE seq = 5`,
	"an event, no JSON":    `UPDATE events SET body = '(' || substr(body, 2) WHERE seq = 5`,
	"an event's sandbox":   `UPDATE events SET sandbox = '' WHERE seq = 5`,
	"a missing event":      `DELETE FROM events WHERE seq = 5`,
	"the sequence":         `DELETE FROM sqlite_sequence`,
	"the identity":         `UPDATE meta SET value = 'x' || substr(value, 2) WHERE key = 'identity'`,
	"the identity's key":   `UPDATE meta SET key = 'idemtity' WHERE key = 'identity'`,
	"the change":           `UPDATE meta SET value = 'x' WHERE key = 'change'`,
	"a lower change":       `UPDATE meta SET value = value - 8 WHERE key = 'change'`,
}

// TestDamagedContent damages one record in each way that leaves the file sound in SQLite's eyes.
// The next start gives everything back as it was, says so, and the one after it finds nothing.
func TestDamagedContent(t *testing.T) {
	path, want := closed(t, 15)
	for name, q := range contentDamages {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			to := withLedger(t, path, copyFiles(t, path, ""))
			damage(t, to, q)
			s := open(t, to)
			same(t, name, read(t, s), want)
			r := s.Repaired()
			if r.Rebuilt || r.Damaged != "" || r.Dropped+r.Doubtful > 0 || r.Records+r.Changes == 0 {
				t.Errorf("Repaired: %+v", r)
			}
			e, err := s.AppendEvent(t.Context(), carrel.Event{Time: time.Now(), Type: "x"})
			if newest := want.Events[len(want.Events)-1].Seq; err != nil || e.Seq != newest+1 {
				t.Errorf("the next event has number %d, %v; the newest had %d", e.Seq, err, newest)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, to)
			if r := s.Repaired(); r != (sqlite.Repair{}) {
				t.Errorf("repaired once more: %+v", r)
			}
			again := read(t, s)
			again.Events = again.Events[:len(want.Events)]
			same(t, "after another start", again, want)
		})
	}
}

// TestFlippedBits flips single bits anywhere in the state file. Every start succeeds and gives
// everything back.
func TestFlippedBits(t *testing.T) {
	path, want := closed(t, 15)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const header = 100 // SQLite's own numbers
	rng, tries := rand.New(rand.NewPCG(18, 1)), 600
	if testing.Short() {
		tries = 60
	}
	var corrected, indexes, rebuilt, unseen int
	for range tries {
		flipped := bytes.Clone(whole)
		at, bit := header+rng.IntN(len(flipped)-header), rng.IntN(8)
		flipped[at] ^= 1 << bit
		to := withLedger(t, path, filepath.Join(t.TempDir(), "state.db"))
		if err := os.WriteFile(to, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, to)
		same(t, fmt.Sprintf("bit %d of byte %d", bit, at), read(t, s), want)
		byID(t, s, want)
		switch r := s.Repaired(); {
		case r.Rebuilt:
			rebuilt++
		case r.Indexes:
			indexes++
		case r.Records+r.Changes > 0:
			corrected++
		default:
			unseen++
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d corrected, %d new indexes, %d rebuilt, %d of no effect", corrected, indexes, rebuilt,
		unseen)
	if corrected == 0 || rebuilt == 0 {
		t.Error("these flips show nothing")
	}
}

// byID reads each record by its ID: that goes through an index.
func byID(t *testing.T, s *sqlite.Store, want contents) {
	t.Helper()
	for _, r := range want.Sandboxes {
		if got, err := s.GetSandbox(t.Context(), r.Sandbox.ID); err != nil ||
			!reflect.DeepEqual(got, r) {
			t.Errorf("sandbox %s: %v", r.Sandbox.ID, err)
		}
	}
	for _, r := range want.Snapshots {
		if got, err := s.GetSnapshot(t.Context(), r.Snapshot.ID); err != nil ||
			!reflect.DeepEqual(got, r) {
			t.Errorf("snapshot %s: %v", r.Snapshot.ID, err)
		}
	}
}

// TestDamagedIndex damages the index of the snapshots' IDs, and gives two rows the same ID.
// SQLite's quick check finds neither.
func TestDamagedIndex(t *testing.T) {
	path, want := closed(t, 15)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, b := string(want.Snapshots[4].Snapshot.ID), string(want.Snapshots[5].Snapshot.ID)
	// A row of the table has the IDs of snapshot and sandbox one after the other.
	row := string(want.Snapshots[4].Snapshot.Sandbox)
	for name, change := range map[string]func([]byte) []byte{
		"the index": func(db []byte) []byte {
			return replaceWhere(db, a, a[:19]+".", func(after []byte) bool {
				return !bytes.HasPrefix(after, []byte(row)) && !bytes.HasPrefix(after, []byte(`"`))
			})
		},
		"a doubled row": func(db []byte) []byte {
			return replaceWhere(db, a, b, func(after []byte) bool {
				return bytes.HasPrefix(after, []byte(row))
			})
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			damaged := change(bytes.Clone(whole))
			if bytes.Equal(damaged, whole) {
				t.Fatal("nothing is damaged")
			}
			to := withLedger(t, path, filepath.Join(t.TempDir(), "state.db"))
			if err := os.WriteFile(to, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, to)
			same(t, name, read(t, s), want)
			byID(t, s, want)
			if r := s.Repaired(); !r.Indexes || r.Rebuilt {
				t.Errorf("Repaired: %+v", r)
			}
		})
	}
}

// replaceWhere replaces each old text whose following bytes are as wanted by one of equal length.
func replaceWhere(db []byte, old, with string, wanted func(after []byte) bool) []byte {
	for at := 0; ; {
		i := bytes.Index(db[at:], []byte(old))
		if i < 0 {
			return db
		}
		at += i + len(old)
		if wanted(db[at:]) {
			copy(db[at-len(old):], with)
		}
	}
}

// TestDamagedContentTwice damages a record and its line in the ledger. The store starts, loses at
// most that record, and never gives a wrong one without saying so.
func TestDamagedContentTwice(t *testing.T) {
	path, want := closed(t, 15)
	ledger, err := os.ReadFile(ledgerOf(path))
	if err != nil {
		t.Fatal(err)
	}
	victim := want.Sandboxes[3]
	id := string(victim.Sandbox.ID)
	at := bytes.Index(ledger, []byte(`"`+id+`"`))
	ledger[at+30] ^= 1
	for name, change := range map[string]string{
		"unreadable": "'x' || record", "readable": `replace(record, '"running"', '"runnimg"')`} {
		t.Run(name, func(t *testing.T) {
			to := copyFiles(t, path, "")
			if err := os.WriteFile(ledgerOf(to), ledger, 0o600); err != nil {
				t.Fatal(err)
			}
			damage(t, to, "UPDATE sandboxes SET record = "+change+" WHERE id = '"+id+"'")
			s := open(t, to)
			got, r := read(t, s), s.Repaired()
			if !strings.Contains(r.Which, id) {
				t.Errorf("Repaired: %+v, want it to name %s", r, id)
			}
			if name == "readable" {
				if r.Doubtful == 0 || r.Dropped > 0 || len(got.Sandboxes) != len(want.Sandboxes) {
					t.Errorf("%d sandboxes, Repaired: %+v", len(got.Sandboxes), r)
				}
				return
			}
			less := want
			less.Sandboxes = slices.Concat(want.Sandboxes[:3], want.Sandboxes[4:])
			same(t, name, got, less)
			kept, err := os.ReadFile(r.Kept)
			if err != nil || r.Dropped != 1 || !bytes.Contains(kept, []byte(id)) {
				t.Errorf("Repaired: %+v, kept %q, %v", r, kept, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s = open(t, to); s.Repaired() != (sqlite.Repair{}) {
				t.Errorf("repaired once more: %+v", s.Repaired())
			}
		})
	}
}

// TestDamagedWithoutLedger damages a record while the ledger is behind, or not there. Other records
// stay, and so do changes that only the state file has.
func TestDamagedWithoutLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	fillSome(t, s, 15)
	before := read(t, s)
	short, err := os.ReadFile(ledgerOf(path))
	if err != nil {
		t.Fatal(err)
	}
	// Changed, deleted and made after the ledger's last line.
	changed, gone := before.Sandboxes[1], before.Sandboxes[2]
	changed.User = "another"
	if err := s.Apply(t.Context(), state.Change{Put: []state.Record{changed},
		Delete: []carrel.ID{gone.Sandbox.ID}}); err != nil {
		t.Fatal(err)
	}
	fillSome(t, s, 2)
	want := read(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	victim := string(before.Sandboxes[5].Sandbox.ID)
	for _, how := range []string{"behind", "not there"} {
		t.Run(strings.ReplaceAll(how, " ", "-"), func(t *testing.T) {
			to := copyFiles(t, path, "")
			less := want
			if how == "behind" {
				if err := os.WriteFile(ledgerOf(to), short, 0o600); err != nil {
					t.Fatal(err)
				}
			} else {
				less.Sandboxes = nil
				for _, r := range want.Sandboxes {
					if string(r.Sandbox.ID) != victim {
						less.Sandboxes = append(less.Sandboxes, r)
					}
				}
			}
			damage(t, to, "UPDATE sandboxes SET record = 'x' || record WHERE id = '"+victim+"'")
			s := open(t, to)
			same(t, how, read(t, s), less)
			if r := s.Repaired(); r.Records+r.Dropped != 1 || !strings.Contains(r.Which, victim) {
				t.Errorf("Repaired: %+v", r)
			}
		})
	}
}

// TestDamagedSchema changes the definitions of tables, which are texts in the file.
func TestDamagedSchema(t *testing.T) {
	path, want := closed(t, 15)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{"started INTEGER NOT NULL", "starter INTEGER NOT NULL"},
		{"events (sandbox, seq)", "events (sandbox, tim)"},
		{"CREATE TABLE snapshots", "CREATE TABLE snapshotz"},
	} {
		t.Run(c[1], func(t *testing.T) {
			damaged := bytes.Replace(whole, []byte(c[0]), []byte(c[1]), 1)
			if bytes.Equal(damaged, whole) {
				t.Fatal("nothing is damaged")
			}
			to := withLedger(t, path, filepath.Join(t.TempDir(), "state.db"))
			if err := os.WriteFile(to, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, to)
			same(t, c[1], read(t, s), want)
			if r := s.Repaired(); !r.Rebuilt || r.Damaged == "" {
				t.Errorf("Repaired: %+v", r)
			}
		})
	}
}

// TestWholeContent opens state files that nothing happened to. The comparison must not find
// anything, and must not change anything.
func TestWholeContent(t *testing.T) {
	sqlite.SmallLedgers(t) // bases, too
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	fillSome(t, s, 40)
	if err := s.TrimEvents(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.TrimTombstones(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	fillSome(t, s, 10)
	last := statetest.Record(time.Now().UTC().Round(0))
	if err := s.PutSandbox(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	want := read(t, s)
	ledger, err := os.ReadFile(ledgerOf(path))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(ledger, []byte("\n"))
	line := len(lines[len(lines)-2]) // nothing is behind the last line's end
	for name, kept := range map[string][]byte{
		"killed": ledger, "the last line is missing": ledger[:len(ledger)-line],
		"the last line is torn":     ledger[:len(ledger)-line/2],
		"only its end is missing":   ledger[:len(ledger)-1],
		"zeros instead of the line": append(bytes.Clone(ledger[:len(ledger)-line]), make([]byte, line)...),
	} {
		to := copyFiles(t, path, "", "-wal")
		if err := os.WriteFile(ledgerOf(to), kept, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, to)
		if r := s.Repaired(); r != (sqlite.Repair{}) {
			t.Errorf("%s: Repaired: %+v", name, r)
		}
		same(t, name, read(t, s), want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s = open(t, path)
		if r := s.Repaired(); r != (sqlite.Repair{}) {
			t.Errorf("Repaired: %+v", r)
		}
		same(t, "stopped", read(t, s), want)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), sqlite.Dropped)); err == nil {
		t.Error("rows were taken out")
	}
}

// TestWholeUnderLoad stops a store in the middle of much work again and again. The comparison finds
// nothing.
func TestWholeUnderLoad(t *testing.T) {
	testenv.Long(t, "writes some thousand records")
	sqlite.SmallLedgers(t)
	path := filepath.Join(t.TempDir(), "state.db")
	for range 20 {
		s := open(t, path)
		if r := s.Repaired(); r != (sqlite.Repair{}) {
			t.Fatalf("Repaired: %+v", r)
		}
		done := make(chan struct{})
		for range 4 {
			go func() { fillSome(t, s, 12); done <- struct{}{} }()
		}
		for range 4 {
			<-done
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

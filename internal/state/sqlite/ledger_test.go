package sqlite_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
	"github.com/carrel-dev/carrel/internal/state/statetest"
)

// contents is everything that a store remembers.
type contents struct {
	Sandboxes []state.Record
	Snapshots []state.SnapshotRecord
	Deleted   state.Tombstones
	Events    []carrel.Event
}

func read(t *testing.T, s *sqlite.Store) contents {
	t.Helper()
	var c contents
	var err error
	if c.Sandboxes, err = s.Sandboxes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Snapshots, err = s.Snapshots(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Deleted, err = s.Tombstones(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Events, err = s.Events(t.Context(), "", 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	return c
}

// fillSome makes n changes of every kind. Several goroutines may call it.
func fillSome(t *testing.T, s *sqlite.Store, n int) {
	t.Helper()
	var last state.Record
	for i := range n {
		r := statetest.Record(time.Now().UTC().Round(0))
		snap := statetest.SnapshotRecord(r, time.Now().UTC().Round(0))
		c := state.Change{Put: []state.Record{r}, PutSnapshots: []state.SnapshotRecord{snap}}
		if i%3 == 2 {
			c.Delete, c.DeleteSnapshots = []carrel.ID{last.Sandbox.ID}, []carrel.SnapshotID{snap.Snapshot.ID}
		}
		if err := s.Apply(t.Context(), c); err != nil {
			t.Error(err)
			return
		}
		if _, err := s.AppendEvent(t.Context(), carrel.Event{Time: time.Now().UTC().Round(0), ID: r.Sandbox.ID, Type: "x"}); err != nil {
			t.Error(err)
			return
		}
		last = r
	}
}

// copyFiles copies the files of an open store into a new directory, as a copy of a running daemon's
// directory would have them.
func copyFiles(t *testing.T, path string, suffixes ...string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	for _, suffix := range suffixes {
		b, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// ledgerOf is the ledger of a state file.
func ledgerOf(path string) string { return filepath.Join(filepath.Dir(path), "records.ledger") }

// withLedger copies the ledger of a state file to that of another one, and returns the other.
func withLedger(t *testing.T, path, to string) string {
	t.Helper()
	b, err := os.ReadFile(ledgerOf(path))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ledgerOf(to), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestLostFile deletes the state file under its records. They come back from the ledger, and
// numbers of events go on rising.
func TestLostFile(t *testing.T) {
	for _, how := range []string{"deleted", "emptied", "a fresh one"} {
		t.Run(how, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			s := open(t, path)
			fillSome(t, s, 20)
			want := read(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			var err error
			switch how {
			case "deleted":
				err = os.Remove(path)
			case "emptied":
				err = os.Truncate(path, 0)
			default:
				fresh := filepath.Join(t.TempDir(), "state.db")
				if err := open(t, fresh).Close(); err != nil {
					t.Fatal(err)
				}
				err = os.Rename(fresh, path)
			}
			if err != nil {
				t.Fatal(err)
			}
			s = open(t, path)
			if got := read(t, s); !reflect.DeepEqual(got, want) {
				t.Errorf("%d sandboxes, %d snapshots, %d events came back, want %d, %d, %d", len(got.Sandboxes), len(got.Snapshots), len(got.Events),
					len(want.Sandboxes), len(want.Snapshots), len(want.Events))
			}
			if r := s.Repaired(); !r.Rebuilt || r.Lost != 0 {
				t.Errorf("Repaired: %+v", r)
			}
			e, err := s.AppendEvent(t.Context(), carrel.Event{Time: time.Now(), Type: "x"})
			if newest := want.Events[len(want.Events)-1].Seq; err != nil || e.Seq <= newest {
				t.Errorf("the next event has number %d, %v; the newest had %d", e.Seq, err, newest)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s = open(t, path); s.Repaired() != (sqlite.Repair{}) {
				t.Errorf("repaired once more: %+v", s.Repaired())
			}
		})
	}
}

// TestDamagedLog changes one byte in each page of the write-ahead log in turn. SQLite alone loses
// every change behind it without a word; nothing may be lost here, and Repaired says so.
func TestDamagedLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	fillSome(t, s, 12)
	want := read(t, s)
	wal, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	const header, frame = 32, 24 + 4096
	pages := (len(wal) - header) / frame
	if pages < 20 {
		t.Fatalf("the log has %d pages: too few to try", pages)
	}
	lossy, tries := 0, 25
	if testing.Short() {
		tries = 10
	}
	for page := 0; page < pages; page += max(1, pages/tries) {
		damaged := bytes.Clone(wal)
		damaged[header+page*frame+24+2000] ^= 0x10
		alone := copyFiles(t, path, "")
		if err := os.WriteFile(alone+"-wal", damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if bare, err := sqlite.Open(t.Context(), alone); err == nil {
			if got := read(t, bare); len(got.Sandboxes) != len(want.Sandboxes) {
				lossy++
			}
			_ = bare.Close()
		}
		to := withLedger(t, path, copyFiles(t, path, ""))
		if err := os.WriteFile(to+"-wal", damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, to)
		if got := read(t, s); !reflect.DeepEqual(got.Sandboxes, want.Sandboxes) || !reflect.DeepEqual(got.Snapshots, want.Snapshots) ||
			!reflect.DeepEqual(got.Deleted, want.Deleted) || !reflect.DeepEqual(got.Events, want.Events) {
			t.Errorf("page %d: %d sandboxes and %d events of %d and %d are left", page, len(got.Sandboxes), len(got.Events), len(want.Sandboxes), len(want.Events))
		}
	}
	if lossy == 0 {
		t.Error("no damage cost SQLite anything: this test shows nothing")
	}
}

// TestDamagedFile puts the records of a damaged state file back, and keeps the file.
func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	fillSome(t, s, 50)
	want := read(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	hole := bytes.Clone(whole)
	copy(hole[4096:], bytes.Repeat([]byte{0xa5}, 8192))
	for name, content := range map[string][]byte{
		"not a database": bytes.Repeat([]byte("this is a text\n"), 500),
		"pages lost":     hole,
		"cut short":      whole[:len(whole)/2],
	} {
		t.Run(name, func(t *testing.T) {
			to := withLedger(t, path, copyFiles(t, path))
			if err := os.WriteFile(to, content, 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, to)
			if got := read(t, s); !reflect.DeepEqual(got.Sandboxes, want.Sandboxes) || !reflect.DeepEqual(got.Snapshots, want.Snapshots) {
				t.Errorf("%d sandboxes and %d snapshots of %d and %d came back", len(got.Sandboxes), len(got.Snapshots), len(want.Sandboxes), len(want.Snapshots))
			}
			r := s.Repaired()
			if kept, err := os.ReadFile(r.Damaged); err != nil || !r.Rebuilt || !bytes.Equal(kept, content) {
				t.Errorf("the damaged file was not kept: %+v, %v", r, err)
			}
		})
	}
}

// TestOlderFile puts an older copy of the state file back. The ledger brings it up to date, also
// when its base is newer than the copy.
func TestOlderFile(t *testing.T) {
	for _, between := range []int{3, 120} { // 120 changes make the ledger's base newer
		t.Run(fmt.Sprint(between), func(t *testing.T) {
			sqlite.SmallLedgers(t)
			path := filepath.Join(t.TempDir(), "state.db")
			s := open(t, path)
			fillSome(t, s, 5)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			old := copyFiles(t, path, "")
			s = open(t, path)
			fillSome(t, s, between)
			want := read(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(old, path); err != nil {
				t.Fatal(err)
			}
			s = open(t, path)
			if got := read(t, s); !reflect.DeepEqual(got.Sandboxes, want.Sandboxes) || !reflect.DeepEqual(got.Snapshots, want.Snapshots) || !reflect.DeepEqual(got.Deleted, want.Deleted) {
				t.Errorf("%d sandboxes, want %d", len(got.Sandboxes), len(want.Sandboxes))
			}
			if r := s.Repaired(); r.Changes == 0 && !r.Rebuilt {
				t.Errorf("Repaired: %+v", r)
			}
		})
	}
}

// TestForeignLedger keeps the ledger of another state file aside.
func TestForeignLedger(t *testing.T) {
	one, other := filepath.Join(t.TempDir(), "state.db"), filepath.Join(t.TempDir(), "state.db")
	for _, path := range []string{one, other} {
		s := open(t, path)
		fillSome(t, s, 3)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	foreign, err := os.ReadFile(ledgerOf(other))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ledgerOf(one), foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, one)
	if got := read(t, s); len(got.Sandboxes) != 2 {
		t.Errorf("%d sandboxes, want the file's own 2", len(got.Sandboxes))
	}
	if kept, err := os.ReadFile(s.Repaired().Foreign); err != nil || !bytes.Equal(kept, foreign) {
		t.Errorf("the other ledger was not kept: %+v, %v", s.Repaired(), err)
	}
}

// TestDamagedLedger shows that no damage to the ledger touches a sound state file.
func TestDamagedLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	fillSome(t, s, 20)
	want := read(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(ledgerOf(path))
	if err != nil {
		t.Fatal(err)
	}
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	r := rand.New(rand.NewSource(1))
	for i := range rounds {
		damaged := bytes.Clone(whole)
		switch i % 4 {
		case 0:
			damaged = damaged[:r.Intn(len(damaged))]
		case 1:
			damaged[r.Intn(len(damaged))] ^= 1 << r.Intn(8)
		case 2:
			damaged = append(damaged, []byte(`00000000 {"n":999999,"ops":[]}`+"\n")...)
		case 3:
			damaged = append(damaged, damaged[:r.Intn(200)]...)
		}
		to := copyFiles(t, path, "")
		if err := os.WriteFile(ledgerOf(to), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, to)
		if got := read(t, s); !reflect.DeepEqual(got, want) {
			t.Fatalf("damage %d changed the records", i)
		}
		fillSome(t, s, 3)
		after := read(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(to); err != nil {
			t.Fatal(err)
		}
		if got := read(t, open(t, to)); !reflect.DeepEqual(got.Sandboxes, after.Sandboxes) {
			t.Fatalf("damage %d: the ledger that was made anew has %d sandboxes of %d", i, len(got.Sandboxes), len(after.Sandboxes))
		}
	}
}

// TestDamagedBoth damages both copies at once. A record is lost only if both of its places are
// damaged, and Repaired counts the ledger's damaged lines.
func TestDamagedBoth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	fillSome(t, s, 30)
	want := read(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile(ledgerOf(path))
	if err != nil {
		t.Fatal(err)
	}
	at := len(lines) / 2
	for lines[at] == '\n' {
		at++
	}
	lines[at] ^= 4
	to := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(ledgerOf(to), lines, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, to)
	got := read(t, s)
	if n := len(want.Sandboxes) - len(got.Sandboxes); n < -1 || n > 1 { // a deletion may be in that line, too
		t.Errorf("one damaged line cost %d sandboxes", n)
	}
	if r := s.Repaired(); r.Lost != 1 {
		t.Errorf("Repaired: %+v, want one lost line", r)
	}
}

// TestLedgerUnderLoad writes from many goroutines while the ledger is written anew again and again.
// It then equals the state file.
func TestLedgerUnderLoad(t *testing.T) {
	sqlite.SmallLedgers(t)
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { fillSome(t, s, 60) })
	}
	wg.Wait()
	want := read(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(ledgerOf(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the ledger has %d bytes", fi.Size())
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got := read(t, s); !reflect.DeepEqual(got.Sandboxes, want.Sandboxes) || !reflect.DeepEqual(got.Snapshots, want.Snapshots) || !reflect.DeepEqual(got.Deleted, want.Deleted) {
		t.Errorf("%d sandboxes and %d snapshots, want %d and %d", len(got.Sandboxes), len(got.Snapshots), len(want.Sandboxes), len(want.Snapshots))
	}
}

// TestFullLedger makes the ledger unwritable, as a full disk does. No write fails, and the
// ledger is whole again afterwards.
func TestFullLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	fillSome(t, s, 3)
	sqlite.BreakLedger(t, s)
	fillSome(t, s, 3)
	want := read(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := read(t, open(t, path)); !reflect.DeepEqual(got.Sandboxes, want.Sandboxes) {
		t.Errorf("%d sandboxes came back, want %d", len(got.Sandboxes), len(want.Sandboxes))
	}
}

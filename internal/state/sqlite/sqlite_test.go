package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/sqlite"
	"github.com/carrel-dev/carrel/internal/state/statetest"
)

// childEnv makes the test binary the process that TestKilledWriter kills.
const childEnv = "CARREL_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		writeForEver(path)
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	statetest.Run(t, func(t *testing.T) state.Store {
		return open(t, filepath.Join(t.TempDir(), "state ?%41&.db"))
	})
}

// writeForEver writes records from several goroutines until it is killed. It prints the ID of each
// acknowledged record.
func writeForEver(path string) {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	lines := make(chan string)
	for range 8 {
		go func() {
			for {
				r := statetest.Record(time.Now())
				snap := statetest.SnapshotRecord(r, time.Now())
				r.Paused = snap.Snapshot.ID
				err := s.Apply(ctx, state.Change{Put: []state.Record{r}, PutSnapshots: []state.SnapshotRecord{snap}})
				if err == nil {
					_, err = s.AppendEvent(ctx, carrel.Event{Time: time.Now(), ID: r.Sandbox.ID, Type: "sandbox.created"})
				}
				if err != nil {
					lines <- "error " + err.Error()
				}
				lines <- string(r.Sandbox.ID)
			}
		}()
	}
	for l := range lines {
		fmt.Println(l) // unbuffered: a printed record was acknowledged before
	}
}

// TestKilledWriter kills a process in the middle of its writes, again and again on one file. Every
// acknowledged write must be there. Of each change, acknowledged or not, everything or nothing must
// be there.
func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	acked := map[carrel.ID]bool{}
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == 40+17*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			id, err := carrel.ParseID(lines.Text())
			if err != nil {
				break // the kill cut this line off
			}
			acked[id] = true
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
			t.Fatalf("round %d: the writer ended by itself: %v, %q", round, err, lines.Text())
		}
	}
	if len(acked) < 5*40 {
		t.Fatalf("only %d writes were acknowledged", len(acked))
	}
	s := open(t, path)
	all, err := s.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	snaps, err := s.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	snapshots := map[carrel.SnapshotID]bool{}
	for _, r := range snaps {
		snapshots[r.Snapshot.ID] = true
	}
	if len(snaps) != len(all) {
		t.Errorf("%d snapshots of %d sandboxes", len(snaps), len(all))
	}
	there := map[carrel.ID]bool{}
	for _, r := range all {
		there[r.Sandbox.ID] = true
		if !snapshots[r.Paused] {
			t.Errorf("%s is there without its snapshot", r.Sandbox.ID)
		}
	}
	for id := range acked {
		if !there[id] {
			t.Errorf("%s was acknowledged and is lost", id)
		}
		if evs, err := s.Events(t.Context(), id, 0, 0); err != nil || len(evs) != 1 {
			t.Errorf("%s has %d events (%v), want 1", id, len(evs), err)
		}
	}
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	r := statetest.Record(time.Now().UTC().Round(0))
	snap := statetest.SnapshotRecord(r, time.Now().UTC().Round(0))
	s := open(t, path)
	if err := s.Apply(t.Context(), state.Change{Put: []state.Record{r}, PutSnapshots: []state.SnapshotRecord{snap}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendEvent(t.Context(), carrel.Event{Time: time.Now(), Type: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got, err := s.GetSandbox(t.Context(), r.Sandbox.ID); err != nil || got.Sandbox.AccessToken != r.Sandbox.AccessToken {
		t.Errorf("after reopening: %+v, %v", got, err)
	}
	if got, err := s.GetSnapshot(t.Context(), snap.Snapshot.ID); err != nil || !reflect.DeepEqual(got, snap) {
		t.Errorf("after reopening: %+v, %v", got, err)
	}
	if e, err := s.AppendEvent(t.Context(), carrel.Event{Time: time.Now(), Type: "x"}); err != nil || e.Seq != 2 {
		t.Errorf("the second event is %+v, %v", e, err)
	}
}

func TestPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil { // as a careless copy would leave it
		t.Fatal(err)
	}
	s := open(t, path)
	if err := s.PutSandbox(t.Context(), statetest.Record(time.Now())); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		fi, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", fi.Name(), fi.Mode())
		}
	}
}

func TestOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	_, err := sqlite.Open(t.Context(), path)
	if !errors.Is(err, carrel.Conflict) || carrel.HintOf(err) == "" {
		t.Errorf("a second Open: %v, want Conflict with a hint", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestDamaged(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "state.db")
	s := open(t, whole)
	for range 50 {
		if err := s.PutSandbox(t.Context(), statetest.Record(time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	hole := bytes.Clone(data)
	copy(hole[4096:], bytes.Repeat([]byte{0xa5}, 8192))
	for name, content := range map[string][]byte{
		"not a database": []byte(strings.Repeat("this is a text\n", 500)),
		"pages lost":     hole,
		"cut short":      data[:len(data)/2],
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := sqlite.Open(t.Context(), path)
			if carrel.KindOf(err) != carrel.Internal || !strings.Contains(fmt.Sprint(err), path) || carrel.HintOf(err) == "" {
				t.Errorf("Open: %v (hint %q), want Internal naming the file, with a hint", err, carrel.HintOf(err))
			}
		})
	}
}

func TestNewerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA user_version = 999"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), path); !errors.Is(err, carrel.Unsupported) {
		t.Errorf("Open of a newer file: %v, want Unsupported", err)
	}
}

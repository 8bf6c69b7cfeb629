// Package statetest is the conformance suite of package state's contract. A store is complete when
// it passes.
package statetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// Run runs the suite. open returns an empty store each time; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) state.Store) {
	for name, test := range map[string]func(*testing.T, state.Store){
		"record round trip":     recordRoundTrip,
		"record not found":      recordNotFound,
		"record replaced":       recordReplaced,
		"record deleted":        recordDeleted,
		"records oldest first":  recordsOldestFirst,
		"values are copied":     valuesAreCopied,
		"events are numbered":   eventsAreNumbered,
		"events after and of":   eventsAfterAndOf,
		"events before":         eventsBefore,
		"events trimmed":        eventsTrimmed,
		"events outlive record": eventsOutliveRecord,
		"concurrent writers":    concurrentWriters,
		"ended context":         endedContext,
		"closed":                closed,

		"snapshot round trip":      snapshotRoundTrip,
		"snapshot not found":       snapshotNotFound,
		"snapshots oldest first":   snapshotsOldestFirst,
		"snapshot values copied":   snapshotValuesAreCopied,
		"change does everything":   changeDoesEverything,
		"change in order":          changeInOrder,
		"change undone":            changeUndone,
		"change of nothing":        changeOfNothing,
		"deletes are idempotent":   deletesAreIdempotent,
		"snapshot outlives record": snapshotOutlivesRecord,
		"changes are seen whole":   changesAreSeenWhole,
		"tombstones stay":          tombstonesStay,
		"people round trip":        peopleRoundTrip,
		"people and sessions":      peopleAndSessionsRoundTrip,
		"people in one change":     peopleInOneChange,

		"usage round trip":   usageRoundTrip,
		"usage with records": usageWithRecords,
		"usage holds labels": usageHolds,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			defer func() {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}()
			test(t, s)
		})
	}
}

// Record returns a record with every field set, for tests.
func Record(started time.Time) state.Record {
	return state.Record{
		Sandbox: carrel.Sandbox{
			ID: carrel.NewID(), Project: "key1", Template: "tpl1", Alias: "base", Tier: carrel.GVisor, State: carrel.Running,
			Limits:   carrel.Limits{CPUs: 1.5, MemoryMB: 512, DiskMB: 1024, Pids: 99},
			Metadata: map[string]string{"name": "Zoë \"quoted\" \x00 日本"},
			Network:  carrel.Network{Internet: true, AllowOut: []string{"example.com"}, DenyOut: []string{"0.0.0.0/0"}, PrivateTraffic: true},
			Started:  started, Ends: started.Add(5 * time.Minute),
			Lifecycle: carrel.Lifecycle{
				OnTimeout: carrel.ActionPause, FilesOnly: true, AutoResume: true,
				Idle:        carrel.Idle{After: time.Minute, CPUPct: 2.5, IgnoreCommands: true},
				Checkpoints: carrel.Checkpoints{Every: time.Hour, Before: []string{`^rm\s`}, FilesOnly: true},
				Retention:   carrel.Retention{Last: 7, For: 24 * time.Hour},
			},
			Snapshot: carrel.NewSnapshotID(), Generation: 3,
			AccessToken: "secret-a", TrafficToken: "secret-t", EnvdVersion: carrel.EnvdVersion, Domain: "d.example.com",
		},
		Handle: []byte{'{', 0, 0xff, '}'}, Env: map[string]string{"A": "b=c\nd"}, User: "user", WorkDir: "/w",
		Start: []string{"python3", "-m", "http.server"}, Timeout: 7 * time.Minute,
		Paused: carrel.NewSnapshotID(), Wake: true, Born: carrel.NewSnapshotID(), By: "ci",
	}
}

// SnapshotRecord returns the record of a snapshot of r's sandbox with every field
// set, for tests.
func SnapshotRecord(r state.Record, created time.Time) state.SnapshotRecord {
	return state.SnapshotRecord{Record: r, Snapshot: carrel.Snapshot{
		ID: carrel.NewSnapshotID(), Sandbox: r.Sandbox.ID, Project: r.Sandbox.Project, Parent: carrel.NewSnapshotID(), Created: created,
		Cause: carrel.CauseCommand, Names: []string{"clean:v1", "clean"}, Label: "before \"it\" 日本", Memory: true, Kept: true,
		Detail: "rm -rf /\x00", Tier: r.Sandbox.Tier, Template: r.Sandbox.Template, Alias: r.Sandbox.Alias,
		Limits: r.Sandbox.Limits, Size: 1 << 40, New: -1,
	}}
}

func now() time.Time { return time.Now().UTC().Round(0) }

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func recordRoundTrip(t *testing.T, s state.Store) {
	want := Record(now())
	ok(t, s.PutSandbox(t.Context(), want))
	got := must[state.Record](t)(s.GetSandbox(t.Context(), want.Sandbox.ID))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	empty := state.Record{Sandbox: carrel.Sandbox{ID: carrel.NewID(), Project: carrel.DefaultProject}}
	ok(t, s.PutSandbox(t.Context(), empty))
	if got := must[state.Record](t)(s.GetSandbox(t.Context(), empty.Sandbox.ID)); !reflect.DeepEqual(got, empty) {
		t.Errorf("got %+v\nwant %+v", got, empty)
	}
}

func recordNotFound(t *testing.T, s state.Store) {
	id := carrel.NewID()
	_, err := s.GetSandbox(t.Context(), id)
	var ce *carrel.Error
	if !errors.As(err, &ce) || ce.Kind != carrel.NotFound || ce.ID != id {
		t.Errorf("GetSandbox: %v, want NotFound naming %s", err, id)
	}
	if all := must[[]state.Record](t)(s.Sandboxes(t.Context())); len(all) != 0 {
		t.Errorf("an empty store lists %d records", len(all))
	}
}

func recordReplaced(t *testing.T, s state.Store) {
	r := Record(now())
	ok(t, s.PutSandbox(t.Context(), r))
	r.Sandbox.State, r.Handle, r.Env = carrel.Paused, nil, nil
	ok(t, s.PutSandbox(t.Context(), r))
	if got := must[state.Record](t)(s.GetSandbox(t.Context(), r.Sandbox.ID)); !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v\nwant %+v", got, r)
	}
	if all := must[[]state.Record](t)(s.Sandboxes(t.Context())); len(all) != 1 {
		t.Errorf("%d records after replacing one", len(all))
	}
}

func recordDeleted(t *testing.T, s state.Store) {
	r := Record(now())
	ok(t, s.PutSandbox(t.Context(), r))
	ok(t, s.DeleteSandbox(t.Context(), r.Sandbox.ID))
	ok(t, s.DeleteSandbox(t.Context(), r.Sandbox.ID))
	if _, err := s.GetSandbox(t.Context(), r.Sandbox.ID); !errors.Is(err, carrel.NotFound) {
		t.Errorf("after delete: %v", err)
	}
}

func recordsOldestFirst(t *testing.T, s state.Store) {
	base := now()
	for _, i := range []int{3, 1, 4, 0, 2} {
		ok(t, s.PutSandbox(t.Context(), Record(base.Add(time.Duration(i)*time.Nanosecond))))
	}
	all := must[[]state.Record](t)(s.Sandboxes(t.Context()))
	if len(all) != 5 {
		t.Fatalf("%d records, want 5", len(all))
	}
	for i, r := range all {
		if want := base.Add(time.Duration(i)); !r.Sandbox.Started.Equal(want) {
			t.Errorf("record %d started %v, want %v", i, r.Sandbox.Started, want)
		}
	}
}

func valuesAreCopied(t *testing.T, s state.Store) {
	r := Record(now())
	ok(t, s.PutSandbox(t.Context(), r))
	r.Env["A"], r.Sandbox.Metadata["name"], r.Handle[0], r.Sandbox.Network.AllowOut[0] = "x", "x", 'x', "x"
	got := must[state.Record](t)(s.GetSandbox(t.Context(), r.Sandbox.ID))
	if got.Env["A"] == "x" || got.Sandbox.Metadata["name"] == "x" || got.Handle[0] == 'x' || got.Sandbox.Network.AllowOut[0] == "x" {
		t.Error("a change of the caller's value reached the store")
	}
	got.Env["A"] = "y"
	if again := must[state.Record](t)(s.GetSandbox(t.Context(), r.Sandbox.ID)); again.Env["A"] == "y" {
		t.Error("a change of a returned value reached the store")
	}
}

// appendN appends n events that alternate between two sandboxes.
func appendN(t *testing.T, s state.Store, n int) (a, b carrel.ID, seqs []int64) {
	t.Helper()
	a, b = carrel.NewID(), carrel.NewID()
	base := now()
	for i := range n {
		id := a
		if i%2 == 1 {
			id = b
		}
		e := carrel.Event{Time: base.Add(time.Duration(i) * time.Second), Type: "sandbox.test", ID: id,
			Reason: carrel.EndKilled, Message: fmt.Sprint(i), Fields: map[string]string{"i": fmt.Sprint(i)}}
		got := must[carrel.Event](t)(s.AppendEvent(t.Context(), e))
		e.Seq = got.Seq
		if !reflect.DeepEqual(got, e) {
			t.Errorf("AppendEvent returned %+v, want %+v", got, e)
		}
		seqs = append(seqs, got.Seq)
	}
	return a, b, seqs
}

func eventsAreNumbered(t *testing.T, s state.Store) {
	_, _, seqs := appendN(t, s, 10)
	for i, seq := range seqs {
		if seq != int64(i+1) {
			t.Errorf("event %d has number %d", i, seq)
		}
	}
}

func eventsAfterAndOf(t *testing.T, s state.Store) {
	a, _, _ := appendN(t, s, 10)
	for _, c := range []struct {
		id    carrel.ID
		after int64
		limit int
		want  []int64
	}{
		{"", 0, 0, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{"", 0, 3, []int64{1, 2, 3}},
		{"", 8, 5, []int64{9, 10}},
		{"", 10, 5, nil},
		{"", 99, 5, nil},
		{a, 0, 10, []int64{1, 3, 5, 7, 9}},
		{a, 3, 2, []int64{5, 7}},
		{carrel.NewID(), 0, 5, nil},
	} {
		var got []int64
		for _, e := range must[[]carrel.Event](t)(s.Events(t.Context(), c.id, c.after, c.limit)) {
			got = append(got, e.Seq)
			if e.Message != fmt.Sprint(e.Seq-1) || e.Fields["i"] != e.Message {
				t.Errorf("event %d came back as %+v", e.Seq, e)
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("Events(%q, %d, %d) = %v, want %v", c.id, c.after, c.limit, got, c.want)
		}
	}
}

func eventsBefore(t *testing.T, s state.Store) {
	a, _, _ := appendN(t, s, 10)
	for _, c := range []struct {
		id     carrel.ID
		before int64
		limit  int
		want   []int64
	}{
		{"", 0, 3, []int64{10, 9, 8}},
		{"", 3, 0, []int64{2, 1}},
		{"", 1, 5, nil},
		{"", 99, 1, []int64{10}},
		{a, 0, 0, []int64{9, 7, 5, 3, 1}},
		{a, 7, 2, []int64{5, 3}},
		{carrel.NewID(), 0, 5, nil},
	} {
		var got []int64
		for _, e := range must[[]carrel.Event](t)(s.EventsBefore(t.Context(), c.id, c.before, c.limit)) {
			got = append(got, e.Seq)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("EventsBefore(%q, %d, %d) = %v, want %v", c.id, c.before, c.limit, got, c.want)
		}
	}
}

func eventsTrimmed(t *testing.T, s state.Store) {
	appendN(t, s, 4)
	all := must[[]carrel.Event](t)(s.Events(t.Context(), "", 0, 0))
	ok(t, s.TrimEvents(t.Context(), all[2].Time))
	left := must[[]carrel.Event](t)(s.Events(t.Context(), "", 0, 0))
	if len(left) != 2 || left[0].Seq != 3 {
		t.Errorf("left after trimming: %+v", left)
	}
	ok(t, s.TrimEvents(t.Context(), all[3].Time.Add(time.Hour)))
	e := must[carrel.Event](t)(s.AppendEvent(t.Context(), carrel.Event{Time: now(), Type: "x"}))
	if e.Seq != 5 {
		t.Errorf("the event after trimming everything has number %d, want 5", e.Seq)
	}
}

func eventsOutliveRecord(t *testing.T, s state.Store) {
	r := Record(now())
	ok(t, s.PutSandbox(t.Context(), r))
	_, err := s.AppendEvent(t.Context(), carrel.Event{Time: now(), Type: "sandbox.ended", ID: r.Sandbox.ID})
	ok(t, err)
	ok(t, s.DeleteSandbox(t.Context(), r.Sandbox.ID))
	if got := must[[]carrel.Event](t)(s.Events(t.Context(), r.Sandbox.ID, 0, 0)); len(got) != 1 {
		t.Errorf("%d events after the record went, want 1", len(got))
	}
}

func concurrentWriters(t *testing.T, s state.Store) {
	const writers, each = 16, 10
	var wg sync.WaitGroup
	seen := make(chan int64, writers*each)
	for range writers {
		wg.Go(func() {
			for range each {
				r := Record(now())
				if err := s.PutSandbox(t.Context(), r); err != nil {
					t.Error(err)
				}
				e, err := s.AppendEvent(t.Context(), carrel.Event{Time: now(), ID: r.Sandbox.ID, Type: "x"})
				if err != nil {
					t.Error(err)
				}
				seen <- e.Seq
				if _, err := s.GetSandbox(t.Context(), r.Sandbox.ID); err != nil {
					t.Errorf("a record that was written is not there: %v", err)
				}
			}
		})
	}
	wg.Wait()
	close(seen)
	numbers := map[int64]bool{}
	for seq := range seen {
		if numbers[seq] || seq < 1 || seq > writers*each {
			t.Errorf("number %d was given twice or is out of range", seq)
		}
		numbers[seq] = true
	}
	if all := must[[]state.Record](t)(s.Sandboxes(t.Context())); len(all) != writers*each {
		t.Errorf("%d records, want %d", len(all), writers*each)
	}
}

func endedContext(t *testing.T, s state.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.PutSandbox(ctx, Record(now())); !errors.Is(err, context.Canceled) {
		t.Errorf("PutSandbox with an ended context: %v", err)
	}
	if _, err := s.Sandboxes(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Sandboxes with an ended context: %v", err)
	}
	if err := s.Apply(ctx, state.Change{Put: []state.Record{Record(now())}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply with an ended context: %v", err)
	}
	if _, err := s.Snapshots(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Snapshots with an ended context: %v", err)
	}
	if all := must[[]state.Record](t)(s.Sandboxes(t.Context())); len(all) != 0 {
		t.Errorf("%d records were written with an ended context", len(all))
	}
}

func closed(t *testing.T, s state.Store) {
	ok(t, s.Close())
	ok(t, s.Close())
	for name, err := range map[string]error{
		"PutSandbox":    s.PutSandbox(t.Context(), Record(now())),
		"DeleteSandbox": s.DeleteSandbox(t.Context(), carrel.NewID()),
		"TrimEvents":    s.TrimEvents(t.Context(), now()),
		"AppendEvent":   second(s.AppendEvent(t.Context(), carrel.Event{})),
		"GetSandbox":    second(s.GetSandbox(t.Context(), carrel.NewID())),
		"Sandboxes":     second(s.Sandboxes(t.Context())),
		"Events":        second(s.Events(t.Context(), "", 0, 1)),
		"EventsBefore":  second(s.EventsBefore(t.Context(), "", 0, 1)),
		"Apply":         s.Apply(t.Context(), state.Change{Put: []state.Record{Record(now())}}),
		"GetSnapshot":   second(s.GetSnapshot(t.Context(), carrel.NewSnapshotID())),
		"Snapshots":     second(s.Snapshots(t.Context())),
	} {
		if carrel.KindOf(err) != carrel.Internal {
			t.Errorf("%s on a closed store: %v, want Internal", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

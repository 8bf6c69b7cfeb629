package statetest

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// Usage returns a piece of usage with every field set, for tests. A length of 0 leaves it open.
func Usage(id string, start time.Time, length time.Duration) state.Usage {
	u := state.Usage{ID: id, Subject: string(carrel.NewID()), Kind: carrel.UsageRun, Project: "key1", Key: "ci",
		Template: "tpl1", Tier: carrel.GVisor, Labels: map[string]string{"task": "a\nb, \"=c\" 日本"}, MilliCPUs: 1500,
		MemoryMiB: 512, Bytes: 7, Start: start, Boot: "b", Mono: 1<<53 + 1, AliveMS: 1, CPUAlive: 2, MemAlive: 3,
		BytesAlive: 4, CPUMicros: 5, MemUsed: 6, DiskUsed: 7, BytesOut: 1<<63 - 1, BytesIn: 9,
		Counted: &state.Reading{Mono: 1, CPU: 2, Memory: 3, Disk: 4, Sent: 5, Received: 6}, Pieces: 3}
	if length > 0 {
		u.End = start.Add(length)
	}
	return u
}

// usages collects what a walk finds, by ID.
func usages(t *testing.T, walk func(fn func(state.Usage) error) error) map[string]state.Usage {
	t.Helper()
	out := map[string]state.Usage{}
	ok(t, walk(func(u state.Usage) error {
		if _, twice := out[u.ID]; twice {
			t.Errorf("%s is found twice", u.ID)
		}
		out[u.ID] = u
		return nil
	}))
	return out
}

// usageRoundTrip writes, replaces and deletes pieces, and finds them by their time.
func usageRoundTrip(t *testing.T, s state.Store) {
	at := now().Truncate(time.Hour)
	early, late, open := Usage("early", at, time.Minute), Usage("late", at.Add(time.Hour), time.Minute),
		Usage("open", at.Add(30*time.Minute), 0)
	ok(t, s.Apply(t.Context(), state.Change{PutUsage: []state.Usage{early, late, open, Usage("gone", at, time.Second)}}))
	late.CPUMicros = 77
	ok(t, s.Apply(t.Context(), state.Change{DropUsage: []string{"gone", "late", "never was"}, PutUsage: []state.Usage{late}}))
	for _, c := range []struct {
		name     string
		from, to time.Time
		want     []state.Usage
	}{
		{"everything", time.Time{}, time.Time{}, []state.Usage{early, late, open}},
		{"up to the start", time.Time{}, at, []state.Usage{early}},
		{"before all", time.Time{}, at.Add(-1), nil},
		{"from the end", at.Add(time.Minute), at.Add(10 * time.Minute), []state.Usage{early}},
		{"between", at.Add(time.Minute + 1), at.Add(10 * time.Minute), nil},
		{"inside", at.Add(40 * time.Minute), at.Add(50 * time.Minute), []state.Usage{open}},
		{"after all", at.Add(100 * time.Hour), time.Time{}, []state.Usage{open}},
	} {
		got := usages(t, func(fn func(state.Usage) error) error { return s.EachUsage(t.Context(), c.from, c.to, fn) })
		want := map[string]state.Usage{}
		for _, u := range c.want {
			want[u.ID] = u
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v\nwant %+v", c.name, got, want)
		}
	}
	got := usages(t, func(fn func(state.Usage) error) error { return s.OpenUsage(t.Context(), fn) })
	if want := map[string]state.Usage{"open": open}; !reflect.DeepEqual(got, want) {
		t.Errorf("open: got %+v\nwant %+v", got, want)
	}
	enough := errors.New("enough")
	n := 0
	if err := s.EachUsage(t.Context(), time.Time{}, time.Time{}, func(state.Usage) error { n++; return enough }); !errors.Is(err, enough) || n != 1 {
		t.Errorf("an error of the reader: %v after %d pieces", err, n)
	}
}

// usageWithRecords writes usage and records in one change. A reader, which may call the store again,
// never finds one without the other.
func usageWithRecords(t *testing.T, s state.Store) {
	r := Record(now())
	ok(t, s.PutSandbox(t.Context(), r))
	done := make(chan error, 1)
	go func() {
		var err error
		for range 30 {
			u := Usage(string(r.Sandbox.ID), now(), 0)
			err = errors.Join(err, s.Apply(t.Context(), state.Change{Put: []state.Record{r}, PutUsage: []state.Usage{u}}),
				s.Apply(t.Context(), state.Change{Put: []state.Record{r}, DropUsage: []string{u.ID}}))
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			ok(t, err)
			return
		default:
		}
		ok(t, s.OpenUsage(t.Context(), func(u state.Usage) error {
			_, err := s.GetSandbox(t.Context(), carrel.ID(u.ID))
			return err
		}))
	}
}

// usageHolds keeps labels of any size.
func usageHolds(t *testing.T, s state.Store) {
	u := Usage(strings.Repeat("i", 200), now(), time.Second)
	u.Labels = map[string]string{"big": strings.Repeat("x", 1<<20)}
	ok(t, s.Apply(t.Context(), state.Change{PutUsage: []state.Usage{u}}))
	got := usages(t, func(fn func(state.Usage) error) error { return s.EachUsage(t.Context(), time.Time{}, time.Time{}, fn) })
	if !reflect.DeepEqual(got[u.ID], u) {
		t.Error("a big label did not come back")
	}
}

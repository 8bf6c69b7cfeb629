package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

var moment = carrel.Snapshot{
	ID: "s0123456789abcdefghij", Sandbox: box.ID, Parent: "s00000000000000000000", Created: box.Started, Cause: carrel.CauseCommand,
	Names: []string{"team/warm:v1"}, Label: "before the “fix”", Memory: true, Kept: true, Detail: "rm -rf /", Tier: carrel.Sim,
	Template: "tpl1", Alias: "base", Limits: box.Limits, Size: 1 << 40, New: -1,
}

// keeper records the calls that reach the service, and gives the same results each time.
type keeper struct {
	fake
	got   []any
	forks func(carrel.ForkOptions) []carrel.ForkResult // nil: one fork, and one failure of each kind
}

// heard returns the calls since the last time it was used, and forgets them.
func (k *keeper) heard() []any { got := k.got; k.got = nil; return got }

func (k *keeper) note(args ...any) error { k.got = append(k.got, args...); return k.err }

func (k *keeper) Pause(_ context.Context, id carrel.ID, o carrel.PauseOptions) (carrel.Sandbox, error) {
	return asleep, k.note(id, o)
}
func (k *keeper) Resume(_ context.Context, id carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	return box, o.FilesOnly, k.note(id, o)
}
func (k *keeper) Snapshot(_ context.Context, id carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) {
	return moment, k.note(id, o)
}
func (k *keeper) Fork(_ context.Context, id carrel.ID, o carrel.ForkOptions) ([]carrel.ForkResult, error) {
	err := k.note(id, o)
	if k.forks != nil {
		return k.forks(o), err
	}
	out := []carrel.ForkResult{{Sandbox: box}}
	for _, err := range everyKind() {
		out = append(out, carrel.ForkResult{Err: err})
	}
	return out, err
}
func (k *keeper) Rollback(_ context.Context, id carrel.ID, to carrel.SnapshotID, o carrel.RollbackOptions) (carrel.Sandbox, error) {
	return box, k.note(id, to, o)
}
func (k *keeper) GetSnapshot(_ context.Context, name string) (carrel.Snapshot, error) {
	return moment, k.note(name)
}
func (k *keeper) ListSnapshots(_ context.Context, o carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
	return carrel.SnapshotPage{Snapshots: []carrel.Snapshot{moment}, Next: "n&"}, k.note(o)
}
func (k *keeper) UpdateSnapshot(_ context.Context, id carrel.SnapshotID, u carrel.SnapshotUpdate) (carrel.Snapshot, error) {
	return moment, k.note(id, u)
}
func (k *keeper) DeleteSnapshot(_ context.Context, name string) error { return k.note(name) }
func (k *keeper) Timeline(_ context.Context, id carrel.ID) (carrel.Timeline, error) {
	return timeline, k.note(id)
}
func (k *keeper) SnapshotFile(_ context.Context, id carrel.SnapshotID, name string) (carrel.SnapshotFile, error) {
	return pastFile, k.note(id, name)
}
func (k *keeper) Diff(_ context.Context, from, to carrel.SnapshotID) ([]carrel.FileChange, error) {
	return changes, k.note(from, to)
}
func (k *keeper) SetMetadata(_ context.Context, id carrel.ID, m carrel.MetadataChange) (carrel.Sandbox, error) {
	return box, k.note(id, m)
}
func (k *keeper) SetLifecycle(_ context.Context, id carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) {
	sb := box
	sb.Lifecycle = l
	return sb, k.note(id, l)
}
func (k *keeper) Create(_ context.Context, o carrel.CreateOptions) (carrel.Sandbox, error) {
	return box, k.note(o)
}

var (
	asleep = func() carrel.Sandbox {
		sb := box
		sb.State, sb.Snapshot, sb.Generation, sb.Lifecycle = carrel.Paused, moment.ID, 7, whole
		return sb
	}()
	whole = carrel.Lifecycle{
		OnTimeout: carrel.ActionPause, FilesOnly: true, AutoResume: true,
		Idle:        carrel.Idle{After: 90 * time.Second, CPUPct: 2.5, IgnoreCommands: true},
		Checkpoints: carrel.Checkpoints{Every: time.Hour, Before: []string{`^rm\s`, `git reset --hard`}, FilesOnly: true},
		Retention:   carrel.Retention{Last: 3, For: 1<<62 + 1}, // more than JSON's floats can hold
	}
	timeline = carrel.Timeline{Sandbox: box.ID, Head: moment.ID, Snapshots: []carrel.Snapshot{moment},
		Forks: map[carrel.SnapshotID][]carrel.ID{moment.ID: {"i00000000000000000000"}}, Size: 5}
	changes = []carrel.FileChange{
		{Path: "/a b\n", Kind: carrel.ChangeRemoved, Before: &carrel.FileInfo{Name: "a b\n", Path: "/a b\n", Size: 3, Mode: 0o644, Modified: box.Started}},
		{Path: "/l", Kind: carrel.ChangeModified, Before: &carrel.FileInfo{Name: "l", Target: "x"}, After: &carrel.FileInfo{Name: "l", Target: "y"}},
	}
)

// everyKind returns one error of each kind, as a service makes them.
func everyKind() []error {
	var out []error
	for _, kind := range []carrel.Kind{carrel.Invalid, carrel.Unauthenticated, carrel.Forbidden, carrel.NotFound, carrel.AlreadyExists, carrel.Conflict,
		carrel.Exhausted, carrel.Unavailable, carrel.Unsupported, carrel.TimedOut, carrel.Denied} {
		out = append(out, &carrel.Error{Op: "do it", Kind: kind, ID: box.ID, Field: "some.field", Err: errors.New("it can't be"), Hint: "try this"})
	}
	return out
}

// same compares an error with the error on the other side.
func same(t *testing.T, what string, got, want error) {
	t.Helper()
	g, ok := errors.AsType[*carrel.Error](got)
	w, _ := errors.AsType[*carrel.Error](want)
	if !ok || g.Kind != w.Kind || g.Op != w.Op || g.ID != w.ID || g.Field != w.Field || g.Hint != w.Hint || got.Error() != want.Error() {
		t.Errorf("%s: %v came back as %v (%+v)", what, want, got, g)
	}
}

var pastFile = carrel.SnapshotFile{Info: carrel.FileInfo{Name: "ü", Path: "/a b&c/ü", Size: 3}, Content: []byte{0, 0xff, '\n'}, Whole: true}

var relabelling = carrel.MetadataChange{Set: map[string]string{"ü=": "a b"}, Remove: []string{"x/y"}}

// calls are Create and all methods of Moments, each with the call that must reach the service and
// the result that must come back.
var calls = []struct {
	name       string
	call       func(context.Context, carrel.Service) (any, error)
	sent, want any
}{
	{"create", func(ctx context.Context, s carrel.Service) (any, error) {
		return s.Create(ctx, carrel.CreateOptions{Template: string(moment.ID), Timeout: time.Minute, Lifecycle: whole})
	}, []any{carrel.CreateOptions{Template: string(moment.ID), Timeout: time.Minute, Lifecycle: whole}}, box},
	{"pause", func(ctx context.Context, s carrel.Service) (any, error) {
		return s.Pause(ctx, box.ID, carrel.PauseOptions{FilesOnly: true, Cause: carrel.CauseIdle})
	}, []any{box.ID, carrel.PauseOptions{FilesOnly: true}}, asleep}, // a client does not say why
	{"resume", func(ctx context.Context, s carrel.Service) (any, error) {
		sb, resumed, err := s.Resume(ctx, box.ID, carrel.ResumeOptions{Timeout: 90 * time.Second, FilesOnly: true})
		return []any{sb, resumed}, err
	}, []any{box.ID, carrel.ResumeOptions{Timeout: 90 * time.Second, FilesOnly: true}}, []any{box, true}},
	{"resume a running one", func(ctx context.Context, s carrel.Service) (any, error) {
		sb, resumed, err := s.Resume(ctx, box.ID, carrel.ResumeOptions{})
		return []any{sb, resumed}, err
	}, []any{box.ID, carrel.ResumeOptions{}}, []any{box, false}},
	{"snapshot", func(ctx context.Context, s carrel.Service) (any, error) {
		return s.Snapshot(ctx, box.ID, carrel.SnapshotOptions{Name: "team/warm:v1", Label: "ü", FilesOnly: true, Cause: carrel.CauseGuest, Detail: "x"})
	}, []any{box.ID, carrel.SnapshotOptions{Name: "team/warm:v1", Label: "ü", FilesOnly: true}}, moment},
	{"rollback", func(ctx context.Context, s carrel.Service) (any, error) {
		return s.Rollback(ctx, box.ID, moment.ID, carrel.RollbackOptions{Keep: true})
	}, []any{box.ID, moment.ID, carrel.RollbackOptions{Keep: true}}, box},
	{"get snapshot", func(ctx context.Context, s carrel.Service) (any, error) { return s.GetSnapshot(ctx, "team/warm:v1") },
		[]any{"team/warm:v1"}, moment},
	{"list snapshots", func(ctx context.Context, s carrel.Service) (any, error) {
		return s.ListSnapshots(ctx, carrel.SnapshotListOptions{Sandbox: box.ID, Name: "a/b:c", Limit: 3, Cursor: "x&y", Auto: true})
	}, []any{carrel.SnapshotListOptions{Sandbox: box.ID, Name: "a/b:c", Limit: 3, Cursor: "x&y", Auto: true}}, carrel.SnapshotPage{Snapshots: []carrel.Snapshot{moment}, Next: "n&"}},
	{"rename", func(ctx context.Context, s carrel.Service) (any, error) {
		return s.UpdateSnapshot(ctx, moment.ID, carrel.SnapshotUpdate{Names: &[]string{"b", "c:v2"}, Kept: new(bool)})
	}, []any{moment.ID, carrel.SnapshotUpdate{Names: &[]string{"b", "c:v2"}, Kept: new(bool)}}, moment},
	{"take the names away", func(ctx context.Context, s carrel.Service) (any, error) {
		return s.UpdateSnapshot(ctx, moment.ID, carrel.SnapshotUpdate{Names: new([]string), Label: new(string)})
	}, []any{moment.ID, carrel.SnapshotUpdate{Names: &[]string{}, Label: new(string)}}, moment},
	{"delete snapshot", func(ctx context.Context, s carrel.Service) (any, error) {
		return nil, s.DeleteSnapshot(ctx, "team/warm:v1")
	},
		[]any{"team/warm:v1"}, nil},
	{"timeline", func(ctx context.Context, s carrel.Service) (any, error) { return s.Timeline(ctx, box.ID) }, []any{box.ID}, timeline},
	{"file of a snapshot", func(ctx context.Context, s carrel.Service) (any, error) {
		return s.SnapshotFile(ctx, moment.ID, "/a b&c/ü")
	}, []any{moment.ID, "/a b&c/ü"}, pastFile},
	{"diff", func(ctx context.Context, s carrel.Service) (any, error) { return s.Diff(ctx, moment.Parent, moment.ID) },
		[]any{moment.Parent, moment.ID}, changes},
	{"labels", func(ctx context.Context, s carrel.Service) (any, error) {
		return s.SetMetadata(ctx, box.ID, relabelling)
	},
		[]any{box.ID, relabelling}, box},
	{"lifecycle", func(ctx context.Context, s carrel.Service) (any, error) {
		sb, err := s.SetLifecycle(ctx, box.ID, whole)
		return sb.Lifecycle, err
	}, []any{box.ID, whole}, whole},
	{"no lifecycle", func(ctx context.Context, s carrel.Service) (any, error) {
		sb, err := s.SetLifecycle(ctx, box.ID, carrel.Lifecycle{})
		return sb.Lifecycle, err
	}, []any{box.ID, carrel.Lifecycle{}}, carrel.Lifecycle{}},
	{"fork", func(ctx context.Context, s carrel.Service) (any, error) {
		out, err := s.Fork(ctx, box.ID, carrel.ForkOptions{Count: 100, Timeout: time.Hour})
		if err != nil {
			return nil, err
		}
		return []any{len(out), out[0]}, nil
	}, []any{box.ID, carrel.ForkOptions{Count: 100, Timeout: time.Hour}}, []any{12, carrel.ForkResult{Sandbox: box}}},
}

func keep(t *testing.T) (carrel.Service, *keeper) {
	t.Helper()
	k := &keeper{}
	srv := httptest.NewServer(api.New(api.Options{Service: k, Callers: adminKey(key), Snapshots: shelf{}}))
	svc, err := client.New(srv.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close(); srv.Close() })
	return svc, k
}

// TestMomentsRoundTrip shows that each method's options reach the service unchanged, and that
// results and errors of each kind come back unchanged.
func TestMomentsRoundTrip(t *testing.T) {
	svc, k := keep(t)
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.call(t.Context(), svc)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("came back as\n%+v, %v; want\n%+v", got, err, c.want)
			}
			if sent := k.heard(); !reflect.DeepEqual(sent, c.sent) {
				t.Errorf("reached the service as\n%+v, want\n%+v", sent, c.sent)
			}
			for _, want := range everyKind() {
				k.err = want
				_, err := c.call(t.Context(), svc)
				same(t, c.name, err, want)
			}
			k.err = errors.New("/etc/secret is broken")
			if _, err := c.call(t.Context(), svc); carrel.KindOf(err) != carrel.Internal || strings.Contains(err.Error(), "secret") {
				t.Errorf("a fault of the daemon's: %v", err)
			}
			k.err = nil
			k.heard()
		})
	}
}

// TestForkErrors shows that each fork's error keeps its kind.
func TestForkErrors(t *testing.T) {
	svc, _ := keep(t)
	out, err := svc.Fork(t.Context(), box.ID, carrel.ForkOptions{Count: 12})
	if err != nil || len(out) != 12 || out[0].Err != nil {
		t.Fatal(out, err)
	}
	for i, want := range everyKind() {
		same(t, "fork", out[i+1].Err, want)
	}
}

// TestManyForks shows that more than a hundred forks take several requests, which all name the
// moment of the first. After a request without any fork, no other is sent.
func TestManyForks(t *testing.T) {
	svc, k := keep(t)
	room := 0
	k.forks = func(o carrel.ForkOptions) []carrel.ForkResult {
		out := make([]carrel.ForkResult, o.Count)
		for i := range out {
			if room--; room < 0 {
				out[i].Err = &carrel.Error{Op: "fork sandbox", Kind: carrel.Exhausted, Err: errors.New("no place")}
				continue
			}
			out[i].Sandbox = box
			out[i].Sandbox.Snapshot = moment.ID
		}
		return out
	}
	for _, c := range []struct {
		room, want, made int
		counts           []int
	}{{250, 250, 250, []int{100, 100, 50}}, {200, 1000, 200, []int{100, 100, 100}}, {120, 201, 120, []int{100, 100, 1}}, {0, 101, 0, []int{100}}} {
		room = c.room
		out, err := svc.Fork(t.Context(), box.ID, carrel.ForkOptions{Count: c.want})
		made, failed := 0, 0
		for _, r := range out {
			if r.Err == nil {
				made++
			} else if carrel.KindOf(r.Err) == carrel.Exhausted {
				failed++
			}
		}
		if err != nil || made != c.made || made+failed != c.want {
			t.Errorf("%d with room for %d: %d made and %d failed, %v", c.want, c.room, made, failed, err)
		}
		var counts []int
		for i, got := range k.heard() {
			o, ok := got.(carrel.ForkOptions)
			if !ok {
				continue
			}
			counts = append(counts, o.Count)
			if first := i == 1; first != (o.At == "") {
				t.Errorf("request %d is for the moment %q", len(counts), o.At)
			}
		}
		if !slices.Equal(counts, c.counts) {
			t.Errorf("%d with room for %d: asked for %v, want %v", c.want, c.room, counts, c.counts)
		}
	}
	if _, err := svc.Fork(t.Context(), box.ID, carrel.ForkOptions{Count: carrel.MaxForks + 1}); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("more than there may be: %v", err)
	}
}

// TestNoSuchMoment shows that a text that can't be an ID is NotFound, and that the client does not
// ask the daemon about it.
func TestNoSuchMoment(t *testing.T) {
	svc, k := keep(t)
	ctx := t.Context()
	_, perr := svc.Pause(ctx, "nope", carrel.PauseOptions{})
	_, _, rerr := svc.Resume(ctx, "", carrel.ResumeOptions{})
	_, ferr := svc.Fork(ctx, "../x", carrel.ForkOptions{})
	for _, err := range []error{perr, rerr, ferr} {
		if carrel.KindOf(err) != carrel.NotFound {
			t.Error(err)
		}
	}
	_, gerr := svc.GetSnapshot(ctx, "")
	_, uerr := svc.UpdateSnapshot(ctx, "", carrel.SnapshotUpdate{})
	_, berr := svc.Rollback(ctx, box.ID, "yesterday", carrel.RollbackOptions{})
	_, derr := svc.Diff(ctx, moment.ID, "")
	for _, err := range []error{gerr, uerr, berr, derr, svc.DeleteSnapshot(ctx, "")} {
		if carrel.KindOf(err) != carrel.Invalid {
			t.Error(err)
		}
	}
	if len(k.got) != 0 {
		t.Errorf("the service was asked: %v", k.got)
	}
}

// shelf is a snapshot store that reports its size.
type shelf struct{}

func (shelf) Usage(context.Context) (snapshot.Usage, error) {
	return snapshot.Usage{Snapshots: 1, Size: 2, Hot: 3, Packs: 4, Quota: 5}, nil
}
func (shelf) GC(context.Context) (snapshot.Collected, error) {
	return snapshot.Collected{Packs: 1, Drafts: 2, Freed: 3}, nil
}

func TestSnapshotStore(t *testing.T) {
	svc, _ := keep(t)
	c := svc.(*client.Client)
	if u, err := c.SnapshotUsage(t.Context()); err != nil || u != (client.SnapshotUsage{Snapshots: 1, Size: 2, Hot: 3, Packs: 4, Quota: 5}) {
		t.Errorf("%+v %v", u, err)
	}
	if got, err := c.CollectSnapshots(t.Context()); err != nil || got != (client.SnapshotsCollected{Packs: 1, Drafts: 2, Freed: 3}) {
		t.Errorf("%+v %v", got, err)
	}
	none, _ := connect(t, &fake{})
	if _, err := none.(*client.Client).SnapshotUsage(t.Context()); carrel.KindOf(err) != carrel.Unsupported {
		t.Errorf("without a store: %v", err)
	}
}

// TestStrangeForks shows that the client does not accept a daemon's answer without a fork and
// without an error.
func TestStrangeForks(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"forks":[{}]}`) }))
	defer srv.Close()
	svc, err := client.New(srv.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	if out, err := svc.Fork(t.Context(), box.ID, carrel.ForkOptions{}); err != nil || len(out) != 1 || carrel.KindOf(out[0].Err) != carrel.Internal {
		t.Errorf("%+v %v", out, err)
	}
}

// TestComputerAsleep shows that a paused sandbox can be used if it resumes by itself. Otherwise the
// error says what to do. Connections kept from one life are not used in the next.
func TestComputerAsleep(t *testing.T) {
	k := &sleeper{}
	srv := httptest.NewServer(api.New(api.Options{Service: k, Callers: adminKey(key)}))
	svc, err := client.New(srv.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close(); srv.Close() })
	k.computer = dialer{dial: func(uint16) (net.Conn, error) { return nil, errors.New("woken") }}
	if _, err := svc.Computer(t.Context(), box.ID); carrel.KindOf(err) != carrel.Conflict || !strings.Contains(carrel.HintOf(err), "carrel resume") {
		t.Errorf("paused for good: %v %q", err, carrel.HintOf(err))
	}
	k.wakes = true
	first, err := svc.Computer(t.Context(), box.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Dial(t.Context(), 80); carrel.KindOf(err) != carrel.Internal { // the fake's own error, so it was called
		t.Errorf("%v", err)
	}
	if _, _, err := svc.Resume(t.Context(), box.ID, carrel.ResumeOptions{FilesOnly: true}); err != nil {
		t.Fatal(err)
	}
	if second, err := svc.Computer(t.Context(), box.ID); err != nil || second == first {
		t.Errorf("the way into the life before is kept: %v", err)
	}
}

// sleeper has one paused sandbox.
type sleeper struct {
	keeper
	wakes bool
}

func (s *sleeper) Get(context.Context, carrel.ID) (carrel.Sandbox, error) {
	sb := box
	sb.State, sb.Lifecycle.AutoResume = carrel.Paused, s.wakes
	return sb, nil
}

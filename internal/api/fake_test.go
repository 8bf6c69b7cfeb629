package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/policy"
)

// parts are the interfaces that a fake need not implement.
type parts interface {
	carrel.Sandboxes
	carrel.Moments
	carrel.Templates
}

// fake is a service made of functions. A missing function must not be called.
type fake struct {
	parts
	carrel.NoExtras
	create     func(carrel.CreateOptions) (carrel.Sandbox, error)
	get        func(carrel.ID) (carrel.Sandbox, error)
	list       func(carrel.ListOptions) (carrel.Page, error)
	kill       func(carrel.ID) error
	setTimeout func(carrel.ID, time.Duration, bool) (carrel.Sandbox, error)
	setNetwork func(carrel.ID, carrel.Network) (carrel.Sandbox, error)
	computer   func(carrel.ID) (carrel.Computer, error)
	metrics    func(carrel.ID, time.Time, time.Time) ([]carrel.Metric, error)
	logs       func(carrel.ID, carrel.LogOptions) ([]carrel.LogEntry, error)
	events     func(context.Context, int64) iter.Seq2[carrel.Event, error]
	templates  []carrel.Template
	imported   func(string, io.Reader, func(carrel.Progress)) (carrel.Template, error)
	deleted    func(string) error

	// Moments.
	pause     func(carrel.ID, carrel.PauseOptions) (carrel.Sandbox, error)
	resume    func(carrel.ID, carrel.ResumeOptions) (carrel.Sandbox, bool, error)
	snapshot  func(carrel.ID, carrel.SnapshotOptions) (carrel.Snapshot, error)
	fork      func(carrel.ID, carrel.ForkOptions) ([]carrel.ForkResult, error)
	promote   func(carrel.ID, carrel.PromoteOptions) (carrel.Sandbox, error)
	rollback  func(carrel.ID, carrel.SnapshotID, carrel.RollbackOptions) (carrel.Sandbox, error)
	snapshots func(carrel.SnapshotListOptions) (carrel.SnapshotPage, error)
	update    func(carrel.SnapshotID, carrel.SnapshotUpdate) (carrel.Snapshot, error)
	unsnap    func(string) error
	timeline  func(carrel.ID) (carrel.Timeline, error)
	diff      func(from, to carrel.SnapshotID) ([]carrel.FileChange, error)
	lifecycle func(carrel.ID, carrel.Lifecycle) (carrel.Sandbox, error)
}

func (f *fake) Close() error { return nil }

func (f *fake) Create(_ context.Context, o carrel.CreateOptions) (carrel.Sandbox, error) {
	return f.create(o)
}
func (f *fake) Get(_ context.Context, id carrel.ID) (carrel.Sandbox, error) { return f.get(id) }
func (f *fake) List(_ context.Context, o carrel.ListOptions) (carrel.Page, error) {
	if err := within("list sandboxes", "limit", o.Limit, 0, servicePage); err != nil {
		return carrel.Page{}, err
	}
	return f.list(o)
}
func (f *fake) Kill(_ context.Context, id carrel.ID) error { return f.kill(id) }
func (f *fake) SetTimeout(_ context.Context, id carrel.ID, d time.Duration, extend bool) (carrel.Sandbox, error) {
	if d < 0 {
		return carrel.Sandbox{}, &carrel.Error{Op: "set timeout", Kind: carrel.Invalid, Field: "timeout", Err: fmt.Errorf("%v is negative", d)}
	}
	return f.setTimeout(id, d, extend)
}
func (f *fake) SetNetwork(_ context.Context, id carrel.ID, n carrel.Network) (carrel.Sandbox, error) {
	return f.setNetwork(id, n)
}
func (f *fake) Computer(_ context.Context, id carrel.ID) (carrel.Computer, error) {
	return f.computer(id)
}
func (f *fake) Metrics(_ context.Context, id carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
	return f.metrics(id, from, to)
}
func (f *fake) Logs(_ context.Context, id carrel.ID, o carrel.LogOptions) ([]carrel.LogEntry, error) {
	if err := within("read logs", "limit", o.Limit, 0, carrel.MaxLogs); err != nil {
		return nil, err
	}
	return f.logs(id, o)
}
func (f *fake) Events(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	return f.events(ctx, after)
}
func (f *fake) ListTemplates(context.Context) ([]carrel.Template, error) { return f.templates, nil }
func (f *fake) GetTemplate(_ context.Context, name string) (carrel.Template, error) {
	for _, t := range f.templates {
		if t.ID == name || t.Name == name {
			return t, nil
		}
	}
	return carrel.Template{}, &carrel.Error{Op: "get template", Kind: carrel.NotFound}
}
func (f *fake) ImportTemplate(_ context.Context, name string, r io.Reader, p func(carrel.Progress)) (carrel.Template, error) {
	return f.imported(name, r, p)
}
func (f *fake) DeleteTemplate(ctx context.Context, name string) error {
	t, err := f.GetTemplate(ctx, name)
	if err != nil {
		return err
	}
	return f.deleted(t.ID)
}
func (f *fake) Pause(_ context.Context, id carrel.ID, o carrel.PauseOptions) (carrel.Sandbox, error) {
	return f.pause(id, o)
}
func (f *fake) Resume(_ context.Context, id carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	return f.resume(id, o)
}
func (f *fake) Snapshot(_ context.Context, id carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) {
	return f.snapshot(id, o)
}
func (f *fake) Fork(_ context.Context, id carrel.ID, o carrel.ForkOptions) ([]carrel.ForkResult, error) {
	if err := within("fork sandbox", "count", o.Count, 0, carrel.MaxForks); err != nil {
		return nil, err
	}
	return f.fork(id, o)
}
func (f *fake) Rollback(_ context.Context, id carrel.ID, to carrel.SnapshotID, o carrel.RollbackOptions) (carrel.Sandbox, error) {
	return f.rollback(id, to, o)
}

func (f *fake) Promote(_ context.Context, id carrel.ID, o carrel.PromoteOptions) (carrel.Sandbox, error) {
	return f.promote(id, o)
}
func (f *fake) GetSnapshot(_ context.Context, name string) (carrel.Snapshot, error) {
	if name == string(moment.ID) || name == moment.Names[0] {
		return moment, nil
	}
	return carrel.Snapshot{}, noSnapshot(name)
}
func (f *fake) ListSnapshots(_ context.Context, o carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
	if err := within("list snapshots", "limit", o.Limit, 0, servicePage); err != nil {
		return carrel.SnapshotPage{}, err
	}
	return f.snapshots(o)
}
func (f *fake) UpdateSnapshot(_ context.Context, id carrel.SnapshotID, u carrel.SnapshotUpdate) (carrel.Snapshot, error) {
	return f.update(id, u)
}
func (f *fake) DeleteSnapshot(_ context.Context, name string) error {
	return f.unsnap(strings.TrimSuffix(name, ":default"))
}
func (f *fake) Timeline(_ context.Context, id carrel.ID) (carrel.Timeline, error) {
	return f.timeline(id)
}
func (f *fake) Diff(_ context.Context, from, to carrel.SnapshotID) ([]carrel.FileChange, error) {
	return f.diff(from, to)
}
func (f *fake) SetMetadata(_ context.Context, id carrel.ID, m carrel.MetadataChange) (carrel.Sandbox, error) {
	return carrel.Sandbox{ID: id, Metadata: m.Set}, nil
}

func (f *fake) SetLifecycle(_ context.Context, id carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) {
	return f.lifecycle(id, l)
}

// servicePage is the most that the service lists at once.
const servicePage = 100

// within refuses what the service refuses. A fake that accepts everything would hide a handler that
// asks for too much.
func within(op, field string, got, least, most int) error {
	if got < least || got > most {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf("%d is not between %d and %d", got, least, most)}
	}
	return nil
}

func noSnapshot(name string) error {
	return &carrel.Error{Op: "get snapshot", Kind: carrel.NotFound, Field: "snapshotID", Err: errors.New("no snapshot " + name)}
}

const (
	testKey = "e2b_0123456789abcdef"
	boxID   = "i0123456789abcdefghij"
	otherID = "i00000000000000000000"

	momentID = "s0123456789abcdefghij"
	laterID  = "s00000000000000000000"
)

// box is the only sandbox.
var box = carrel.Sandbox{
	ID: boxID, Template: "tpl1", Alias: "base", Tier: carrel.Sim, State: carrel.Running,
	Limits:   carrel.Limits{CPUs: 1.5, MemoryMB: 512, DiskMB: 1024, Pids: 100},
	Metadata: map[string]string{"a": "b"}, Network: carrel.Network{Internet: true},
	Started: time.Date(2026, 1, 2, 3, 4, 5, 6000000, time.UTC), Ends: time.Date(2026, 1, 2, 3, 9, 5, 0, time.UTC),
	AccessToken: "tok", EnvdVersion: carrel.EnvdVersion,
}

// moment is the only snapshot.
var moment = carrel.Snapshot{
	ID: momentID, Sandbox: boxID, Created: box.Started, Cause: carrel.CauseRequest, Names: []string{"team/warm"}, Memory: true, Kept: true,
	Tier: carrel.Sim, Template: "tpl1", Alias: "base", Limits: box.Limits, Size: 7, New: -1,
}

// newFake returns a fake with box and one template. It refuses everything else as a service would.
func newFake() *fake {
	missing := func(id carrel.ID) error {
		return &carrel.Error{Op: "get sandbox", Kind: carrel.NotFound, ID: id}
	}
	f := &fake{templates: []carrel.Template{{ID: "tpl1", Name: "base", Created: box.Started, BuiltIn: true}}}
	f.get = func(id carrel.ID) (carrel.Sandbox, error) {
		if id != box.ID {
			return carrel.Sandbox{}, missing(id)
		}
		return box, nil
	}
	f.create = func(o carrel.CreateOptions) (carrel.Sandbox, error) {
		if _, err := policy.Compile(o.Network); err != nil { // as the service checks it
			return carrel.Sandbox{}, err
		}
		if name := strings.TrimSuffix(o.Template, ":default"); name != "" && name != "base" {
			return carrel.Sandbox{}, &carrel.Error{Op: "create sandbox", Kind: carrel.NotFound, Field: "template"}
		}
		sb := box
		sb.Metadata, sb.Network = o.Metadata, o.Network
		if o.Insecure {
			sb.AccessToken = ""
		}
		if o.Network.PrivateTraffic {
			sb.TrafficToken = "traffic"
		}
		return sb, nil
	}
	f.kill = func(id carrel.ID) error { _, err := f.get(id); return err }
	f.setTimeout = func(id carrel.ID, _ time.Duration, _ bool) (carrel.Sandbox, error) { return f.get(id) }
	f.setNetwork = func(id carrel.ID, n carrel.Network) (carrel.Sandbox, error) {
		if _, err := policy.Compile(n); err != nil {
			return carrel.Sandbox{}, err
		}
		return f.get(id)
	}
	f.list = func(carrel.ListOptions) (carrel.Page, error) {
		return carrel.Page{Sandboxes: []carrel.Sandbox{box}, Next: "more", Running: 7}, nil
	}
	f.metrics = func(id carrel.ID, _, _ time.Time) ([]carrel.Metric, error) { _, err := f.get(id); return nil, err }
	f.logs = func(id carrel.ID, _ carrel.LogOptions) ([]carrel.LogEntry, error) {
		_, err := f.get(id)
		return nil, err
	}
	f.pause = func(id carrel.ID, _ carrel.PauseOptions) (carrel.Sandbox, error) {
		sb, err := f.get(id)
		sb.State = carrel.Paused
		return sb, err
	}
	f.resume = func(id carrel.ID, _ carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
		sb, err := f.get(id)
		return sb, sb.State != carrel.Running, err
	}
	f.snapshot = func(id carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) {
		_, err := f.get(id)
		snap := moment
		snap.Names = nil
		if o.Name != "" {
			snap.Names = []string{o.Name}
		}
		return snap, err
	}
	f.fork = func(id carrel.ID, o carrel.ForkOptions) ([]carrel.ForkResult, error) {
		sb, err := f.get(id)
		out := make([]carrel.ForkResult, o.Count)
		for i := range out {
			out[i].Sandbox = sb
		}
		return out, err
	}
	f.promote = func(id carrel.ID, _ carrel.PromoteOptions) (carrel.Sandbox, error) { return f.get(id) }
	f.rollback = func(id carrel.ID, _ carrel.SnapshotID, _ carrel.RollbackOptions) (carrel.Sandbox, error) {
		return f.get(id)
	}
	f.snapshots = func(carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
		return carrel.SnapshotPage{Snapshots: []carrel.Snapshot{moment}}, nil
	}
	f.update = func(id carrel.SnapshotID, _ carrel.SnapshotUpdate) (carrel.Snapshot, error) {
		return f.GetSnapshot(context.Background(), string(id))
	}
	f.unsnap = func(name string) error { _, err := f.GetSnapshot(context.Background(), name); return err }
	f.timeline = func(id carrel.ID) (carrel.Timeline, error) {
		_, err := f.get(id)
		return carrel.Timeline{Sandbox: id}, err
	}
	f.diff = func(carrel.SnapshotID, carrel.SnapshotID) ([]carrel.FileChange, error) { return nil, nil }
	f.lifecycle = func(id carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) {
		sb, err := f.get(id)
		sb.Lifecycle = l
		return sb, err
	}
	return f
}

// adminKey returns Callers that know one key, of an administrator.
func adminKey(key string) Callers {
	return access.NewAuthenticator(access.Key{Name: "test", Secret: key, Role: carrel.RoleAdmin})
}

// start serves a service's API.
func start(t *testing.T, f *fake, change ...func(*Options)) *httptest.Server {
	t.Helper()
	opts := Options{Service: f, Callers: adminKey(testKey), Version: "v1", Limits: carrel.Limits{CPUs: 2, MemoryMB: 1024, DiskMB: 2048}}
	for _, c := range change {
		c(&opts)
	}
	srv := httptest.NewServer(New(opts))
	t.Cleanup(srv.Close)
	return srv
}

// call sends a request with the key. The body is sent in chunks, as E2B's SDKs do.
func call(t *testing.T, srv *httptest.Server, method, path, body string) (*http.Response, string) {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = struct{ io.Reader }{strings.NewReader(body)}
	}
	req, err := http.NewRequest(method, srv.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", testKey)
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, strings.TrimSpace(string(raw))
}

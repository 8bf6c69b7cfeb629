package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
)

// momentDriver is a fakeDriver with snapshots. A snapshot is one file with the content that the
// test sets, by default none.
type momentDriver struct {
	*fakeDriver

	mu       sync.Mutex
	files    []byte                       // of the next snapshots
	snapErr  error                        // of the next snapshots
	snapFn   func()                       // called while one is taken
	activity func() (guest.Activity, int) // the guest's answer and its status
	asked    int                          // how often the guests were asked
	cpu      map[carrel.ID]time.Duration
	disk     map[carrel.ID]int64
	taken    int
	specs    []driver.Spec           // the specs of all sandboxes made or restored
	restored []driver.RestoreOptions // of those restored
	liesOn   string                  // the root image of all snapshots; "" is any
}

func newMomentDriver() *momentDriver {
	return &momentDriver{fakeDriver: newFakeDriver(), cpu: map[carrel.ID]time.Duration{}, disk: map[carrel.ID]int64{}}
}

var (
	_ driver.Restorer    = (*momentDriver)(nil)
	_ driver.Snapshotter = (*momentInstance)(nil)
)

// set changes the driver's fields.
func (d *momentDriver) set(fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn()
}

func (d *momentDriver) wrap(in driver.Instance) *momentInstance {
	m := &momentInstance{fakeInstance: in.(*fakeInstance), d: d}
	m.srv.Handler = http.HandlerFunc(m.serve) // before anything is accepted
	return m
}

func (d *momentDriver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	d.set(func() { d.specs = append(d.specs, s) })
	in, err := d.fakeDriver.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	return d.wrap(in), nil
}

func (d *momentDriver) Recover(ctx context.Context, h driver.Handle) (driver.Instance, error) {
	in, err := d.fakeDriver.Recover(ctx, h)
	if err != nil {
		return nil, err
	}
	return &momentInstance{fakeInstance: in.(*fakeInstance), d: d}, nil
}

func (d *momentDriver) CanRestore(driver.SnapshotInfo, driver.RestoreOptions) error { return nil }

func (d *momentDriver) Restore(ctx context.Context, _ string, _ driver.SnapshotInfo, s driver.Spec, o driver.RestoreOptions) (driver.Instance, error) {
	d.set(func() { d.restored = append(d.restored, o) })
	if d.liesOn != "" && s.Root.Image != d.liesOn {
		return nil, &carrel.Error{Kind: carrel.Invalid, Field: "root",
			Err: fmt.Errorf("it lies on %s, not on %s", d.liesOn, s.Root.Image)}
	}
	return d.Create(ctx, s)
}

func (d *momentDriver) SnapshotFiles(_ context.Context, dir string, _ driver.SnapshotInfo, s driver.Spec) (io.ReadCloser, error) {
	if err := os.WriteFile(filepath.Join(s.Dir, "scratch"), nil, 0o600); err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(dir, "files"))
}

// momentInstance is a sandbox of momentDriver.
type momentInstance struct {
	*fakeInstance
	d *momentDriver
}

func (m *momentInstance) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != guest.ActivityPath {
		m.ServeHTTP(w, r)
		return
	}
	m.d.mu.Lock()
	m.d.asked++
	fn := m.d.activity
	m.d.mu.Unlock()
	a, status := guest.Activity{}, http.StatusOK
	if fn != nil {
		a, status = fn()
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a)
}

func (m *momentInstance) Stats(context.Context) (driver.Stats, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return driver.Stats{CPU: m.d.cpu[m.id], Disk: m.d.disk[m.id], Memory: 1 << 20}, nil
}

func (m *momentInstance) Snapshot(_ context.Context, dir string, o driver.SnapshotOptions) (driver.SnapshotInfo, error) {
	m.d.mu.Lock()
	files, err, fn := m.d.files, m.d.snapErr, m.d.snapFn
	m.d.taken++
	m.d.cpu[m.id] += time.Second // taking one is not for nothing
	m.d.mu.Unlock()
	if fn != nil {
		fn()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "files"), files, 0o600)
	}
	return driver.SnapshotInfo{Driver: "fake", Memory: !o.FilesOnly}, err
}

// fakeSnapshots is a snapshot.Store of plain directories.
type fakeSnapshots struct {
	snapshot.Store
	dir      string
	DeleteFn func(carrel.SnapshotID) error
	VerifyFn func(carrel.SnapshotID) error
	// ReserveFn is asked for the room of a draft.
	ReserveFn func(size int64) error

	mu   sync.Mutex
	done map[carrel.SnapshotID]snapshot.Manifest
}

func (f *fakeSnapshots) Begin(_ context.Context, id carrel.SnapshotID) (snapshot.Draft, error) {
	dir := filepath.Join(f.dir, string(id))
	return &fakeDraft{f: f, dir: dir}, os.MkdirAll(dir, 0o700)
}

type fakeDraft struct {
	f         *fakeSnapshots
	dir       string
	committed bool
}

func (d *fakeDraft) Dir() string       { return d.dir }
func (d *fakeDraft) WriteBack() func() { return func() {} }
func (d *fakeDraft) Reserve(size int64) error {
	if d.f.ReserveFn != nil {
		return d.f.ReserveFn(size)
	}
	return nil
}

func (d *fakeDraft) Commit(_ context.Context, m snapshot.Manifest) (snapshot.Manifest, error) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.committed, m.Size = true, 1000
	d.f.done[m.ID] = m
	return m, nil
}

func (d *fakeDraft) Discard() error {
	if d.committed {
		return nil
	}
	return os.RemoveAll(d.dir)
}

func (f *fakeSnapshots) Open(_ context.Context, id carrel.SnapshotID) (snapshot.Files, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.done[id]
	if !ok {
		return nil, &carrel.Error{Op: "open snapshot", Kind: carrel.NotFound, Err: errors.New("no content")}
	}
	return &fakeFiles{f: f, m: m}, nil
}

type fakeFiles struct {
	f *fakeSnapshots
	m snapshot.Manifest
}

func (x *fakeFiles) Dir() string                 { return filepath.Join(x.f.dir, string(x.m.ID)) }
func (x *fakeFiles) Manifest() snapshot.Manifest { return x.m }
func (x *fakeFiles) Close() error                { return nil }
func (x *fakeFiles) Verify(context.Context) error {
	if x.f.VerifyFn != nil {
		return x.f.VerifyFn(x.m.ID)
	}
	return nil
}

func (f *fakeSnapshots) Get(_ context.Context, id carrel.SnapshotID) (snapshot.Manifest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m, ok := f.done[id]; ok {
		return m, nil
	}
	return snapshot.Manifest{}, &carrel.Error{Kind: carrel.NotFound}
}

func (f *fakeSnapshots) Stat(ctx context.Context, id carrel.SnapshotID) (snapshot.Stat, error) {
	m, err := f.Get(ctx, id)
	return snapshot.Stat{Size: m.Size, New: 10, Packed: true}, err
}

func (f *fakeSnapshots) List(context.Context) ([]carrel.SnapshotID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]carrel.SnapshotID, 0, len(f.done))
	for id := range f.done {
		out = append(out, id)
	}
	return out, nil
}

func (f *fakeSnapshots) Delete(_ context.Context, id carrel.SnapshotID) error {
	if f.DeleteFn != nil {
		if err := f.DeleteFn(id); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.done, id)
	return nil // open files must stay readable, so the directory stays
}

// applyStore is a fakeStore whose changes can fail.
type applyStore struct {
	*fakeStore
	mu      sync.Mutex
	ApplyFn func(state.Change) error
}

func (f *applyStore) fail(fn func(state.Change) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ApplyFn = fn
}

func (f *applyStore) Apply(ctx context.Context, c state.Change) error {
	f.mu.Lock()
	fn := f.ApplyFn
	f.mu.Unlock()
	if fn != nil {
		if err := fn(c); err != nil {
			return err
		}
	}
	return f.fakeStore.Apply(ctx, c)
}

// den is a house whose driver has snapshots.
type den struct {
	*house
	applies *applyStore
	moments *momentDriver
	snaps   *fakeSnapshots
	opts    func(*service.Options)
}

// newDen opens a service with snapshots. The records are in the store before it opens.
func newDen(t testing.TB, change func(*service.Options), records ...state.SnapshotRecord) *den {
	t.Helper()
	d := &den{moments: newMomentDriver(), snaps: &fakeSnapshots{dir: t.TempDir(), done: map[carrel.SnapshotID]snapshot.Manifest{}}}
	for _, r := range records {
		meta, err := json.Marshal(r) // a snapshot can be looked up while its record is being removed
		if err != nil {
			t.Fatal(err)
		}
		d.snaps.done[r.Snapshot.ID] = snapshot.Manifest{ID: r.Snapshot.ID, Size: 1000, Meta: meta}
	}
	d.opts = func(o *service.Options) {
		if d.applies == nil {
			d.applies = &applyStore{fakeStore: o.Store.(*fakeStore)}
		}
		o.Store, o.Snapshots, o.Drivers = d.applies, d.snaps, driver.NewRegistry(d.moments)
		if len(records) > 0 {
			if err := o.Store.Apply(t.Context(), state.Change{PutSnapshots: records}); err != nil {
				t.Fatal(err)
			}
		}
		if change != nil {
			change(o)
		}
	}
	d.house = newHouse(t, d.opts)
	t.Cleanup(func() {
		for _, in := range d.moments.instances() {
			_ = in.Destroy(context.Background())
		}
	})
	return d
}

// snap takes a snapshot that the service may delete on its own.
func (d *den) snap(t testing.TB, id carrel.ID, cause carrel.Cause) carrel.SnapshotID {
	t.Helper()
	sn, err := d.Snapshot(t.Context(), id, carrel.SnapshotOptions{Cause: cause})
	if err != nil {
		t.Fatal(err)
	}
	return sn.ID
}

// timeline returns a sandbox's snapshots, oldest first.
func (d *den) timeline(t testing.TB, id carrel.ID) []carrel.SnapshotID {
	t.Helper()
	tl, err := d.Timeline(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]carrel.SnapshotID, len(tl.Snapshots))
	for i, sn := range tl.Snapshots {
		out[i] = sn.ID
	}
	return out
}

// consistent fails the test unless records, index and contents agree.
func (d *den) consistent(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	recs, err := d.store.Snapshots(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var have []carrel.SnapshotID
	for _, r := range recs {
		have = append(have, r.Snapshot.ID)
	}
	for _, r := range recs {
		if p := r.Snapshot.Parent; p != "" && !slices.Contains(have, p) {
			t.Errorf("snapshot %s has the parent %s, which is not there", r.Snapshot.ID, p)
		}
		if _, err := d.GetSnapshot(ctx, string(r.Snapshot.ID)); err != nil {
			t.Errorf("a recorded snapshot is not known: %v", err)
		}
	}
	there, _ := d.snaps.List(ctx)
	slices.Sort(there)
	slices.Sort(have)
	if !slices.Equal(there, have) {
		t.Errorf("contents %v, records %v", there, have)
	}
	boxes, err := d.store.Sandboxes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range boxes {
		for _, id := range []carrel.SnapshotID{b.Sandbox.Snapshot, b.Paused} {
			if id != "" && !slices.Contains(have, id) {
				t.Errorf("sandbox %s names snapshot %s, which is not there", b.Sandbox.ID, id)
			}
		}
		if now, err := d.Get(ctx, b.Sandbox.ID); err == nil && now.Snapshot != b.Sandbox.Snapshot {
			t.Errorf("sandbox %s is at %q and recorded at %q", b.Sandbox.ID, now.Snapshot, b.Sandbox.Snapshot)
		}
	}
}

// pathless is a template store whose templates have no image.
type pathless struct{ fakeImages }

func (p pathless) Get(ctx context.Context, name string) (image.Image, error) {
	img, err := p.fakeImages.Get(ctx, name)
	img.Path = ""
	return img, err
}

func (p pathless) Boot(ctx context.Context, id string) (image.Image, error) { return p.Get(ctx, id) }

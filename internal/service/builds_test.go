package service_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/service"
)

// oldDriver is a momentDriver with builds: it is of build "new", and its sandboxes run on "old".
type oldDriver struct {
	*momentDriver

	mu   sync.Mutex
	kept map[string]bool
	lack error // why "old" can't be kept
}

var (
	_ driver.BuildKeeper = (*oldDriver)(nil)
	_ driver.Versioned   = (*oldInstance)(nil)
)

func (d *oldDriver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	in, err := d.momentDriver.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	return &oldInstance{in.(*momentInstance), d}, nil
}

func (d *oldDriver) Restore(ctx context.Context, dir string, i driver.SnapshotInfo, s driver.Spec,
	o driver.RestoreOptions) (driver.Instance, error) {
	in, err := d.momentDriver.Restore(ctx, dir, i, s, o)
	if err != nil {
		return nil, err
	}
	return &oldInstance{in.(*momentInstance), d}, nil
}

func (d *oldDriver) Builds(context.Context) ([]driver.Build, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []driver.Build{{Name: "new", Own: true}}
	for _, name := range slices.Sorted(maps.Keys(d.kept)) {
		out = append(out, driver.Build{Name: name, Kept: true})
	}
	return out, nil
}

func (d *oldDriver) ExportBuild(context.Context, string) (io.ReadCloser, int64, error) {
	return nil, 0, errors.ErrUnsupported
}

func (d *oldDriver) ImportBuild(context.Context, string, io.Reader) error {
	return errors.ErrUnsupported
}

func (d *oldDriver) DropBuild(_ context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.kept, name)
	return nil
}

type oldInstance struct {
	*momentInstance
	d *oldDriver
}

func (in *oldInstance) Build() (string, bool) { return "old", false }

func (in *oldInstance) KeepBuild(context.Context) error {
	in.d.mu.Lock()
	defer in.d.mu.Unlock()
	if in.d.lack == nil {
		in.d.kept["old"] = true
	}
	return in.d.lack
}

func (in *oldInstance) Snapshot(ctx context.Context, dir string,
	o driver.SnapshotOptions) (driver.SnapshotInfo, error) {
	info, err := in.momentInstance.Snapshot(ctx, dir, o)
	info.Build = "old"
	return info, err
}

// newOldDen returns a service whose sandboxes run on another build.
func newOldDen(t *testing.T, policy service.OnUpgrade) (*den, *oldDriver) {
	t.Helper()
	old := &oldDriver{kept: map[string]bool{}}
	d := newDen(t, func(o *service.Options) {
		old.momentDriver = o.Drivers.All()[0].(*momentDriver)
		o.Drivers, o.OnUpgrade = driver.NewRegistry(old), policy
	})
	return d, old
}

// TestOnUpgrade pauses a sandbox of another build under each policy.
func TestOnUpgrade(t *testing.T) {
	for _, c := range []struct {
		policy service.OnUpgrade
		lack   error
		kind   carrel.Kind // "" when the pause succeeds
		memory bool
	}{
		{policy: "", memory: true},
		{policy: service.UpgradeKeep, memory: true},
		{policy: service.UpgradeKeep, lack: &carrel.Error{Kind: carrel.Unsupported,
			Err: errors.New("it can't be had")}, kind: carrel.Unsupported},
		{policy: service.UpgradeFiles},
		{policy: service.UpgradeRefuse, kind: carrel.Unsupported},
	} {
		d, old := newOldDen(t, c.policy)
		old.lack = c.lack
		sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
		paused, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{})
		if c.kind != "" {
			if carrel.KindOf(err) != c.kind || !strings.Contains(carrel.HintOf(err), "--on-upgrade") ||
				d.now(t, sb.ID) != carrel.Running {
				t.Errorf("%q: %v (%s), %s", c.policy, err, carrel.HintOf(err), d.now(t, sb.ID))
			}
			if _, err := d.Pause(t.Context(), sb.ID, carrel.PauseOptions{FilesOnly: true}); err != nil {
				t.Errorf("%q: files only: %v", c.policy, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%q: %v", c.policy, err)
		}
		sn, err := d.GetSnapshot(t.Context(), string(paused.Snapshot))
		if err != nil || sn.Memory != c.memory {
			t.Errorf("%q: memory %v, %v", c.policy, sn.Memory, err)
		}
	}
}

// findings returns all that doctor says.
func findings(t *testing.T, d *den) string {
	t.Helper()
	checks, err := d.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range checks {
		for _, f := range c.Findings {
			out = append(out, f.What+": "+f.Why+" "+f.Hint)
		}
	}
	return strings.Join(out, "\n")
}

// TestBuildsAreCollected keeps a build while a sandbox or a snapshot needs it. Doctor lists what
// needs it, and says when it is missing.
func TestBuildsAreCollected(t *testing.T) {
	d, old := newOldDen(t, service.UpgradeKeep)
	old.kept["unused"] = true
	sb := d.create(t, carrel.CreateOptions{Timeout: time.Hour})
	d.pause(t, sb.ID, carrel.PauseOptions{})
	has := func() string {
		if err := d.CollectBuilds(t.Context()); err != nil {
			t.Fatal(err)
		}
		return strings.Join(slices.Sorted(maps.Keys(old.kept)), " ")
	}
	if got := has(); got != "old" {
		t.Errorf("with a paused sandbox: %q", got)
	}
	if text := findings(t, d); !strings.Contains(text,
		"1 snapshot, 1 paused sandbox ("+string(sb.ID)+")") ||
		!strings.Contains(text, "kept and restores them") {
		t.Errorf("doctor: %s", text)
	}
	old.kept = map[string]bool{}
	if text := findings(t, d); !strings.Contains(text, `build "old", whose kernel is not kept here`) ||
		!strings.Contains(text, "start that build") {
		t.Errorf("doctor without the build: %s", text)
	}
	old.kept["old"] = true
	if _, _, err := d.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if text := findings(t, d); !strings.Contains(text, "1 running sandbox ("+string(sb.ID)+")") {
		t.Errorf("doctor: %s", text)
	}
	if got := has(); got != "old" {
		t.Errorf("with a running sandbox: %q", got)
	}
	if err := d.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if got := has(); got != "" {
		t.Errorf("with nothing left: %q", got)
	}
	if text := findings(t, d); text != "" {
		t.Errorf("doctor: %s", text)
	}
}

// TestWorkshopOfOneTier begins a build from a template whose sandboxes need another tier for their
// first process. Its steps need only its files.
func TestWorkshopOfOneTier(t *testing.T) {
	h := newHouse(t, nil)
	sb, err := h.CreateWorkshop(t.Context(), "build", vmTemplate.ID, "", carrel.CreateOptions{Tier: carrel.Sim})
	if err != nil || sb.Tier != carrel.Sim {
		t.Errorf("tier %q, %v", sb.Tier, err)
	}
}

package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/service"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// commitPoints are the snapshot store's steps inside the service's operations. The store's own
// tests go through all of its steps.
var commitPoints = []string{"snapshot.begin.made", "snapshot.commit.start", "snapshot.commit.synced", "snapshot.commit.manifest",
	"snapshot.commit.renamed", "snapshot.commit.done", "snapshot.delete.start", "snapshot.delete.marked", "snapshot.gc.start"}

// victim is a sandbox with a number in a process's memory and in a file. Both are 1 at the snapshot
// and 2 now. Whatever happens, they must be equal.
type victim struct {
	id      carrel.ID
	shell   *daemontest.Session
	first   carrel.SnapshotID
	number  string // the expected number: "2", after a rollback "1" as well
	created []carrel.ID
}

func newVictim(ctx context.Context, svc carrel.Service, tier carrel.Tier) (*victim, error) {
	sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: tier, Timeout: 10 * time.Minute, Limits: carrel.Limits{MemoryMB: 512}})
	if err != nil {
		return nil, err
	}
	v := &victim{id: sb.ID, number: "2", created: []carrel.ID{sb.ID}}
	c, err := svc.Computer(ctx, sb.ID)
	if err != nil {
		return v, err
	}
	if v.shell, err = daemontest.Begin(ctx, c, carrel.Command{Args: []string{"bash"}}); err != nil {
		return v, err
	}
	if _, err := v.shell.Ask(ctx, "n=1; echo 1 > n; echo set", "set"); err != nil {
		return v, err
	}
	sn, err := svc.Snapshot(ctx, sb.ID, carrel.SnapshotOptions{})
	if err != nil {
		return v, err
	}
	v.first = sn.ID
	_, err = v.shell.Ask(ctx, "n=2; echo 2 > n; echo set", "set")
	return v, err
}

// whole wakes a sandbox if needed, and checks that it is completely before or completely after the
// operation.
func (v *victim) whole(ctx context.Context, svc carrel.Service, id carrel.ID) error {
	if _, _, err := svc.Resume(ctx, id, carrel.ResumeOptions{Timeout: 10 * time.Minute}); err != nil {
		return fmt.Errorf("resume %s: %w", id, err)
	}
	c, err := svc.Computer(ctx, id)
	if err != nil {
		return err
	}
	shell, err := v.shell.Attach(ctx, c)
	if err != nil {
		return err
	}
	got, err := shell.Ask(ctx, "echo now $n $(cat n)", "now ")
	if err != nil {
		return err
	}
	for _, n := range strings.Fields(v.number) {
		if got == "now "+n+" "+n {
			return nil
		}
	}
	return fmt.Errorf("%s is in between: %q, want %s twice", id, got, v.number)
}

// scenario is an operation that is cut off, with the steps that lead to it.
type scenario struct {
	name  string
	ready func(ctx context.Context, svc carrel.Service, v *victim) error
	do    func(ctx context.Context, svc carrel.Service, v *victim) error
	tier  carrel.Tier // "" is gvisor
}

// begin makes a victim that is ready for the operation.
func (sc scenario) begin(ctx context.Context, svc carrel.Service) (*victim, error) {
	v, err := newVictim(ctx, svc, cmp.Or(sc.tier, carrel.GVisor))
	if err == nil && sc.ready != nil {
		err = sc.ready(ctx, svc, v)
	}
	return v, err
}

func pauseIt(ctx context.Context, svc carrel.Service, v *victim) error {
	_, err := svc.Pause(ctx, v.id, carrel.PauseOptions{})
	return err
}

var scenarios = []scenario{
	{name: "pause", do: pauseIt},
	{name: "resume", ready: pauseIt, do: func(ctx context.Context, svc carrel.Service, v *victim) error {
		_, _, err := svc.Resume(ctx, v.id, carrel.ResumeOptions{})
		return err
	}},
	{name: "snapshot", do: func(ctx context.Context, svc carrel.Service, v *victim) error {
		_, err := svc.Snapshot(ctx, v.id, carrel.SnapshotOptions{Label: "x"})
		return err
	}},
	{name: "fork", do: func(ctx context.Context, svc carrel.Service, v *victim) error {
		forks, err := svc.Fork(ctx, v.id, carrel.ForkOptions{Count: 3, Timeout: 10 * time.Minute})
		for _, f := range forks {
			if f.Err == nil {
				v.created = append(v.created, f.Sandbox.ID)
			}
			err = errors.Join(err, f.Err)
		}
		return err
	}},
	{name: "rollback", do: func(ctx context.Context, svc carrel.Service, v *victim) error {
		v.number = "1 2"
		_, err := svc.Rollback(ctx, v.id, v.first, carrel.RollbackOptions{Keep: true})
		return err
	}},
	{name: "delete", do: func(ctx context.Context, svc carrel.Service, v *victim) error {
		err := svc.DeleteSnapshot(ctx, string(v.first))
		v.first = ""
		return err
	}},
}

// points returns the steps that an operation may pass.
func points() []string { return append(service.FailPoints(), commitPoints...) }

// passed are the steps that each operation of a tier passes. The first test that asks finds them out,
// while others wait.
var (
	passedMu sync.Mutex
	passed   = map[string][]string{}
)

// pointsOf returns the steps that an operation passes. With -short, those of the snapshot store are
// not among them, nor those that tried says another operation was cut off at.
func pointsOf(ctx context.Context, t *testing.T, d *daemontest.Daemon, enable func(spec string),
	sc scenario, tried map[string]int) []string {
	t.Helper()
	key := string(sc.tier) + " " + sc.name
	passedMu.Lock()
	defer passedMu.Unlock()
	if passed[key] == nil {
		passed[key] = trace(ctx, t, d, enable, sc)
	}
	return slices.DeleteFunc(points(), func(p string) bool {
		return testing.Short() && (!strings.HasPrefix(p, "service.") || tried[p] > 0) ||
			!slices.Contains(passed[key], p)
	})
}

// trace does an operation once, undisturbed, and returns the steps that it passes.
func trace(ctx context.Context, t *testing.T, d *daemontest.Daemon, enable func(spec string),
	sc scenario) []string {
	t.Helper()
	svc := connect(t, d)
	defer svc.Close()
	v, err := sc.begin(ctx, svc)
	if err != nil {
		t.Fatalf("%s: %v", sc.name, err)
	}
	file := filepath.Join(t.TempDir(), "trace")
	enable(traceSpec + file)
	err = sc.do(ctx, svc, v)
	enable("")
	if err != nil {
		t.Fatalf("%s: %v", sc.name, err)
	}
	after(ctx, t, d, svc, v, sc.name)
	steps, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%s passes no step: %v", sc.name, err)
	}
	return strings.Fields(string(steps))
}

// startPointed starts this binary as a daemon. It returns a function that enables a fail point in
// it.
func startPointed(t *testing.T, extra ...string) (*daemontest.Daemon, func(spec string)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "points")
	d := daemontest.StartBin(t, self, []string{playVar + "=1", pointsVar + "=" + file}, extra...)
	return d, func(spec string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(d.PID(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the daemon takes its fail points", func() bool { _, err := os.Stat(file); return err != nil })
	}
}

// TestKilledAtEachStep kills the daemon at each step of each operation on a sandbox's time. The
// next daemon must find the sandbox before or after the operation, everything that was
// acknowledged, and nothing else. With -short, each step is one of a single operation.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	killedAtEachStep(t, carrel.GVisor, 20*time.Minute)
}

// TestMachineKilledAtEachStep kills the daemon of virtual machines.
func TestMachineKilledAtEachStep(t *testing.T) {
	testenv.Long(t, "each step boots a machine")
	killedAtEachStep(t, carrel.MicroVM, 50*time.Minute, daemontest.Machines(t)...)
}

func killedAtEachStep(t *testing.T, tier carrel.Tier, limit time.Duration, extra ...string) {
	d, enable := startPointed(t, extra...)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	hits := map[string]int{}
	for _, sc := range scenarios {
		sc.tier = tier
		for _, point := range pointsOf(ctx, t, d, enable, sc, hits) {
			svc := connect(t, d)
			v, err := sc.begin(ctx, svc)
			if err != nil {
				t.Fatalf("%s, %s: %v", sc.name, point, err)
			}
			enable(point + "=kill")
			err = sc.do(ctx, svc, v)
			if err == nil { // its way does not lead there
				enable("")
			} else {
				hits[point]++
				d.Kill9() // it is dead: this collects it
				_ = svc.Close()
				d.Restart()
				svc = connect(t, d)
			}
			after(ctx, t, d, svc, v, sc.name+" at "+point)
			_ = svc.Close()
			if t.Failed() {
				return
			}
		}
	}
	for _, p := range service.FailPoints() {
		if hits[p] == 0 {
			t.Errorf("no operation came to %s", p)
		}
	}
	t.Logf("killed %d times", len(hits))
}

// after checks everything that a cut-off operation left, and then removes it.
func after(ctx context.Context, t *testing.T, d *daemontest.Daemon, svc carrel.Service, v *victim, what string) {
	t.Helper()
	page, err := svc.List(ctx, carrel.ListOptions{})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	var ids []carrel.ID
	for _, sb := range page.Sandboxes {
		ids = append(ids, sb.ID)
		if err := v.whole(ctx, svc, sb.ID); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, id := range v.created {
		if !slices.Contains(ids, id) {
			t.Errorf("%s: %s was acknowledged and is gone", what, id)
		}
	}
	if v.first != "" {
		if _, err := svc.GetSnapshot(ctx, string(v.first)); err != nil {
			t.Errorf("%s: its snapshot: %v", what, err)
		}
		if sb, err := svc.Rollback(ctx, v.id, v.first, carrel.RollbackOptions{}); err != nil || sb.State != carrel.Running {
			t.Errorf("%s: roll back: %v", what, err)
		}
		v.number = "1"
		if err := v.whole(ctx, svc, v.id); err != nil {
			t.Errorf("%s: rolled back: %v", what, err)
		}
	}
	for _, id := range ids {
		if err := svc.Kill(ctx, id); err != nil {
			t.Errorf("%s: kill: %v", what, err)
		}
	}
	every := append(ids, v.created...)
	if left := remains(t, d, every); len(left) > 0 {
		t.Errorf("%s: left behind: %v", what, left)
	}
	clearSnapshots(ctx, t, d, svc, what)
}

// clearSnapshots deletes the remaining snapshots, and fails if the store then still holds data.
func clearSnapshots(ctx context.Context, t *testing.T, d *daemontest.Daemon, svc carrel.Service, what string) {
	t.Helper()
	page, err := svc.ListSnapshots(ctx, carrel.SnapshotListOptions{Auto: true})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, sn := range page.Snapshots {
		if err := svc.DeleteSnapshot(ctx, string(sn.ID)); err != nil {
			t.Errorf("%s: delete %s: %v", what, sn.ID, err)
		}
	}
	testenv.EventuallyNil(t, what+": the snapshot store is empty", func() error {
		var left []string
		for _, dir := range []string{"drafts", "hot", "trash"} {
			found, _ := filepath.Glob(filepath.Join(d.Dir, "snapshots", dir, "*"))
			left = append(left, found...)
		}
		if len(left) > 0 {
			return fmt.Errorf("it has %v", left)
		}
		return nil
	})
}

// TestDiskFullAtEachStep fills the disk at each step instead. The operation must fail with
// Exhausted, or succeed anyway. The sandbox must be whole, and a second try must work.
func TestDiskFullAtEachStep(t *testing.T) {
	t.Parallel()
	d, enable := startPointed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	failed := map[string]int{}
	for _, sc := range scenarios {
		for _, point := range pointsOf(ctx, t, d, enable, sc, failed) {
			v, err := sc.begin(ctx, svc)
			if err != nil {
				t.Fatalf("%s, %s: %v", sc.name, point, err)
			}
			first := v.first
			enable(point + "=1*enospc")
			err = sc.do(ctx, svc, v)
			enable("")
			what := sc.name + " at " + point
			if err != nil {
				failed[point]++
				if !errors.Is(err, carrel.Exhausted) {
					t.Errorf("%s: %v (%s), want exhausted", what, err, carrel.KindOf(err))
				}
				v.first = first
				if err := sc.do(ctx, svc, v); err != nil && !(sc.name == "delete" && errors.Is(err, carrel.NotFound)) {
					t.Errorf("%s, again: %v", what, err)
				}
			}
			after(ctx, t, d, svc, v, what)
			if t.Failed() {
				return
			}
		}
	}
	if len(failed) < 5 {
		t.Errorf("operations failed only at %v", failed)
	}
	t.Logf("failed: %v", failed)
}

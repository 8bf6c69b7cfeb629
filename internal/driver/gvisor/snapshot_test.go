package gvisor_test

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// snapshot takes one into a new directory.
func snapshot(t testing.TB, in driver.Instance, opts driver.SnapshotOptions) (string, driver.SnapshotInfo) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "snapshot")
	if err != nil {
		t.Fatal(err)
	}
	s, ok := driver.As[driver.Snapshotter](in)
	if !ok {
		t.Fatal("no Snapshotter")
	}
	info, err := s.Snapshot(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return dir, info
}

// restore makes a sandbox from a snapshot. The sandbox is destroyed when the test ends.
func restore(t testing.TB, d driver.Driver, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) driver.Instance {
	t.Helper()
	r, ok := driver.As[driver.Restorer](d)
	if !ok {
		t.Fatal("no Restorer")
	}
	in, err := r.Restore(t.Context(), dir, info, spec, opts)
	if err != nil {
		t.Fatal(err, carrel.HintOf(err))
	}
	t.Cleanup(func() { destroy(t, in) })
	return in
}

// loaded waits until a sandbox no longer needs its snapshot.
func loaded(t testing.TB, in driver.Instance) {
	t.Helper()
	l, ok := driver.As[driver.Loader](in)
	if !ok {
		t.Fatal("no Loader")
	}
	if err := l.Loaded(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLiveStateSurvives takes snapshots of programs with much state to lose, and restores each
// twice.
func TestLiveStateSurvives(t *testing.T) {
	d, _ := newDriver(t)
	in := create(t, d, stateSpec(t))
	mb, files := 200, 10_000
	if testing.Short() {
		mb, files = 20, 500
	}
	startState(t, in, mb, files)
	outside := openDoor(t, in)
	if got := outside.ask(t, "check"); got != "ok" {
		t.Fatal(got)
	}
	start := time.Now()
	dir, info := snapshot(t, in, driver.SnapshotOptions{})
	t.Logf("a snapshot of %d MiB and %d files: %v", mb, files, time.Since(start))

	// In the running sandbox every connection goes on, and so does the link.
	if got := outside.ask(t, "check"); got != "ok" {
		t.Errorf("after the snapshot, over the old connection: %q", got)
	}
	wantState(t, in)
	if got := outside.ask(t, "ends"); got != "" {
		t.Errorf("connections of the running sandbox ended with %q", got)
	}
	copies := make([]driver.Instance, 2)
	var wg sync.WaitGroup
	for i := range copies {
		spec := stateSpec(t)
		wg.Go(func() {
			start := time.Now()
			r, err := d.Restore(t.Context(), dir, info, spec, driver.RestoreOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			copies[i] = r
			t.Logf("restored in %v", time.Since(start))
		})
	}
	wg.Wait()
	randoms := map[string]bool{askState(t, in, "random"): true}
	boots := map[string]bool{askState(t, in, "boot"): true}
	for _, c := range copies {
		if c == nil {
			t.FailNow()
		}
		defer destroy(t, c)
		loaded(t, c)
		wantState(t, c)
		if got := askState(t, c, "commit"); got != "1000 ok" {
			t.Errorf("the transaction: %q", got)
		}
		if got := askState(t, c, "pipe"); got != "in the pipe" {
			t.Errorf("the pipe: %q", got)
		}
		// The connection from outside is closed: its reader saw the end, or an error.
		if got := askState(t, c, "ends"); got == "" {
			t.Error("the connection from outside is still there")
		}
		randoms[askState(t, c, "random")] = true
		wantClock(t, in, c)
		boots[askState(t, c, "boot")] = true
	}
	// A copy is another machine, so it has a boot ID of its own.
	if len(boots) != 3 || boots[""] {
		t.Errorf("boot IDs: %v", boots)
	}
	if len(randoms) != 3 {
		t.Errorf("the kernel's randomness repeats itself: %v", randoms)
	}
	wantState(t, in)
}

// wantClock compares the clocks of a sandbox and of its copy with this machine's.
func wantClock(t *testing.T, in, c driver.Instance) {
	t.Helper()
	for _, i := range []driver.Instance{in, c} {
		var wall, up float64
		if _, err := fmt.Sscan(askState(t, i, "clock"), &wall, &up); err != nil {
			t.Fatal(err)
		}
		if now := float64(time.Now().UnixMilli()) / 1000; math.Abs(now-wall) > 2 || up < 0 || up > 3600 {
			t.Errorf("its clock says %f at %f, %f since its start", wall, now, up)
		}
	}
}

// TestGenerations takes a snapshot of a restored sandbox, restores that, and repeats this.
func TestGenerations(t *testing.T) {
	d, k := newDriver(t)
	in := create(t, d, stateSpec(t))
	startState(t, in, 20, 200)
	n := 10
	if testing.Short() {
		n = 3
	}
	var sizes []int64
	for range n {
		dir, info := snapshot(t, in, driver.SnapshotOptions{})
		size := int64(0)
		list, _ := os.ReadDir(dir)
		for _, e := range list {
			fi, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			size += fi.Size()
		}
		sizes = append(sizes, size)
		next := restore(t, d, dir, info, stateSpec(t), driver.RestoreOptions{})
		destroy(t, in)
		in = next
		wantState(t, in)
	}
	t.Logf("sizes %d", sizes)
	if first, last := sizes[0], sizes[n-1]; last > first+first/4+4<<20 {
		t.Errorf("generations grow from %d to %d bytes", first, last)
	}
	if k.Len() != 1 {
		t.Errorf("%d links are kept", k.Len())
	}
}

// TestRestoreAfterRecover restores a sandbox, recovers it in another driver, and takes a snapshot
// there.
func TestRestoreAfterRecover(t *testing.T) {
	root, k := shortDir(t), &drivertest.Keeper{}
	d := openDriver(t, root, k)
	in, err := d.Create(t.Context(), stateSpec(t))
	if err != nil {
		t.Fatal(err)
	}
	startState(t, in, 5, 10)
	dir, info := snapshot(t, in, driver.SnapshotOptions{})
	destroy(t, in)
	spec := stateSpec(t)
	copied, err := d.Restore(t.Context(), dir, info, spec, driver.RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f, ok := driver.As[driver.Freezer](copied)
	if !ok {
		t.Fatal("no Freezer")
	}
	if err := f.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	handle := copied.Handle()
	if len(handle) > 4<<10 {
		t.Errorf("a handle of %d bytes", len(handle))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	second := openDriver(t, root, k)
	if err := second.Sweep(t.Context(), []carrel.ID{spec.ID}); err != nil {
		t.Fatal(err)
	}
	again, err := second.Recover(t.Context(), handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, again) })
	loaded(t, again)
	dir, info = snapshot(t, again, driver.SnapshotOptions{}) // of a frozen one
	wantState(t, restore(t, second, dir, info, stateSpec(t), driver.RestoreOptions{}))
	c, err := again.Dial(t.Context(), statePort)
	if err == nil { // the sandbox's kernel may accept the dial; no program answers
		_, _ = fmt.Fprintln(c, "boot")
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			var ne net.Error
			if !errors.As(err, &ne) || !ne.Timeout() {
				t.Errorf("a frozen sandbox answers: %d %v", n, err)
			}
		}
		c.Close()
	}
	for range 2 { // idempotent: no second resume
		if err := again.(driver.Freezer).Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantState(t, again)
}

// TestSnapshotUnderAttack takes snapshots while programs inside try to prevent it.
func TestSnapshotUnderAttack(t *testing.T) {
	for name, attack := range map[string]string{
		"fork storm":  "while :; do sleep 0 & sleep 0 & sleep 0; done",
		"stopped":     "for i in $(seq 20); do sleep 1000 & kill -STOP $!; done; kill -STOP $$",
		"threads":     `exec python3 -c 'import threading,time; [threading.Thread(target=time.sleep,args=(1000,)).start() for _ in range(80)]'`,
		"busy":        `exec python3 -c 'while True: pass'`,
		"full memory": `exec python3 -c 'b=bytearray(600<<20); b[::4096]=bytes([1])*len(b[::4096]); import time; time.sleep(1000)'`,
		"full disk":   "dd if=/dev/zero of=/root/full bs=1M; sleep 1000",
		"huge hole":   `exec python3 -c 'import os,time; os.truncate(os.open("/root/hole",os.O_CREAT|os.O_WRONLY), 0) if 0 else None; f=open("/root/hole","w"); f.truncate(1<<45); time.sleep(1000)'`,
		"many files":  "mkdir /root/many; cd /root/many; seq 5000 | while read i; do echo $i > $i; done; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has a driver of its own
			if slices.Contains([]string{"busy", "huge hole", "many files", "threads"}, name) {
				testenv.Long(t, "the other attacks are worse")
			}
			d, _ := newDriver(t)
			spec := stateSpec(t)
			spec.Limits.MemoryMB = 768
			in := create(t, d, spec)
			runInside(t, in, "("+attack+") > /dev/null 2>&1 < /dev/null &")
			time.Sleep(time.Second)
			for _, only := range []bool{false, true} {
				start := time.Now()
				dir, info := snapshot(t, in, driver.SnapshotOptions{FilesOnly: only})
				took := time.Since(start)
				start = time.Now()
				again := stateSpec(t)
				again.Limits = spec.Limits
				r := restore(t, d, dir, info, again, driver.RestoreOptions{})
				if got := runInside(t, r, "echo alive"); got != "alive\n" {
					t.Errorf("the copy says %q", got)
				}
				loaded(t, r)
				t.Logf("files only %v: snapshot %v, restored and asked %v", only, took, time.Since(start))
				if got := runInside(t, in, "echo alive"); got != "alive\n" {
					t.Errorf("the original says %q", got)
				}
				destroy(t, r)
			}
		})
	}
}

// TestRestoreRefusals checks that wrong snapshots are not restored.
func TestRestoreRefusals(t *testing.T) {
	d, k := newDriver(t)
	in := create(t, d, newSpec(t))
	dir, info := snapshot(t, in, driver.SnapshotOptions{})
	other := filepath.Join(t.TempDir(), "other.erofs")
	if err := writeImage(other, []string{"/tmp", "/etc"}, map[string][]byte{"/etc/motd": []byte("another\n")}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*driver.Spec, *driver.SnapshotInfo)
		kind   carrel.Kind
		say    string
	}{
		"root":      {func(s *driver.Spec, _ *driver.SnapshotInfo) { s.Root.Image = other }, carrel.Invalid, "root"},
		"guest":     {func(s *driver.Spec, _ *driver.SnapshotInfo) { s.Guest = images.root }, carrel.Unsupported, "guest"},
		"build":     {func(_ *driver.Spec, i *driver.SnapshotInfo) { i.Build = "gvisor v0 plan9" }, carrel.Unsupported, "gvisor v0 plan9"},
		"processor": {func(_ *driver.Spec, i *driver.SnapshotInfo) { i.CPU += " levitate warp" }, carrel.Unsupported, "levitate warp"},
		"driver":    {func(_ *driver.Spec, i *driver.SnapshotInfo) { i.Driver = "sim" }, carrel.Unsupported, "sim"},
		"memory":    {func(s *driver.Spec, _ *driver.SnapshotInfo) { s.Limits.MemoryMB = 100 }, carrel.Invalid, "limits.memoryMB"},
		"disk":      {func(s *driver.Spec, _ *driver.SnapshotInfo) { s.Limits.DiskMB = 10 }, carrel.Invalid, "limits.diskMB"},
		"pids":      {func(s *driver.Spec, _ *driver.SnapshotInfo) { s.Limits.Pids = 20 }, carrel.Invalid, "limits.pids"},
	} {
		t.Run(name, func(t *testing.T) {
			spec, info := newSpec(t), info
			c.change(&spec, &info)
			r, err := d.Restore(t.Context(), dir, info, spec, driver.RestoreOptions{})
			if err == nil {
				destroy(t, r)
				t.Fatal("restored")
			}
			t.Log(err)
			if carrel.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v (%s), want %s and %q", err, carrel.KindOf(err), c.kind, c.say)
			}
			nothingLeft(t, spec)
		})
	}
	if k.Len() != 1 {
		t.Errorf("%d links are kept", k.Len())
	}
	more := newSpec(t)
	more.Limits = carrel.Limits{CPUs: 1, MemoryMB: 400, DiskMB: 100, Pids: 200}
	r := restore(t, d, dir, info, more, driver.RestoreOptions{})
	if got, _ := get(t, r, "/hello"); got != "hello from "+string(more.ID) {
		t.Errorf("with more of everything: %q", got)
	}
}

// TestCancelledRestoreLeavesNothing ends the context at many moments of a restore.
func TestCancelledRestoreLeavesNothing(t *testing.T) {
	d, k := newDriver(t)
	in := create(t, d, newSpec(t))
	dir, info := snapshot(t, in, driver.SnapshotOptions{})
	for delay := time.Duration(0); delay < 90*time.Millisecond; delay += 9 * time.Millisecond {
		for _, only := range []bool{false, true} {
			spec := newSpec(t)
			ctx, cancel := contextFor(t, delay)
			r, err := d.Restore(ctx, dir, info, spec, driver.RestoreOptions{FilesOnly: only})
			cancel()
			if err == nil {
				destroy(t, r)
			} else if !errors.Is(err, carrel.TimedOut) {
				t.Errorf("after %v: %v", delay, err)
			}
			nothingLeft(t, spec)
		}
	}
	if k.Len() != 1 {
		t.Errorf("%d links are kept", k.Len())
	}
}

package gvisor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestCreateAnswers(t *testing.T) {
	d, _ := newDriver(t)
	spec := newSpec(t)
	in := create(t, d, spec)
	if got, _ := get(t, in, "/hello"); got != "hello from "+string(spec.ID) {
		t.Errorf("answer %q", got)
	}
	if got, _ := get(t, in, "/read?path=/etc/motd"); got != "template\n" {
		t.Errorf("the template's file reads %q", got)
	}
	if got, ok := get(t, in, "/write?path=/etc/motd"); !ok {
		t.Errorf("write over the template: %q", got)
	}
	if got, ok := get(t, in, "/read?path=/etc/motd"); !ok || got != "" {
		t.Errorf("the written file reads %q", got)
	}
	if got, ok := get(t, in, "/write?path="+driver.GuestMount+"/x"); ok {
		t.Errorf("the guest's mount is writable: %q", got)
	}
}

// TestManyAtOnce creates 50 sandboxes at the same time. The contract demands that this works.
func TestManyAtOnce(t *testing.T) {
	testenv.Long(t, "50 sandboxes take a while")
	d, k := newDriver(t)
	const n = 50
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		spec := newSpec(t)
		wg.Go(func() {
			in, err := d.Create(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			defer destroy(t, in)
			if got, _, err := tryGet(in, "/hello"); err != nil || got != "hello from "+string(spec.ID) {
				t.Errorf("%q %v", got, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d sandboxes created, asked and destroyed in %v", n, time.Since(start))
	if k.Len() != 0 {
		t.Errorf("%d links are still kept", k.Len())
	}
}

func TestBadSpecsAreRefused(t *testing.T) {
	d, _ := newDriver(t)
	for name, change := range map[string]func(*driver.Spec){
		"id":       func(s *driver.Spec) { s.ID = "../x" },
		"image":    func(s *driver.Spec) { s.Root.Image = "relative" },
		"guest":    func(s *driver.Spec) { s.Guest = "" },
		"dir":      func(s *driver.Spec) { s.Dir = "" },
		"memoryMB": func(s *driver.Spec) { s.Limits.MemoryMB = 1 },
		"diskMB":   func(s *driver.Spec) { s.Limits.DiskMB = 0 },
		"cpus":     func(s *driver.Spec) { s.Limits.CPUs = -1 },
		"pids":     func(s *driver.Spec) { s.Limits.Pids = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec(t)
			change(&spec)
			in, err := d.Create(t.Context(), spec)
			if err == nil {
				destroy(t, in)
			}
			if !errors.Is(err, carrel.Invalid) {
				t.Errorf("error %v, want Invalid", err)
			}
		})
	}
}

// TestFailedCreateLeavesNothing breaks creations at different points.
func TestFailedCreateLeavesNothing(t *testing.T) {
	d, k := newDriver(t)
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, make([]byte, 8192), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*driver.Spec)
		kind   carrel.Kind
	}{
		"no image":        {func(s *driver.Spec) { s.Root.Image = "/nonexistent/image" }, carrel.NotFound},
		"no guest":        {func(s *driver.Spec) { s.Guest = "/nonexistent/guest" }, carrel.NotFound},
		"no directory":    {func(s *driver.Spec) { s.Dir = "/nonexistent/dir" }, carrel.NotFound},
		"image is no fs":  {func(s *driver.Spec) { s.Root.Image = garbage }, carrel.Internal},
		"no guest inside": {func(s *driver.Spec) { s.Guest = images.root }, carrel.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec(t)
			c.change(&spec)
			in, err := d.Create(t.Context(), spec)
			if err == nil {
				destroy(t, in)
				t.Fatal("created")
			}
			t.Log(err)
			if carrel.KindOf(err) != c.kind {
				t.Errorf("kind %q, want %q", carrel.KindOf(err), c.kind)
			}
			nothingLeft(t, spec)
			if k.Len() != 0 {
				t.Error("a link is still kept")
			}
		})
	}
}

// TestCancelledCreateLeavesNothing ends the context at many moments of a creation.
func TestCancelledCreateLeavesNothing(t *testing.T) {
	d, k := newDriver(t)
	for delay := time.Duration(0); delay < 60*time.Millisecond; delay += 6 * time.Millisecond {
		spec := newSpec(t)
		ctx, cancel := context.WithTimeout(t.Context(), delay)
		in, err := d.Create(ctx, spec)
		cancel()
		if err == nil {
			destroy(t, in)
		} else if !errors.Is(err, carrel.TimedOut) {
			t.Errorf("after %v: %v", delay, err)
		}
		nothingLeft(t, spec)
	}
	if k.Len() != 0 {
		t.Error("a link is still kept")
	}
}

// nothingLeft fails when a process, control group or file of the sandbox still exists.
func nothingLeft(t testing.TB, spec driver.Spec) {
	t.Helper()
	if pids := sentries(string(spec.ID)); len(pids) > 0 {
		t.Errorf("processes left: %v", pids)
	}
	if dirs := groupsOf(string(spec.ID)); len(dirs) > 0 {
		t.Errorf("control groups left: %v", dirs)
	}
	entries, _ := os.ReadDir(spec.Dir)
	for _, e := range entries {
		t.Errorf("file left: %s", e.Name())
	}
	socks, _ := filepath.Glob(filepath.Join(os.TempDir(), "cg*", string(spec.ID)+"*"))
	if len(socks) > 0 {
		t.Errorf("sockets left: %v", socks)
	}
}

// sentries lists the processes whose arguments name this sandbox.
func sentries(id string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if strings.HasPrefix(string(b), "carrel-sentry\x00") && strings.Contains(string(b), id) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// groupsOf lists the control groups of this name.
func groupsOf(id string) []string {
	var out []string
	for _, pattern := range []string{"/sys/fs/cgroup/carrel/*/", "/sys/fs/cgroup/*/carrel/*/", "/sys/fs/cgroup/*/*/carrel/*/"} {
		found, _ := filepath.Glob(pattern + id)
		out = append(out, found...)
	}
	return out
}

func TestStats(t *testing.T) {
	d, _ := newDriver(t)
	in := create(t, d, newSpec(t))
	before, err := in.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := get(t, in, "/fill?path=/tmp/f&mb=20"); !ok {
		t.Fatal(got)
	}
	after, err := in.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	used := after.Disk - before.Disk                                                             // of one filling
	for end := time.Now().Add(time.Minute); after.CPU <= before.CPU && time.Now().Before(end); { // Stats has steps of 10 ms
		if got, ok := get(t, in, "/fill?path=/tmp/f&mb=20"); !ok {
			t.Fatal(got)
		}
		if after, err = in.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("before %+v\nafter  %+v", before, after)
	if used < 20<<20 || used > 30<<20 {
		t.Errorf("20 MiB in /tmp used %d bytes of disk", used)
	}
	if after.CPU <= before.CPU || after.Memory <= 0 || after.Pids < 2 {
		t.Errorf("figures %+v", after)
	}
	if after.DiskLimit != 64<<20 {
		t.Errorf("disk limit %d", after.DiskLimit)
	}
	if d.Info().Capabilities.MemoryLimit && after.MemoryLimit != 256<<20 {
		t.Errorf("memory limit %d", after.MemoryLimit)
	}
}

func TestDestroyInAnyState(t *testing.T) {
	d, _ := newDriver(t)
	spec := newSpec(t)
	in := create(t, d, spec)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { destroy(t, in) })
	}
	wg.Wait()
	destroy(t, in)
	nothingLeft(t, spec)
	exit, err := in.Wait(t.Context())
	if err != nil || exit.Reason != carrel.EndKilled {
		t.Errorf("exit %+v %v", exit, err)
	}
	if _, err := in.Dial(t.Context(), carrel.GuestPort); err == nil {
		t.Error("dial after the end")
	}
}

// TestInheritedDescriptorsStay runs a process that inherited descriptors at several numbers. They
// must not keep a sandbox from starting, although the sentry wants some numbers for itself, and
// must not be open in a sandbox.
func TestInheritedDescriptorsStay(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "inherited")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 3 {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 253)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	d, _ := newDriver(t)
	in := create(t, d, newSpec(t))
	if err := in.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

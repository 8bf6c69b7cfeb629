package interp_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// TestProcOfOne checks that machines on copies of one disk each have their own /proc. A view that
// belongs to no machine has an empty one.
func TestProcOfOne(t *testing.T) {
	disk := vfs.New(vfs.Options{})
	if err := interp.Install(disk); err != nil {
		t.Fatal(err)
	}
	a := interp.New(interp.Config{FS: disk.Clone(vfs.Options{}), Hostname: "first", CPUs: 3})
	defer a.Close()
	b := interp.New(interp.Config{FS: disk.Clone(vfs.Options{}), Hostname: "second"})
	defer b.Close()
	for m, want := range map[*interp.Machine]string{a: "first\n", b: "second\n"} {
		v := m.View(vfs.Cred{})
		if s, err := v.ReadFile("/proc/sys/kernel/hostname"); err != nil || string(s) != want {
			t.Errorf("%q, %v", s, err)
		}
		if _, err := v.Stat("/proc/self"); err == nil {
			t.Error("who asks from outside is no process")
		}
	}
	if s, _ := a.View(vfs.Cred{}).ReadFile("/proc/cpuinfo"); strings.Count(string(s), "processor") != 3 {
		t.Errorf("%s", s)
	}
	if l, err := disk.Root().ReadDir("/proc"); err != nil || len(l) != 0 {
		t.Errorf("a disk without a machine has %d files in /proc, %v", len(l), err)
	}
	if m := disk.Mounts(); len(m) != 1 || m[0].Path != "/proc" || !m[0].ReadOnly {
		t.Errorf("%+v", m)
	}
	l, err := a.View(vfs.Cred{}).ReadDir("/proc")
	if err != nil || !slices.ContainsFunc(l, func(i vfs.Info) bool { return i.Name == "meminfo" }) {
		t.Errorf("%d files, %v", len(l), err)
	}
	for _, i := range l { // what is listed can be read
		if i.Mode.IsRegular() {
			if s, err := a.View(vfs.Cred{}).ReadFile(i.Path); err != nil || len(s) == 0 {
				t.Errorf("%s: %d bytes, %v", i.Path, len(s), err)
			}
		}
	}
}

// BenchmarkIdle makes machines that run nothing.
func BenchmarkIdle(b *testing.B) {
	disk := vfs.New(vfs.Options{})
	if err := interp.Install(disk); err != nil {
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	var all []*interp.Machine
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		all = append(all, interp.New(interp.Config{FS: disk.Clone(vfs.Options{})}))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(all)), "B/machine")
	for _, m := range all {
		m.Close()
	}
}

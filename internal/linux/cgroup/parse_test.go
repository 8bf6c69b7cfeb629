package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func FuzzParseMounts(f *testing.F) {
	f.Add("36 35 98:0 / /sys/fs/cgroup/cpu rw,noatime shared:1 - cgroup cgroup rw,cpu,cpuacct\n")
	f.Add("30 23 0:26 /a\\040b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.Add(" - cgroup\n")
	f.Fuzz(func(t *testing.T, s string) {
		mounts, err := parseMounts(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, m := range mounts {
			if !m.v2 && m.has == nil {
				t.Errorf("a version 1 mount without controllers: %+v", m)
			}
		}
	})
}

func TestParseMounts(t *testing.T) {
	mounts, err := parseMounts(strings.NewReader(`22 1 8:1 / / rw - ext4 /dev/sda rw
36 35 98:0 / /sys/fs/cgroup/cpu rw,noatime shared:1 - cgroup cgroup rw,cpu,cpuacct
30 23 0:26 /pod\0401 /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
`))
	if err != nil || len(mounts) != 2 {
		t.Fatal(mounts, err)
	}
	if m := mounts[0]; m.v2 || !m.has[CPU] || !m.has[CPUAcct] || m.has[Memory] || m.dir != "/sys/fs/cgroup/cpu" {
		t.Errorf("version 1: %+v", m)
	}
	m := mounts[1]
	if !m.v2 || m.root != "/pod 1" {
		t.Errorf("version 2: %+v", m)
	}
	// In a container the paths of /proc/self/cgroup may begin with the mount's root, or may not.
	if got := m.path("/pod 1/x"); got != "/sys/fs/cgroup/unified/x" {
		t.Errorf("path %q", got)
	}
	if got := m.path("/x"); got != "/sys/fs/cgroup/unified/x" {
		t.Errorf("path %q", got)
	}
}

// TestVersion2 runs the version 2 code on ordinary files, because this machine's own hierarchy may
// have no controllers.
func TestVersion2(t *testing.T) {
	base := t.TempDir()
	for _, d := range []string{base, filepath.Join(base, "carrel"), filepath.Join(base, "carrel", "x")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("cpu memory pids\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := &Hierarchy{name: "carrel/x", v2Has: map[Controller]bool{}, v1: map[Controller]string{}, missing: map[Controller]error{}}
	if err := h.openV2(mount{dir: base, root: "/", v2: true}, map[string]string{"": "/"}, "carrel/x"); err == nil {
		for _, c := range controllers {
			t.Log(c, h.Has(c))
		}
	} else {
		t.Log(err) // a plain file keeps only the last word written
	}
	g := Load(Paths{V2: filepath.Join(base, "carrel", "x")})
	for _, name := range []string{"memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "pids.max"} {
		if err := os.WriteFile(filepath.Join(g.paths.V2, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.limit(Limits{Memory: 1 << 20, CPUs: 1.5, Pids: 7}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"memory.max": "1048576", "memory.swap.max": "0", "memory.oom.group": "1", "cpu.max": "150000 100000", "pids.max": "7",
	} {
		if b, _ := os.ReadFile(filepath.Join(g.paths.V2, name)); string(b) != want {
			t.Errorf("%s holds %q, want %q", name, b, want)
		}
	}
	for name, text := range map[string]string{
		"cpu.stat": "usage_usec 1500000\nuser_usec 1\n", "memory.current": "4096\n", "pids.current": "3\n",
		"memory.stat": "anon 1\nfile 999\ninactive_file 10\nactive_file 5\n", "memory.events": "low 0\noom_kill 2\n", "pids.events": "max 4\n",
	} {
		if err := os.WriteFile(filepath.Join(g.paths.V2, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if s := g.Stats(); s.CPU.Milliseconds() != 1500 || s.Memory != 4096 || s.Cache != 15 || s.Pids != 3 {
		t.Errorf("%+v", s)
	}
	if e := g.Events(); e.OOMKills != 2 || e.PidsMax != 4 {
		t.Errorf("%+v", e)
	}
}

package gvisor_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
)

// spawnersOf lists the processes that start sentries for a driver with this root.
func spawnersOf(root string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, _ := os.ReadFile(f); strings.HasPrefix(string(b), "carrel-spawner\x00--root="+root+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestSpawnerIsKilled kills the spawner. The sandboxes that it started must live on, new ones must
// be made without it, and after a while another spawner must take its place.
func TestSpawnerIsKilled(t *testing.T) {
	root := shortDir(t)
	d := openBlank(t, root, &drivertest.Keeper{}, 0)
	first := spawnersOf(root)
	if len(first) != 1 {
		t.Fatalf("spawners %v", first)
	}
	before := create(t, d, newSpec(t))
	if err := syscall.Kill(first[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	without := create(t, d, newSpec(t))
	if now := spawnersOf(root); len(now) != 0 {
		t.Errorf("spawners %v right after the first one's end", now)
	}
	d.SpawnerMayStart()
	after := create(t, d, newSpec(t))
	if now := spawnersOf(root); len(now) != 1 || now[0] == first[0] {
		t.Errorf("spawners %v, the first was %v", now, first)
	}
	for _, in := range []driver.Instance{before, without, after} {
		if got, ok := get(t, in, "/hello"); !ok {
			t.Error(got)
		}
		destroy(t, in)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if now := spawnersOf(root); len(now) != 0 {
		t.Errorf("spawners %v are left", now)
	}
}

package fulldisk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// TestStartSaysWhy starts a daemon on a directory with a fault. It must name the true cause, give a
// hint, and change nothing: without the fault it starts as before.
func TestStartSaysWhy(t *testing.T) {
	t.Parallel()
	d := daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t))
	for name, c := range map[string]struct {
		fault func(t *testing.T) (undo func())
		says  []string
	}{
		"locked records": {func(t *testing.T) func() { return lockRecords(t, d.Dir) },
			[]string{"another program has locked", "state.db", "fuser"}},
		"damaged authority": {func(t *testing.T) func() {
			return spoil(t,
				filepath.Join(d.Dir, "wire", "ca.pem"))
		},
			[]string{"ca.pem", "no certificate", "hint:", "backup"}},
		"read-only": {func(t *testing.T) func() { return readOnly(t, d.Dir) },
			[]string{"read-only file system", "hint: its filesystem is mounted read-only"}},
	} {
		d.Terminate()
		undo := c.fault(t)
		out, err := exec.Command(d.Bin, "--data-dir", d.Dir, "serve", "--listen",
			"127.0.0.1:0").CombinedOutput()
		undo()
		if err == nil {
			t.Errorf("%s: the daemon started", name)
		}
		for _, want := range c.says {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: it does not say %q:\n%s", name, want, out)
			}
		}
		d.Restart()
		if moved, _ := filepath.Glob(filepath.Join(d.Dir, "*damaged*")); len(moved) > 0 {
			t.Errorf("%s: the daemon moved %v away", name, moved)
		}
	}
}

// lockRecords locks the whole of state.db, as SQLite does for an exclusive transaction.
func lockRecords(t *testing.T, dir string) (undo func()) {
	t.Helper()
	var files []*os.File
	for _, name := range []string{"state.db", "state.db-shm"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK,
			&syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
}

// spoil replaces the content of a file.
func spoil(t *testing.T, name string) (undo func()) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, []byte("junk"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(name, raw, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// readOnly makes a directory read-only, for root too.
func readOnly(t *testing.T, dir string) (undo func()) {
	t.Helper()
	err := syscall.Mount(dir, dir, "", syscall.MS_BIND, "")
	if err == nil {
		if err = syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY,
			""); err != nil {
			_ = syscall.Unmount(dir, 0)
		}
	}
	testenv.Need(t, "mount", err)
	return func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}
}

// TestOutOfMemoryIsSaid runs a command that takes all memory of its sandbox. The command's error
// says so.
func TestOutOfMemoryIsSaid(t *testing.T) {
	t.Parallel()
	d := daemontest.StartOn(t, t.TempDir(), miniroot.Archive(t))
	svc := connect(t, d)
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		o := options(tier)
		o.Limits.MemoryMB = 256
		sb, err := svc.Create(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		c, err := svc.Computer(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Run(t.Context(), carrel.Command{User: "root",
			Shell: "mkdir -p /dev/shm; dd if=/dev/zero of=/dev/shm/all bs=1M count=2000 || a=$(head -c 900000000 /dev/zero | tr '\\0' x)"})
		if err == nil {
			// The kernel of a sandbox of tier ns ends the process alone.
			if tier == carrel.GVisor || res.Status != "signal: killed" {
				t.Errorf("%s: the command had the memory: %+v", tier, res)
			}
			continue
		}
		if strings.Contains(err.Error(), "envelope") || !strings.Contains(err.Error(), "memory") {
			t.Errorf("%s: %v", tier, err)
		}
	}
}

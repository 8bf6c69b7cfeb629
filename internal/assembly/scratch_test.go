package assembly

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestClearAbandoned clears the directories of services that have ended. Everything else in the
// same directory must stay.
func TestClearAbandoned(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(t *testing.T, dir string)
		removed bool
	}{
		{"its owner ended", func(*testing.T, string) {}, true},
		{"its owner lives", func(t *testing.T, dir string) {
			f, err := os.Open(filepath.Join(dir, scratchLock))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"it is being made", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, scratchLock))) }, false},
		{"others may write to it", func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o777)) }, false},
		{"it is another user's", func(t *testing.T, dir string) {
			if os.Geteuid() != 0 {
				testenv.Inapplicable(t, "only root can give a directory away")
			}
			must(t, os.Chown(dir, 54321, 54321))
		}, false},
		{"it is a link", func(t *testing.T, dir string) {
			must(t, os.Rename(dir, filepath.Join(filepath.Dir(dir), "real")))
			must(t, os.Symlink("real", dir))
		}, false},
		{"its lock is a link", func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, scratchLock), filepath.Join(dir, "elsewhere")))
			must(t, os.Symlink("elsewhere", filepath.Join(dir, scratchLock)))
		}, false},
		{"a directory in it can't be read", func(t *testing.T, dir string) {
			must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
			must(t, os.Chmod(filepath.Join(dir, "a"), 0))
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmp := t.TempDir()
			dir := filepath.Join(tmp, "carrel-local-1")
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.WriteFile(filepath.Join(dir, scratchLock), nil, 0o600))
			must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
			c.change(t, dir)
			other := filepath.Join(tmp, "carrel-local")
			must(t, os.Mkdir(other, 0o700))
			clearAbandoned(t.Context(), tmp)
			if _, err := os.Lstat(dir); os.IsNotExist(err) != c.removed {
				t.Errorf("removed: %v, want %v", os.IsNotExist(err), c.removed)
			}
			if _, err := os.Stat(filepath.Join(dir, "file")); !c.removed && err != nil {
				t.Errorf("a file in it is gone: %v", err)
			}
			if _, err := os.Stat(other); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestScratch opens two at once. Neither may clear the other, and each must remove itself.
func TestScratch(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	first, err := openScratch(t.Context())
	must(t, err)
	second, err := openScratch(t.Context())
	must(t, err)
	for i, s := range []*scratch{first, second} {
		left, err := filepath.Glob(filepath.Join(tmp, scratchPattern))
		must(t, err)
		if len(left) != 2-i {
			t.Errorf("before close %d there are %v", i, left)
		}
		must(t, s.close())
		must(t, s.close())
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

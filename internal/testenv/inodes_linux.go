package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// FewInodes mounts a file system with few inodes. It returns its directory, and a function that
// takes all inodes that are left.
func FewInodes(t testing.TB) (dir string, take func()) {
	t.Helper()
	dir = t.TempDir()
	Need(t, "mount", syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,nr_inodes=30"))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	n := 0
	return dir, func() {
		for {
			n++
			f, err := os.Create(filepath.Join(dir, fmt.Sprint("taken-", n)))
			if errors.Is(err, syscall.ENOSPC) {
				return
			}
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

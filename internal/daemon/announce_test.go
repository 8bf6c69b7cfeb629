package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// withoutInodes makes a file system with few inodes, and returns how to take all of them.
func withoutInodes(t *testing.T) (dir string, take func()) {
	t.Helper()
	dir = t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,nr_inodes=20")
	testenv.Need(t, "mount", err)
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	n := 0
	return dir, func() {
		for {
			n++
			f, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
			if errors.Is(err, syscall.ENOSPC) {
				return
			}
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAnnouncedWithoutInodes: a daemon on a disk without an inode is announced, whether the one
// before it ended in order or was killed.
func TestAnnouncedWithoutInodes(t *testing.T) {
	for name, end := range map[string]func(announcement){
		"in order": announcement.withdraw, "killed": func(announcement) {},
	} {
		t.Run(name, func(t *testing.T) {
			dir, take := withoutInodes(t)
			a := announcement{dir}
			if err := a.write([]byte(strings.Repeat("x", 200) + "\n")); err != nil {
				t.Fatal(err)
			}
			end(a)
			take()
			for _, text := range []string{"second\n", strings.Repeat("third", 100) + "\n"} {
				if err := a.write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(a.file())
				if err != nil || strings.TrimRight(string(got), " ") != text {
					t.Fatalf("it says %q, %v; want %q", got, err, text)
				}
				a.withdraw()
				if _, err := os.Stat(a.file()); !errors.Is(err, os.ErrNotExist) {
					t.Fatalf("it is there after its daemon: %v", err)
				}
				take()
			}
		})
	}
}

// Package fulldisk runs daemons on disks that are full, without inodes or damaged, and with too few
// descriptors.
package fulldisk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// disk mounts a new ext4 filesystem of this many MiB, and returns its directory. mkfs are further
// arguments of mkfs.ext4.
func disk(t *testing.T, mib int64, mkfs ...string) string {
	t.Helper()
	if os.Getuid() != 0 {
		testenv.Need(t, "root", errors.New("root, to mount a filesystem"))
	}
	_, err := exec.LookPath("mkfs.ext4")
	testenv.Need(t, "ext4", err)
	image := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(mib<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	// Without blocks that only root may use: the daemon is root.
	args := append([]string{"-q", "-m", "0"}, append(mkfs, image)...)
	if out, err := exec.Command("mkfs.ext4", args...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	dir := t.TempDir()
	out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput()
	if err != nil {
		testenv.Need(t, "loop", fmt.Errorf("mount: %w: %s", err, out))
	}
	t.Cleanup(func() {
		_ = os.Remove(ballast(dir))
		testenv.EventuallyNil(t, "the disk is unmounted", func() error { return syscall.Unmount(dir, 0) })
	})
	return dir
}

// ballast is the file that takes the space.
func ballast(dir string) string { return filepath.Join(dir, "ballast") }

// fill writes until the disk has no byte left.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(ballast(dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		buf := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(buf)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// free gives the space back.
func free(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(ballast(dir)); err != nil {
		t.Fatal(err)
	}
}

// left returns how many bytes the disk has left.
func left(t *testing.T, dir string) int64 {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	return int64(fs.Bavail) * fs.Bsize
}

// inodeDir holds the files that take the inodes.
func inodeDir(dir string) string { return filepath.Join(dir, "inodes") }

// takeInodes makes empty files until the disk has no inode left.
func takeInodes(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(inodeDir(dir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) &&
		!errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for {
		f, err := os.CreateTemp(inodeDir(dir), "")
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// giveInodes gives them back.
func giveInodes(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(inodeDir(dir)); err != nil {
		t.Fatal(err)
	}
}

// lowest watches how many bytes a disk has left, until the returned function is called: it returns
// the lowest number seen.
func lowest(t *testing.T, dir string) func() int64 {
	t.Helper()
	low, stop, done := left(t, dir), make(chan struct{}), make(chan int64)
	go func() {
		for {
			select {
			case <-stop:
				done <- low
				return
			case <-time.After(time.Millisecond):
				var fs syscall.Statfs_t
				if syscall.Statfs(dir, &fs) == nil {
					low = min(low, int64(fs.Bavail)*fs.Bsize)
				}
			}
		}
	}()
	return func() int64 { close(stop); return <-done }
}

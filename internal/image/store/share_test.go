package store_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// baseAnd is an archive of a base of some size and one more file.
func baseAnd(t *testing.T, size int, extra string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(name string, content []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644,
			Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.NewChaCha8([32]byte{1})
	for i := range 64 {
		content := make([]byte, size/64)
		_, _ = r.Read(content)
		put(fmt.Sprintf("base/%d", i), content)
	}
	put("extra", []byte(extra))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func importBase(t *testing.T, s *store.Store, name string, size int, extra string) image.Image {
	t.Helper()
	img, err := s.Import(context.Background(), name, baseAnd(t, size, extra), nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestEqualTemplates shows that equal templates take their space once, and that each of them lives
// on when the other one goes.
func TestEqualTemplates(t *testing.T) {
	s := open(t, store.Options{})
	one, two := importBase(t, s, "one", 1<<20, "a"), importBase(t, s, "two", 1<<20, "a")
	other := importBase(t, s, "other", 1<<20, "b")
	inode := func(img image.Image) (uint64, uint64) {
		t.Helper()
		var st syscall.Stat_t
		if err := syscall.Stat(img.Path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino, uint64(st.Nlink)
	}
	a, n := inode(one)
	b, _ := inode(two)
	c, _ := inode(other)
	if a != b || n != 2 || a == c || one.Size != two.Size {
		t.Errorf("inodes %d (%d links), %d and %d, sizes %d and %d", a, n, b, c, one.Size, two.Size)
	}
	if err := s.Delete(context.Background(), one.ID); err != nil {
		t.Fatal(err)
	}
	if read(t, two.Path, "extra") != "a" || read(t, other.Path, "extra") != "b" {
		t.Error("other content")
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(two.Path), "part-*")); err != nil ||
		len(left) > 0 {
		t.Error(left, err)
	}
}

// TestSharedBase makes ten templates over one base on a file system that can share blocks.
func TestSharedBase(t *testing.T) {
	const base = 16 << 20
	dir := sharingDisk(t)
	s := open(t, store.Options{Dir: filepath.Join(dir, "templates"),
		CacheDir: filepath.Join(dir, "cache")})
	used := func() int64 {
		t.Helper()
		var st syscall.Statfs_t
		syscall.Sync()
		if err := syscall.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		return int64(st.Blocks-st.Bfree) * st.Bsize
	}
	before := used()
	for i := range 10 {
		img := importBase(t, s, fmt.Sprintf("t%d", i), base, fmt.Sprintf("the extra file of %d", i))
		if got := read(t, img.Path, "extra"); got != fmt.Sprintf("the extra file of %d", i) {
			t.Errorf("%d: %q", i, got)
		}
	}
	grown := used() - before
	t.Logf("ten templates over a base of %d MB take %d MB", base>>20, grown>>20)
	if grown > 2*base {
		t.Errorf("they take %d MB", grown>>20)
	}
}

// sharingDisk mounts a new XFS.
func sharingDisk(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	dir := filepath.Join(filepath.Dir(file), "mnt")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(400 << 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.xfs", "-q", "-m", "reflink=1", file},
		{"mount", "-o", "loop", file, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			testenv.Need(t, "xfs", fmt.Errorf("%v: %w: %s", args, err, out))
		}
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

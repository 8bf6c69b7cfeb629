package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/blobtest"
	"github.com/carrel-dev/carrel/internal/snapshot/disk"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// points are the steps of a Put, in order.
var points = []string{"disk.put.write", "disk.put.sync", "disk.put.rename", "disk.put.syncdir"}

// Environment variables that make the test binary a process that dies during a Put.
const (
	dirEnv  = "CARREL_TEST_BLOBS"
	specEnv = "CARREL_TEST_FAILPOINTS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirEnv); dir != "" {
		os.Exit(putNew(dir, os.Getenv(specEnv)))
	}
	goleak.VerifyTestMain(m)
}

// putNew replaces d/old. It dies at the fail point in spec.
func putNew(dir, spec string) int {
	b, err := disk.Open(dir)
	if err == nil {
		err = failpoint.Parse(spec)
	}
	if err == nil {
		content := blobtest.Content(2, 200_000)
		err = b.Put(context.Background(), "d/old", bytes.NewReader(content), int64(len(content)))
	}
	fmt.Println("it lives", err)
	return 1
}

func open(t *testing.T, dir string) *disk.Blobs {
	t.Helper()
	b, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b *disk.Blobs, name string, content []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, b *disk.Blobs, name string) []byte {
	t.Helper()
	r, err := b.Get(t.Context(), name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// files returns the paths of all regular files below dir, relative to dir.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConformance(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) snapshot.Blobs { return open(t, t.TempDir()) })
}

func TestPrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "blobs")
	if err := os.Mkdir(dir, 0o755); err != nil { // with the wrong mode, as a person might make it
		t.Fatal(err)
	}
	b := open(t, dir)
	defer b.Close()
	put(t, b, "a/b/c", []byte("secret"))
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFull makes each step of a Put fail with a full disk.
func TestFull(t *testing.T) {
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Cleanup(failpoint.Reset)
			dir := t.TempDir()
			b := open(t, dir)
			defer b.Close()
			put(t, b, "d/old", []byte("old"))
			if err := failpoint.Parse(point + "=enospc"); err != nil {
				t.Fatal(err)
			}
			err := b.Put(t.Context(), "d/old", strings.NewReader("new"), 3)
			if !errors.Is(err, carrel.Exhausted) || carrel.HintOf(err) == "" {
				t.Errorf("Put: %v, want Exhausted with a hint", err)
			}
			failpoint.Reset()
			if got := string(read(t, b, "d/old")); got != "old" && got != "new" {
				t.Errorf("the blob is %q", got)
			}
			if got := files(t, dir); len(got) != 1 {
				t.Errorf("files left: %q", got)
			}
			put(t, b, "d/old", []byte("again"))
		})
	}
}

// TestReallyFull fills a file system of one megabyte.
func TestReallyFull(t *testing.T) {
	dir := t.TempDir()
	testenv.Need(t, "mount", syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	b := open(t, dir)
	defer b.Close()
	small := blobtest.Content(1, 300<<10)
	put(t, b, "small", small)
	big := blobtest.Content(2, 900<<10)
	err := b.Put(t.Context(), "big", bytes.NewReader(big), int64(len(big)))
	if !errors.Is(err, carrel.Exhausted) || carrel.HintOf(err) == "" {
		t.Errorf("Put: %v, want Exhausted with a hint", err)
	}
	if got := files(t, dir); len(got) != 1 || got[0] != "small" {
		t.Errorf("files left: %q", got)
	}
	if !bytes.Equal(read(t, b, "small"), small) {
		t.Error("what was there is damaged")
	}
	put(t, b, "second", blobtest.Content(3, 400<<10)) // the room is free again
}

// TestKilled kills the process at each step of a Put. The blob must be the old one or the new one,
// and the next Open must leave no other file.
func TestKilled(t *testing.T) {
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			b := open(t, dir)
			old := blobtest.Content(1, 100_000)
			put(t, b, "d/old", old)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), dirEnv+"="+dir, specEnv+"="+point+"=kill")
			if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.Exited() {
				t.Fatalf("it was not killed: %s", out)
			}
			if got := len(files(t, dir)); got != 2 && point != "disk.put.syncdir" {
				t.Errorf("%d files right after the crash, want the old one and a leftover", got)
			}
			b = open(t, dir)
			defer b.Close()
			want := old
			if point == "disk.put.syncdir" {
				want = blobtest.Content(2, 200_000)
			}
			if !bytes.Equal(read(t, b, "d/old"), want) {
				t.Error("the blob is neither as before nor as after")
			}
			if got := files(t, dir); len(got) != 1 {
				t.Errorf("files left: %q", got)
			}
		})
	}
}

// TestLivingWriter opens the directory while another process writes. The unfinished file is neither
// a leftover nor a blob.
func TestLivingWriter(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	defer b.Close()
	t.Cleanup(failpoint.Reset)
	failpoint.Enable("disk.put.sync", func() error {
		other := open(t, dir)
		defer other.Close()
		if got := files(t, dir); len(got) != 1 || !strings.HasPrefix(got[0], "tmp~/") {
			t.Errorf("files while one is written: %q", got)
		}
		return other.List(t.Context(), "", func(i snapshot.BlobInfo) error {
			t.Errorf("%q is listed", i.Name)
			return nil
		})
	})
	put(t, b, "x", []byte("content"))
	if got := string(read(t, b, "x")); got != "content" {
		t.Errorf("got %q", got)
	}
}

// TestLinks makes symbolic links below the directory that lead out of it.
func TestLinks(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b := open(t, dir)
	defer b.Close()
	for name, target := range map[string]string{"file": secret, "dir": outside, "up": "../" + filepath.Base(outside)} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file", "dir/secret", "up/secret"} {
		if r, err := b.Get(t.Context(), name, 0, -1); err == nil {
			r.Close()
			t.Errorf("Get(%q) worked", name)
		}
	}
	for _, name := range []string{"dir/new", "up/new", "dir/secret"} {
		if err := b.Put(t.Context(), name, strings.NewReader("x"), 1); err == nil {
			t.Errorf("Put(%q) worked", name)
		}
	}
	for _, name := range []string{"dir/secret", "up/secret", "file"} {
		_ = b.Delete(t.Context(), name) // that it may refuse
	}
	put(t, b, "file", []byte("mine")) // in place of the link
	if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
		t.Errorf("outside there is %q, %v", got, err)
	}
	if got := files(t, outside); len(got) != 1 {
		t.Errorf("outside there are %q", got)
	}
	if err := b.List(t.Context(), "", func(i snapshot.BlobInfo) error {
		if i.Name != "file" {
			t.Errorf("%q is listed", i.Name)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestNested puts blobs whose names are the directories of others.
func TestNested(t *testing.T) {
	b := open(t, t.TempDir())
	defer b.Close()
	put(t, b, "a", []byte("file"))
	put(t, b, "d/x", []byte("file"))
	for _, name := range []string{"a/b", "a/b/c", "d"} {
		err := b.Put(t.Context(), name, strings.NewReader("x"), 1)
		if !errors.Is(err, carrel.Invalid) || carrel.HintOf(err) == "" {
			t.Errorf("Put(%q): %v, want Invalid with a hint", name, err)
		}
	}
	if err := b.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	put(t, b, "a/b", []byte("now it may"))
}

func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := disk.Open(dir); carrel.KindOf(err) != carrel.Internal || !strings.Contains(fmt.Sprint(err), file) {
			t.Errorf("Open(%q): %v, want Internal naming it", dir, err)
		}
	}
}

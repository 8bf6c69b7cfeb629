package erofs_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	goerofs "github.com/erofs/go-erofs"

	"github.com/carrel-dev/carrel/internal/image/erofs"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// sample builds a tree with every feature of the format. It returns the expected content of each
// regular file.
func sample(t *testing.T, w *erofs.Writer) (*erofs.Node, map[string][]byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[string][]byte{}
	root := erofs.NewDir(0o755)
	when := time.Unix(1_700_000_000, 123456789)
	file := func(dir *erofs.Node, path string, data []byte, perm fs.FileMode) *erofs.Node {
		e, err := w.Reserve(int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Fill(e, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		n := &erofs.Node{Mode: perm, Data: e, UID: 1000, GID: 70000}
		n.SetMtime(when)
		dir.Set(filepath.Base(path), n)
		want[path] = data
		return n
	}
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for _, size := range []int{0, 1, 100, 4095, 4096, 4097, 300_000} {
		file(root, fmt.Sprintf("file%d", size), random(size), 0o640)
	}
	hole := make([]byte, 3<<20)
	copy(hole[1<<20:], "in the middle")
	file(root, "hole", hole, 0o600)
	su := file(root, "su", random(10), 0o755|fs.ModeSetuid)
	root.Set("su-too", su) // a hard link
	want["su-too"] = want["su"]
	big := erofs.NewDir(0o711)
	root.Set("big", big)
	for i := range 3000 {
		name := fmt.Sprintf("entry-%04d-%s", i, strings.Repeat("x", i%150))
		file(big, "big/"+name, []byte(name), 0o444)
	}
	for _, odd := range []string{"-x", "!", "..a", "ü", strings.Repeat("n", 255)} {
		file(big, "big/"+odd, []byte(odd), 0o444)
	}
	tmp := erofs.NewDir(0o777 | fs.ModeSticky)
	root.Set("tmp", tmp)
	tmp.Set("link", erofs.NewSymlink("../file1"))
	tmp.Set("long", erofs.NewSymlink(strings.Repeat("a/", 2047)))
	tmp.Set("fifo", &erofs.Node{Mode: fs.ModeNamedPipe | 0o622})
	deep := root
	for i := range 50 {
		d := erofs.NewDir(0o700)
		deep.Set(fmt.Sprintf("d%d", i), d)
		deep = d
	}
	return root, want
}

func write(t *testing.T) (string, map[string][]byte, int64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.erofs")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := erofs.NewWriter(f)
	root, want := sample(t, w)
	size, err := w.Finish(root, time.Unix(1_700_000_001, 0))
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil || st.Size() != size {
		t.Fatalf("image is %d bytes, Finish said %d (%v)", st.Size(), size, err)
	}
	if disk := st.Sys().(*syscall.Stat_t).Blocks * 512; disk > size-2<<20 {
		t.Errorf("image takes %d bytes of disk of %d: zeros were not left out", disk, size)
	}
	return path, want, size
}

// check compares a tree with the expected contents.
func check(t *testing.T, fsys fs.FS, want map[string][]byte) {
	t.Helper()
	files := 0
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		files++
		got, err := fs.ReadFile(fsys, path)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want[path]) {
			t.Errorf("%s holds %d bytes, want %d, or others", path, len(got), len(want[path]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files != len(want) {
		t.Errorf("%d files, want %d", files, len(want))
	}
}

// TestReadByOthers reads our image with an independent reader.
func TestReadByOthers(t *testing.T) {
	path, want, _ := write(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	check(t, img, want)
	info, err := fs.Stat(img, "file100")
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*goerofs.Stat)
	if st.UID != 1000 || st.GID != 70000 || info.Mode().Perm() != 0o640 || st.Mtime != 1_700_000_000 || st.MtimeNs != 123456789 {
		t.Errorf("file100: %v %+v", info.Mode(), st)
	}
	const plain = 0 // contents in blocks of their own, which the sentry can map
	if st.InodeLayout != plain {
		t.Errorf("a small file has layout %d: the sentry could not map it", st.InodeLayout)
	}
}

// TestKernelMount mounts our image with the Linux kernel and reads it.
func TestKernelMount(t *testing.T) {
	path, want, _ := write(t)
	dir := Mount(t, path)
	check(t, os.DirFS(dir), want)
	stat := func(name string) *syscall.Stat_t {
		var st syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		return &st
	}
	a, b := stat("su"), stat("su-too")
	if a.Ino != b.Ino || a.Nlink != 2 {
		t.Errorf("hard link: inodes %d and %d, %d links", a.Ino, b.Ino, a.Nlink)
	}
	if a.Mode != syscall.S_IFREG|0o4755 || a.Uid != 1000 || a.Gid != 70000 {
		t.Errorf("su: mode %o owner %d:%d", a.Mode, a.Uid, a.Gid)
	}
	if got := stat("tmp").Mode; got != syscall.S_IFDIR|0o1777 {
		t.Errorf("tmp: mode %o", got)
	}
	if got := stat("tmp/fifo").Mode; got != syscall.S_IFIFO|0o622 {
		t.Errorf("fifo: mode %o", got)
	}
	if to, err := os.Readlink(filepath.Join(dir, "tmp/link")); err != nil || to != "../file1" {
		t.Errorf("link: %q %v", to, err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "tmp/long")); err != nil || len(to) != 4094 {
		t.Errorf("long link: %d bytes, %v", len(to), err)
	}
}

// Mount mounts an image read-only until the test ends.
func Mount(t *testing.T, image string) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "erofs", "-o", "ro,loop", image, dir).CombinedOutput()
	if err != nil {
		testenv.Need(t, "mount", fmt.Errorf("%w: %s", err, out))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestBadTrees(t *testing.T) {
	for name, build := range map[string]func(root *erofs.Node){
		"name too long":   func(r *erofs.Node) { r.Set(strings.Repeat("n", 256), erofs.NewDir(0)) },
		"empty name":      func(r *erofs.Node) { r.Set("", erofs.NewDir(0)) },
		"target too long": func(r *erofs.Node) { r.Set("l", erofs.NewSymlink(strings.Repeat("n", 4096))) },
		"no target":       func(r *erofs.Node) { r.Set("l", erofs.NewSymlink("")) },
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "i"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			root := erofs.NewDir(0o755)
			build(root)
			if _, err := erofs.NewWriter(f).Finish(root, time.Time{}); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestShortContents(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "i"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := erofs.NewWriter(f)
	e, err := w.Reserve(10)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Fill(e, strings.NewReader("four")); n != 4 || err != io.ErrUnexpectedEOF {
		t.Errorf("Fill gave %d, %v", n, err)
	}
	if _, err := w.Reserve(1 << 60); err != erofs.ErrTooLarge {
		t.Errorf("Reserve of too much gave %v", err)
	}
}

// TestReadBack reads contents that end in zeros, before the image is finished.
func TestReadBack(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "i"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := erofs.NewWriter(f)
	want := append([]byte("begin"), make([]byte, 10_000)...)
	e, err := w.Reserve(int64(len(want)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Fill(e, bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	r, err := w.Reader(e)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
}

// TestRelease shows that only a file's last name frees its contents.
func TestRelease(t *testing.T) {
	root, dir := erofs.NewDir(0o755), erofs.NewDir(0o755)
	n := &erofs.Node{Data: erofs.Extent{Size: 7}}
	root.Set("a", n)
	root.Set("d", dir)
	dir.Set("b", n)
	var freed int64
	free := func(e erofs.Extent) { freed += e.Size }
	root.Remove("a").Release(free)
	if freed != 0 || n.Links() != 1 {
		t.Errorf("freed %d with %d links left", freed, n.Links())
	}
	root.Remove("d").Release(free)
	if freed != 7 {
		t.Errorf("freed %d, want 7", freed)
	}
}

package hostfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/shell/hostfs"
	"github.com/carrel-dev/carrel/shell/vfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// populate fills a directory: dirs, files of several blocks, links.
func populate(t testing.TB, dir string) {
	t.Helper()
	for _, d := range []string{"a/b/c", "a/d", "e", "empty"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for i, f := range []string{"a/f", "a/b/f", "a/b/c/f", "e/f", "e/g", "f"} {
		must(t, os.WriteFile(filepath.Join(dir, f), bytes.Repeat([]byte(f), 1+i*9000), 0o644))
	}
	must(t, os.Symlink("a/b", filepath.Join(dir, "rel")))
	must(t, os.Symlink("/mnt/e", filepath.Join(dir, "abs")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out")))
	must(t, os.Symlink("../../../../../etc/passwd", filepath.Join(dir, "up")))
}

// mounted mounts a directory at /mnt.
func mounted(t testing.TB, dir string, o vfs.MountOptions) *vfs.FS {
	t.Helper()
	d, err := hostfs.OpenWritable(dir)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	f := vfs.New(vfs.Options{})
	must(t, f.Root().Mkdir("/mnt", 0o755))
	must(t, f.Root().Mkdir("/etc", 0o755))
	must(t, f.Root().WriteFile("/etc/passwd", []byte("the sandbox's\n"), 0o644))
	must(t, f.Mount("/mnt", d, o))
	return f
}

// TestLinksStayInside follows links that lead out of the directory, in each kind of mount.
func TestLinksStayInside(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir)
	for name, o := range map[string]vfs.MountOptions{"read only": {ReadOnly: true}, "overlay": {Overlay: true}, "through": {}} {
		f := mounted(t, dir, o)
		v := f.Root()
		for _, p := range []string{"/mnt/out", "/mnt/up"} {
			if b, err := v.ReadFile(p); err != nil || string(b) != "the sandbox's\n" {
				t.Errorf("%s: %s is %q, %v", name, p, b, err)
			}
		}
		if b, err := v.ReadFile("/mnt/abs/f"); err != nil || len(b) == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if p, err := v.EvalSymlinks("/mnt/rel/../.."); err != nil || p != "/mnt" {
			t.Errorf("%s: %q, %v", name, p, err)
		}
		if l, err := v.ReadDir("/mnt/../../.."); err != nil || len(l) != 2 {
			t.Errorf("%s: the root has %d files, %v", name, len(l), err)
		}
		for _, p := range []string{"/mnt", "/mnt/."} {
			if err := v.RemoveAll(p); err == nil {
				t.Errorf("%s: %s was removed", name, p)
			}
		}
		if err := v.Rename("/mnt/f", "/f"); !errors.Is(err, syscall.EXDEV) && !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: a rename between mounts: %v", name, err)
		}
		if i, _ := v.Stat("/mnt"); !i.Mode.IsDir() || i.Name != "mnt" {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// TestReadOnly tries changes that must be refused.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir)
	f := mounted(t, dir, vfs.MountOptions{ReadOnly: true})
	v := f.Root()
	for name, err := range map[string]error{
		"write":   v.WriteFile("/mnt/f", nil, 0),
		"create":  v.WriteFile("/mnt/new", nil, 0),
		"mkdir":   v.Mkdir("/mnt/new", 0o755),
		"symlink": v.Symlink("x", "/mnt/new"),
		"link":    v.Link("/mnt/f", "/mnt/new"),
		"remove":  v.Remove("/mnt/f"),
		"all":     v.RemoveAll("/mnt/a"),
		"rename":  v.Rename("/mnt/f", "/mnt/g"),
		"chmod":   v.Chmod("/mnt/f", 0),
		"chown":   v.Chown("/mnt/f", 1, 1),
		"fifo":    v.Mkfifo("/mnt/new", 0o644),
		"access":  v.Access("/mnt/f", vfs.MayWrite),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOddFiles checks that files that are not regular can't be opened.
func TestOddFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(t, err)
	defer syscall.Close(fd)
	must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(dir, "socket")}))
	names := []string{"fifo", "socket"}
	if syscall.Mknod(filepath.Join(dir, "null"), syscall.S_IFCHR|0o666, 1<<8|3) == nil {
		names = append(names, "null")
	}
	for kind, o := range map[string]vfs.MountOptions{"read only": {ReadOnly: true}, "overlay": {Overlay: true}, "through": {}} {
		v := mounted(t, dir, o).Root()
		for _, n := range names {
			for _, flags := range []vfs.Flags{vfs.ReadOnly, vfs.WriteOnly, vfs.ReadWrite} {
				if h, err := v.OpenFile("/mnt/"+n, flags, 0); err == nil {
					t.Errorf("%s: %s was opened", kind, n)
					_ = h.Close()
				}
			}
		}
	}
}

// TestSwaps reads while another goroutine keeps replacing directories and files with links that
// lead out.
func TestSwaps(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	populate(t, dir)
	const secret = "outside"
	must(t, os.WriteFile(filepath.Join(outside, "f"), []byte(secret), 0o644))
	must(t, os.MkdirAll(filepath.Join(outside, "b"), 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "b", "f"), []byte(secret), 0o644))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		j := func(s string) string { return filepath.Join(dir, s) }
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(j("a"), j("a.real"))
			_ = os.Symlink(outside, j("a"))
			_ = os.Remove(j("a"))
			_ = os.Rename(j("a.real"), j("a"))
			_ = os.Rename(j("e/f"), j("e/f.real"))
			_ = os.Symlink(filepath.Join(outside, "f"), j("e/f"))
			_ = os.Remove(j("e/f"))
			_ = syscall.Mkfifo(j("e/f"), 0o666)
			_ = os.Remove(j("e/f"))
			_ = os.Rename(j("e/f.real"), j("e/f"))
		}
	}()
	views := []vfs.View{mounted(t, dir, vfs.MountOptions{ReadOnly: true}).Root(), mounted(t, dir, vfs.MountOptions{}).Root(),
		mounted(t, dir, vfs.MountOptions{Overlay: true}).Root()}
	read := 0
	for i := range 3000 {
		v := views[i%3]
		for _, p := range []string{"/mnt/a/f", "/mnt/a/b/f", "/mnt/e/f"} {
			b, err := v.ReadFile(p)
			if strings.Contains(string(b), secret) {
				t.Fatalf("%s read from outside", p)
			}
			if err == nil {
				read++
			}
		}
		_, _ = v.ReadDir("/mnt/a/b")
		w := views[1]
		if h, err := w.OpenFile("/mnt/a/b/f", vfs.WriteOnly|vfs.Truncate, 0); err == nil {
			_, _ = h.Write([]byte("inside"))
			_ = h.Close()
		}
		_ = w.WriteFile("/mnt/a/new", []byte("inside"), 0o644)
		_ = w.Chmod("/mnt/e/f", 0o600)
		_ = w.Remove("/mnt/a/new")
		_ = w.Mkdir("/mnt/a/dir", 0o755)
		_ = w.RemoveAll("/mnt/a/dir")
	}
	close(stop)
	<-done
	var names []string
	must(t, filepath.WalkDir(outside, func(p string, d fs.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(p, outside))
		if d.Type().IsRegular() {
			if b, _ := os.ReadFile(p); string(b) != secret {
				t.Errorf("%s was written: %q", p, b)
			}
			if fi, _ := d.Info(); fi.Mode().Perm() != 0o644 {
				t.Errorf("%s has mode %v", p, fi.Mode())
			}
		}
		return err
	}))
	if !slices.Equal(names, []string{"", "/b", "/b/f", "/f"}) {
		t.Errorf("outside there is now %q", names)
	}
	if read == 0 {
		t.Error("nothing was read at all")
	}
}

// TestShrinks reads a file that becomes shorter during the read.
func TestShrinks(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	must(t, os.WriteFile(name, bytes.Repeat([]byte("x"), 200_000), 0o644))
	over, ro := mounted(t, dir, vfs.MountOptions{Overlay: true}).Root(), mounted(t, dir, vfs.MountOptions{ReadOnly: true}).Root()
	a, err := over.OpenFile("/mnt/f", vfs.ReadWrite, 0)
	must(t, err)
	b, err := ro.Open("/mnt/f")
	must(t, err)
	must(t, os.Truncate(name, 50_000))
	x, err := io.ReadAll(a)
	if err != nil || len(x) != 200_000 || !bytes.Equal(x[:50_000], bytes.Repeat([]byte("x"), 50_000)) || x[199_999] != 0 {
		t.Errorf("the overlay's file has %d bytes, %v", len(x), err)
	}
	_, _ = a.Seek(100_000, io.SeekStart)
	_, err = a.Write([]byte("late"))
	must(t, err)
	if y, err := io.ReadAll(b); err != nil || len(y) != 50_000 {
		t.Errorf("read only it has %d bytes, %v", len(y), err)
	}
	must(t, os.Remove(name))
	if _, err := a.ReadAt(make([]byte, 10), 0); err != nil {
		t.Logf("a file that is gone: %v", err) // its handle may be open or not
	}
	must(t, errors.Join(a.Close(), b.Close()))
}

// TestReaderSeesWriter opens a source's file, and reads it after another process has changed it
// through the overlay.
func TestReaderSeesWriter(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir)
	v := mounted(t, dir, vfs.MountOptions{Overlay: true}).Root()
	h, err := v.Open("/mnt/e/f")
	must(t, err)
	must(t, v.WriteFile("/mnt/e/f", []byte("new"), 0))
	b, err := io.ReadAll(h)
	if err != nil || string(b) != "new" {
		t.Errorf("%.20q, %v", b, err)
	}
	must(t, v.Remove("/mnt/e/f"))
	if i, err := h.Stat(); err != nil || i.Size != 3 || i.Links != 0 {
		t.Errorf("%+v, %v", i, err)
	}
	must(t, h.Close())
}

// TestQuota checks that the quota of an overlay counts only changes.
func TestQuota(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "big"), make([]byte, 4<<20), 0o644))
	s, err := hostfs.Open(dir)
	must(t, err)
	defer s.Close()
	f := vfs.New(vfs.Options{Quota: 1 << 20})
	must(t, f.Root().Mkdir("/mnt", 0o755))
	must(t, f.Mount("/mnt", s, vfs.MountOptions{Overlay: true}))
	v := f.Root()
	if b, err := v.ReadFile("/mnt/big"); err != nil || len(b) != 4<<20 {
		t.Errorf("%d, %v", len(b), err)
	}
	must(t, v.Chmod("/mnt/big", 0o600))
	h, err := v.OpenFile("/mnt/big", vfs.ReadWrite, 0)
	must(t, err)
	_, _ = h.Seek(2<<20, io.SeekStart)
	_, err = h.Write([]byte("x"))
	must(t, err)
	if used, _ := f.Usage(); used > 64<<10 {
		t.Errorf("one byte of a large file costs %d", used)
	}
	_, _ = h.Seek(0, io.SeekStart)
	if _, err = h.Write(make([]byte, 4<<20)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("all of it: %v", err)
	}
	must(t, h.Close())
	must(t, v.Remove("/mnt/big"))
	if err := v.Remove("/mnt/big"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
	// A snapshot must not contain mounted files.
	var buf bytes.Buffer
	base := vfs.New(vfs.Options{})
	must(t, base.Root().Mkdir("/mnt", 0o755))
	c := base.Clone(vfs.Options{})
	must(t, c.Mount("/mnt", s, vfs.MountOptions{Overlay: true}))
	must(t, c.Root().WriteFile("/mnt/x", []byte("x"), 0o644))
	must(t, c.Save(&buf, base))
	if buf.Len() != 1 {
		t.Errorf("%q", buf.Bytes())
	}
}

// TestRootOverlay mounts a directory at the root, with another mount below.
func TestRootOverlay(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	populate(t, dir)
	s, err := hostfs.Open(dir)
	must(t, err)
	w, err := hostfs.OpenWritable(work)
	must(t, err)
	f := vfs.New(vfs.Options{})
	must(t, f.Mount("/", s, vfs.MountOptions{Overlay: true}))
	must(t, f.Mount("/a/b", w, vfs.MountOptions{Owner: &vfs.Cred{UID: 7, GID: 8}}))
	v := f.Root()
	must(t, v.WriteFile("/a/b/made", []byte("x"), 0o600))
	must(t, v.WriteFile("/a/x", []byte("y"), 0o600))
	if b, err := os.ReadFile(filepath.Join(work, "made")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a/x")); err == nil {
		t.Error("the overlay wrote through")
	}
	if i, err := v.Stat("/a/b/made"); err != nil || i.UID != 7 || i.GID != 8 || i.Path != "/a/b/made" {
		t.Errorf("%+v, %v", i, err)
	}
	if err := v.RemoveAll("/a"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a directory with a mount in it: %v", err)
	}
	if m := f.Mounts(); len(m) != 2 || m[0].Path != "/" || m[1].Path != "/a/b" {
		t.Errorf("%+v", m)
	}
}

// TestWatch watches inside mounts.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	populate(t, dir)
	for kind, o := range map[string]vfs.MountOptions{"overlay": {Overlay: true}, "through": {}} {
		v := mounted(t, dir, o).Root()
		w, err := v.Watch("/mnt/a", true)
		must(t, err)
		must(t, v.WriteFile("/mnt/a/b/f", []byte("x"), 0))
		must(t, v.WriteFile("/mnt/a/d/"+kind[:1], []byte("x"), 0o644))
		must(t, v.Rename("/mnt/a/f", "/mnt/a/"+kind))
		must(t, v.Rename("/mnt/a/"+kind, "/mnt/a/f"))
		must(t, v.WriteFile("/mnt/e/f", []byte("x"), 0))
		must(t, w.Close())
		var got []string
		for c := range w.C() {
			got = append(got, c.Op.String()+" "+c.Path)
		}
		for _, want := range []string{"write /mnt/a/b/f", "create /mnt/a/d/" + kind[:1], "rename /mnt/a/f", "create /mnt/a/" + kind} {
			if !slices.Contains(got, want) {
				t.Errorf("%s: %q is not in %q", kind, want, got)
			}
		}
		if slices.Contains(got, "write /mnt/e/f") {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

// TestHugeDirectory lists a directory of many files.
func TestHugeDirectory(t *testing.T) {
	dir := t.TempDir()
	const n = 5000
	for i := range n {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644))
	}
	v := mounted(t, dir, vfs.MountOptions{Overlay: true}).Root()
	for i := 0; i < n; i += 10 {
		must(t, v.Remove(fmt.Sprint("/mnt/", i)))
	}
	l, err := v.ReadDir("/mnt")
	if err != nil || len(l) != n-n/10 {
		t.Errorf("%d files, %v", len(l), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != n {
		t.Errorf("%d files are left below", len(left))
	}
}

package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

var user = vfs.Cred{UID: 1000, GID: 1000}

func TestPaths(t *testing.T) {
	v := vfs.New(vfs.Options{}).Root()
	must(t, v.MkdirAll("/a/b", 0o755))
	must(t, v.WriteFile("/a/b/f", []byte("text"), 0o644))
	must(t, v.Symlink("/a/b", "/abs"))
	must(t, v.Symlink("b/f", "/a/rel"))
	must(t, v.Symlink("loop", "/loop"))
	must(t, v.Symlink("nowhere", "/dangling"))
	for _, c := range []struct {
		path, want string
		err        error
	}{
		{"/a/b/f", "/a/b/f", nil}, {"/a/./b/../b/f", "/a/b/f", nil}, {"/../../a/b/f", "/a/b/f", nil}, {"//a//b//f", "/a/b/f", nil},
		{"/abs/f", "/a/b/f", nil}, {"/a/rel", "/a/b/f", nil}, {"/abs/../rel", "/a/b/f", nil}, {"/", "/", nil}, {"/abs/", "/a/b", nil},
		{"/a/b/f/", "", syscall.ENOTDIR}, {"/a/b/f/x", "", syscall.ENOTDIR}, {"/loop", "", syscall.ELOOP}, {"/dangling", "", syscall.ENOENT},
		{"/a/nope", "", syscall.ENOENT}, {"/nope/x", "", syscall.ENOENT}, {"/a\x00b", "", syscall.EINVAL},
		{"/" + strings.Repeat("x", 300), "", syscall.ENAMETOOLONG}, {strings.Repeat("/x", 3000), "", syscall.ENAMETOOLONG},
	} {
		got, err := v.EvalSymlinks(c.path)
		if c.err != nil {
			if !errors.Is(err, c.err) {
				t.Errorf("%.40s: %v, want %v", c.path, err, c.err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.path, got, err, c.want)
		}
	}
	must(t, v.WriteFile("/dangling", []byte("x"), 0o644)) // made where the link points
	if _, err := v.Stat("/nowhere"); err != nil {
		t.Error(err)
	}
}

func TestPermissions(t *testing.T) {
	f := vfs.New(vfs.Options{})
	root, u := f.Root(), f.As(user)
	must(t, root.Mkdir("/secret", 0o700))
	must(t, root.WriteFile("/secret/f", []byte("s"), 0o644))
	must(t, root.Mkdir("/home", 0o777))
	must(t, root.Mkdir("/tmp", fs.ModeSticky|0o777))
	must(t, root.WriteFile("/tmp/roots", nil, 0o666))
	must(t, root.WriteFile("/shared", []byte("r"), 0o644))
	must(t, u.WriteFile("/home/mine", []byte("m"), 0o600))
	for name, err := range map[string]error{
		"read below a closed directory": second(u.ReadFile("/secret/f")),
		"list a closed directory":       second(u.ReadDir("/secret")),
		"write a file of root's":        u.WriteFile("/shared", nil, 0),
		"make a file in /":              u.WriteFile("/x", nil, 0o644),
		"remove a file in /":            u.Remove("/shared"),
		"watch a closed directory":      second(u.Watch("/secret", true)),
	} {
		if !errors.Is(err, syscall.EACCES) {
			t.Errorf("%s gave %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"remove another's file in /tmp": u.Remove("/tmp/roots"),
		"move it":                       u.Rename("/tmp/roots", "/tmp/stolen"),
		"chmod a file of root's":        u.Chmod("/shared", 0o777),
		"give a file away":              u.Chown("/home/mine", 0, 0),
		"make a device":                 u.Device("/home/null", "null"),
	} {
		if !errors.Is(err, syscall.EPERM) {
			t.Errorf("%s gave %v", name, err)
		}
	}
	if b, err := root.ReadFile("/home/mine"); err != nil || string(b) != "m" {
		t.Errorf("root reads %q, %v", b, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestFiles(t *testing.T) {
	v := vfs.New(vfs.Options{}).Root()
	data := make([]byte, 200_001) // several blocks
	_, _ = rand.New(rand.NewSource(1)).Read(data)
	must(t, v.WriteFile("/f", data, 0o644))
	if b, err := v.ReadFile("/f"); err != nil || !bytes.Equal(b, data) {
		t.Errorf("%d bytes back, %v", len(b), err)
	}
	f, err := v.OpenFile("/f", vfs.ReadWrite, 0)
	must(t, err)
	if at, err := f.Seek(-1, io.SeekEnd); err != nil || at != 200_000 {
		t.Errorf("seek: %d, %v", at, err)
	}
	_, _ = f.Seek(100_000, io.SeekStart)
	must(t, second(f.Write([]byte("patch"))))
	copy(data[100_000:], "patch")
	must(t, f.Truncate(150_000))
	must(t, f.Truncate(300_000)) // a hole, not the old bytes
	must(t, v.Remove("/f"))      // an open file lives on
	_, _ = f.Seek(0, io.SeekStart)
	b, err := io.ReadAll(f)
	if want := append(data[:150_000:150_000], make([]byte, 150_000)...); err != nil || !bytes.Equal(b, want) {
		t.Errorf("after truncating: %d bytes, %v", len(b), err)
	}
	must(t, f.Close())
	must(t, f.Close())
	if _, err := f.Read(b); !errors.Is(err, syscall.EBADF) {
		t.Errorf("reading a closed file gave %v", err)
	}
	a, err := v.OpenFile("/log", vfs.WriteOnly|vfs.CreateNew|vfs.Append, 0o644)
	must(t, err)
	must(t, second(a.Write([]byte("one\n"))))
	_, _ = a.Seek(0, io.SeekStart)
	must(t, second(a.Write([]byte("two\n"))))
	if b, _ := v.ReadFile("/log"); string(b) != "one\ntwo\n" {
		t.Errorf("appended: %q", b)
	}
	must(t, v.Link("/log", "/again"))
	if i, _ := v.Stat("/again"); i.Links != 2 {
		t.Errorf("%d links", i.Links)
	}
}

func TestRename(t *testing.T) {
	v := vfs.New(vfs.Options{}).Root()
	must(t, v.MkdirAll("/d/e", 0o755))
	must(t, v.Mkdir("/empty", 0o755))
	must(t, v.WriteFile("/f", []byte("f"), 0o644))
	must(t, v.WriteFile("/g", []byte("g"), 0o644))
	for _, c := range []struct {
		from, to string
		err      error
	}{
		{"/d", "/d/e/x", syscall.EINVAL}, {"/d", "/f", syscall.ENOTDIR}, {"/f", "/d", syscall.EISDIR}, {"/empty", "/d", syscall.ENOTEMPTY},
		{"/nope", "/x", syscall.ENOENT}, {"/f", "/nope/x", syscall.ENOENT}, {"/", "/x", syscall.EBUSY},
		{"/f", "/g", nil}, {"/d", "/empty", nil}, {"/empty", "/moved", nil},
	} {
		if err := v.Rename(c.from, c.to); !errors.Is(err, c.err) {
			t.Errorf("%s to %s: %v, want %v", c.from, c.to, err, c.err)
		}
	}
	if b, _ := v.ReadFile("/g"); string(b) != "f" {
		t.Errorf("replaced by %q", b)
	}
	if p, err := v.EvalSymlinks("/moved/e"); err != nil || p != "/moved/e" {
		t.Errorf("%q, %v", p, err)
	}
}

func TestQuota(t *testing.T) {
	f := vfs.New(vfs.Options{Quota: 1 << 20})
	v := f.Root()
	err := v.WriteFile("/big", make([]byte, 2<<20), 0o644)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("two megabytes into one gave %v", err)
	}
	if i, _ := v.Stat("/big"); i.Size == 0 || i.Size > 1<<20 {
		t.Errorf("%d bytes were written", i.Size)
	}
	must(t, v.Remove("/big"))
	if used, _ := f.Usage(); used != 0 {
		t.Errorf("%d bytes stay used", used)
	}
	n := 0
	for ; err == nil || n == 0; n++ {
		err = v.WriteFile(fmt.Sprintf("/f%d", n), nil, 0o644)
	}
	if !errors.Is(err, syscall.ENOSPC) || n > 3000 {
		t.Errorf("%d empty files, %v", n, err)
	}
	// A removed file that is still open still counts.
	g := vfs.New(vfs.Options{Quota: 1 << 20})
	open, err := g.Root().OpenFile("/x", vfs.WriteOnly|vfs.CreateNew, 0o600)
	must(t, err)
	must(t, second(open.Write(make([]byte, 900<<10))))
	must(t, g.Root().Remove("/x"))
	if err := g.Root().WriteFile("/y", make([]byte, 900<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("an unlinked file freed its bytes while open: %v", err)
	}
	must(t, open.Close())
	must(t, g.Root().WriteFile("/y", make([]byte, 900<<10), 0o600))
}

func TestClone(t *testing.T) {
	f := vfs.New(vfs.Options{})
	must(t, f.Root().MkdirAll("/d", 0o755))
	must(t, f.Root().WriteFile("/d/f", []byte("original"), 0o644))
	must(t, f.Root().Link("/d/f", "/hard"))
	c := f.Clone(vfs.Options{Quota: 4096})
	must(t, c.Root().WriteFile("/d/f", []byte("copy"), 0o644))
	must(t, f.Root().WriteFile("/d/new", nil, 0o644))
	for _, x := range []struct {
		fs         *vfs.FS
		name, want string
	}{{f, "/d/f", "original"}, {f, "/hard", "original"}, {c, "/d/f", "copy"}, {c, "/hard", "copy"}} {
		if b, err := x.fs.Root().ReadFile(x.name); err != nil || string(b) != x.want {
			t.Errorf("%s: %q, %v, want %q", x.name, b, err, x.want)
		}
	}
	if _, err := c.Root().Stat("/d/new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the copy sees a later file: %v", err)
	}
	// A write in the middle of a shared block copies it.
	d := f.Clone(vfs.Options{})
	w, err := d.Root().OpenFile("/hard", vfs.WriteOnly, 0)
	must(t, err)
	must(t, second(w.Write([]byte("ORI"))))
	if a, _ := f.Root().ReadFile("/d/f"); string(a) != "original" {
		t.Errorf("the original became %q", a)
	}
	if b, _ := d.Root().ReadFile("/d/f"); string(b) != "ORIginal" {
		t.Errorf("the copy is %q", b)
	}
}

func TestWatch(t *testing.T) {
	v := vfs.New(vfs.Options{}).Root()
	must(t, v.Mkdir("/w", 0o755))
	deep, err := v.Watch("/w", true)
	must(t, err)
	flat, err := v.Watch("/w", false)
	must(t, err)
	must(t, v.WriteFile("/w/f", []byte("x"), 0o644))
	must(t, v.Mkdir("/w/d", 0o755))
	must(t, v.WriteFile("/w/d/g", nil, 0o644))
	must(t, v.Rename("/w/f", "/w/d/h"))
	must(t, v.Chmod("/w/d/h", 0o600))
	must(t, v.RemoveAll("/w/d"))
	must(t, v.WriteFile("/elsewhere", nil, 0o644))
	must(t, deep.Close())
	must(t, flat.Close())
	list := func(w *vfs.Watch) string {
		var out []string
		for c := range w.C() {
			out = append(out, c.Op.String()+" "+c.Path)
		}
		return strings.Join(out, ", ")
	}
	got := list(flat)
	if want := "create /w/f, write /w/f, create /w/d, rename /w/f, remove /w/d"; got != want {
		t.Errorf("flat: %s\nwant: %s", got, want)
	}
	got = list(deep)
	for _, want := range []string{"create /w/f, write /w/f, create /w/d, create /w/d/g, rename /w/f, create /w/d/h, chmod /w/d/h, remove", "remove /w/d/g", "remove /w/d/h", "remove /w/d"} {
		if !strings.Contains(got, want) {
			t.Errorf("deep lacks %q: %s", want, got)
		}
	}
	slow, err := v.Watch("/", true)
	must(t, err)
	for range 5000 {
		must(t, v.WriteFile("/elsewhere", []byte("x"), 0o644))
	}
	if !errors.Is(slow.Err(), vfs.ErrOverflow) {
		t.Errorf("a watch nobody reads ended with %v", slow.Err())
	}
}

// TestHammer does all operations at once. The race detector must report nothing.
func TestHammer(t *testing.T) {
	f := vfs.New(vfs.Options{Quota: 8 << 20})
	must(t, f.Root().Mkdir("/h", 0o777))
	w, err := f.Root().Watch("/", true)
	must(t, err)
	var wg sync.WaitGroup
	stop := time.Now().Add(300 * time.Millisecond)
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewSource(int64(g)))
			v := f.As(vfs.Cred{UID: uint32(g % 2 * 1000)})
			name := func() string { return fmt.Sprintf("/h/%d", rnd.Intn(6)) }
			for time.Now().Before(stop) {
				switch rnd.Intn(10) {
				case 0:
					_ = v.Mkdir(name(), 0o777)
				case 1:
					_ = v.Rename(name(), name()+"/x")
				case 2:
					_ = v.RemoveAll(name())
				case 3:
					_, _ = v.ReadDir("/h")
				case 4:
					_ = f.Clone(vfs.Options{}).Root().WriteFile(name(), []byte("c"), 0o666)
				case 5:
					_ = v.Symlink(name(), name())
				case 6:
					_, _ = v.ReadFile(name())
				case 7:
					_ = v.SetAttrs(name(), map[string]string{"a": "b"})
				default:
					if h, err := v.OpenFile(name(), vfs.ReadWrite|vfs.CreateNew, 0o666); err == nil {
						_, _ = h.Write(make([]byte, rnd.Intn(100_000)))
						_ = h.Truncate(int64(rnd.Intn(50_000)))
						_ = h.Close()
					}
				}
			}
		})
	}
	wg.Wait()
	must(t, w.Close())
	must(t, f.Root().RemoveAll("/h"))
	if used, _ := f.Usage(); used != 0 {
		t.Errorf("%d bytes stay used when all files are gone", used)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

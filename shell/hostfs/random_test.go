package hostfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// tree describes everything below a directory.
func tree(t testing.TB, f *vfs.FS, top string) map[string]string {
	t.Helper()
	v, out := f.Root(), map[string]string{}
	for todo := []string{top}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		list, err := v.ReadDir(p)
		must(t, err)
		for _, e := range list {
			i, err := v.Lstat(e.Path)
			must(t, err)
			if i.Ino != e.Ino || i.Mode != e.Mode || i.Size != e.Size {
				t.Errorf("%s is %+v in its directory and %+v alone", e.Path, e, i)
			}
			text := i.Mode.String()
			switch {
			case i.Mode.IsDir():
				todo = append(todo, i.Path)
			case i.Mode.IsRegular():
				data, err := v.ReadFile(i.Path)
				if err != nil {
					text += err.Error()
				}
				text += fmt.Sprintf(" %d %.20q", i.Size, data)
				if int64(len(data)) != i.Size {
					t.Errorf("%s has %d bytes and says %d", i.Path, len(data), i.Size)
				}
				text += fmt.Sprint(" ", sum(data))
			default:
				text += " " + i.Target
			}
			out[strings.TrimPrefix(i.Path, top)] = text
		}
	}
	return out
}

func sum(b []byte) (n uint32) {
	for _, c := range b {
		n = n*31 + uint32(c)
	}
	return n
}

func compare(t testing.TB, got, want map[string]string) {
	t.Helper()
	for p := range want {
		if got[p] != want[p] {
			t.Errorf("%s is %q, want %q", p, got[p], want[p])
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%s should not be there: %q", p, got[p])
		}
	}
}

// change does one random operation below /mnt and returns its result.
func change(r *rand.Rand, f *vfs.FS) string {
	v := f.Root()
	pick := func() string {
		dirs := []string{"", "/a", "/a/b", "/a/b/c", "/a/d", "/e", "/empty", "/x", "/x/y", "/a/x"}
		names := []string{"f", "g", "b", "c", "d", "x", "y", "a", "e"}
		return "/mnt" + dirs[r.Intn(len(dirs))] + "/" + names[r.Intn(len(names))]
	}
	p, q := pick(), pick()
	var err error
	var what string
	switch r.Intn(12) {
	case 0:
		what, err = "write "+p, v.WriteFile(p, bytes.Repeat([]byte{byte(r.Intn(256))}, r.Intn(80_000)), 0o640)
	case 1:
		what, err = "remove "+p, v.Remove(p)
	case 2:
		if r.Intn(3) > 0 {
			return ""
		}
		what, err = "remove all "+p, v.RemoveAll(p)
	case 3:
		what, err = "mkdir "+p, v.Mkdir(p, 0o750)
	case 4:
		what, err = "symlink "+p, v.Symlink("target", p)
	case 5, 6, 7:
		what, err = "rename "+p+" "+q, v.Rename(p, q)
	case 8:
		what, err = "chmod "+p, v.Chmod(p, fs.FileMode(0o600+r.Intn(0o200)))
	case 9:
		var h *vfs.File
		what = "patch " + p
		if h, err = v.OpenFile(p, vfs.ReadWrite, 0); err == nil {
			_, _ = h.Seek(r.Int63n(60_000), io.SeekStart)
			_, err = h.Write(bytes.Repeat([]byte("patch"), r.Intn(9000)))
			_ = h.Close()
		}
	case 10:
		var h *vfs.File
		what = "truncate " + p
		if h, err = v.OpenFile(p, vfs.WriteOnly, 0); err == nil {
			err = h.Truncate(r.Int63n(60_000))
			_ = h.Close()
		}
	case 11:
		var h *vfs.File
		what = "append " + p
		if h, err = v.OpenFile(p, vfs.WriteOnly|vfs.CreateNew|vfs.Append, 0o600); err == nil {
			_, err = h.Write([]byte("appended"))
			_ = h.Close()
		}
	}
	var no syscall.Errno
	errors.As(err, &no)
	return fmt.Sprint(what, ": ", no)
}

// plain copies a mounted tree into a filesystem without mounts.
func plain(t testing.TB, from *vfs.FS) *vfs.FS {
	f := vfs.New(vfs.Options{})
	v, src := f.Root(), from.Root()
	must(t, v.Mkdir("/mnt", 0o755))
	for todo := []string{"/mnt"}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		list, err := src.ReadDir(p)
		must(t, err)
		for _, i := range list {
			switch {
			case i.Mode.IsDir():
				must(t, v.Mkdir(i.Path, i.Mode))
				todo = append(todo, i.Path)
			case i.Mode&fs.ModeSymlink != 0:
				must(t, v.Symlink(i.Target, i.Path))
			default:
				data, err := src.ReadFile(i.Path)
				must(t, err)
				must(t, v.WriteFile(i.Path, data, i.Mode))
			}
		}
	}
	return f
}

// TestMountsRandom does the same random operations on an overlay, on a real directory and on a
// filesystem without mounts. All must give the same results and have the same content. Copies of
// the overlay must not change, and the directory under the overlay must not change.
func TestMountsRandom(t *testing.T) {
	rounds := int64(40)
	if testing.Short() {
		rounds = 8
	}
	for seed := range rounds {
		below, real := t.TempDir(), t.TempDir()
		populate(t, below)
		populate(t, real)
		over := mounted(t, below, vfs.MountOptions{Overlay: true})
		through := mounted(t, real, vfs.MountOptions{})
		want := plain(t, over)
		begin := tree(t, over, "/mnt")
		var copies []*vfs.FS
		var copied []map[string]string
		for i := range 120 {
			// The same choices for each.
			n := seed*1000 + int64(i)
			w := change(rand.New(rand.NewSource(n)), want)
			for name, f := range map[string]*vfs.FS{"overlay": over, "directory": through} {
				if g := change(rand.New(rand.NewSource(n)), f); g != w {
					t.Errorf("seed %d, step %d: %s in the %s, %s wanted", seed, i, g, name, w)
				}
			}
			if i%40 == 20 {
				c := over.Clone(vfs.Options{})
				copies, copied = append(copies, c), append(copied, tree(t, c, "/mnt"))
			}
			if t.Failed() {
				return
			}
		}
		model := tree(t, want, "/mnt")
		compare(t, tree(t, over, "/mnt"), model)
		compare(t, tree(t, through, "/mnt"), model)
		for i, c := range copies {
			compare(t, tree(t, c, "/mnt"), copied[i])
		}
		untouched := mounted(t, below, vfs.MountOptions{ReadOnly: true})
		compare(t, tree(t, untouched, "/mnt"), begin)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// BenchmarkOverlay opens, reads and closes a small file of a directory below an overlay.
func BenchmarkOverlay(b *testing.B) {
	dir := b.TempDir()
	populate(b, dir)
	v := mounted(b, dir, vfs.MountOptions{Overlay: true}).Root()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.ReadFile("/mnt/a/b/c/f"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOverlayRead reads ten megabytes through an overlay.
func BenchmarkOverlayRead(b *testing.B) {
	dir := b.TempDir()
	must(b, os.WriteFile(filepath.Join(dir, "f"), make([]byte, 10<<20), 0o644))
	v := mounted(b, dir, vfs.MountOptions{Overlay: true}).Root()
	b.SetBytes(10 << 20)
	for b.Loop() {
		h, err := v.Open("/mnt/f")
		must(b, err)
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{h}, make([]byte, 64<<10))
		if n != 10<<20 || err != nil {
			b.Fatal(n, err)
		}
		must(b, h.Close())
	}
}

package vfs_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// deltaBase is a template with one file of each kind. Two of the files have several names.
func deltaBase(t testing.TB) *vfs.FS {
	f := vfs.New(vfs.Options{Now: func() time.Time { return time.Unix(1e9, 5) }})
	v := f.Root()
	must(t, v.MkdirAll("/bin/sub/deep", 0o755))
	must(t, v.MkdirAll("/tmp", 0o777))
	for i := range 20 {
		must(t, v.WriteFile(fmt.Sprintf("/bin/tool%d", i), []byte(fmt.Sprint("tool ", i)), 0o755))
	}
	must(t, v.Link("/bin/tool1", "/bin/same1"))
	must(t, v.Link("/bin/tool2", "/bin/sub/same2"))
	must(t, v.Symlink("tool3", "/bin/link"))
	must(t, v.Device("/null", "null"))
	must(t, v.WriteFile("/bin/big", bytes.Repeat([]byte("0123456789"), 10_000), 0o644))
	return f
}

// dump describes a whole filesystem. It describes a file with several names at its first name.
func dump(t testing.TB, f *vfs.FS) map[string]string {
	t.Helper()
	v, out, first := f.Root(), map[string]string{}, map[uint64]string{}
	for todo := []string{"/"}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		i, err := v.Lstat(p)
		must(t, err)
		text := fmt.Sprint(i.Mode, i.UID, i.GID, i.Modified.UnixNano(), i.Size, i.Target, " ", i.Links)
		if i.Mode.IsRegular() {
			data, err := v.ReadFile(p)
			must(t, err)
			text += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		if i.Mode&fs.ModeSymlink == 0 {
			attrs, err := v.Attrs(p)
			must(t, err)
			text += fmt.Sprint(attrs)
		}
		if i.Mode.IsDir() {
			list, err := v.ReadDir(p)
			must(t, err)
			for k := len(list) - 1; k >= 0; k-- {
				todo = append(todo, strings.TrimSuffix(p, "/")+"/"+list[k].Name)
			}
		} else if i.Links > 1 {
			if first[i.Ino] == "" {
				first[i.Ino] = p
			}
			text += " as " + first[i.Ino]
		}
		out[p] = text
	}
	return out
}

// wantSameFS compares two filesystems.
func wantSameFS(t testing.TB, got, want *vfs.FS) {
	t.Helper()
	g, w := dump(t, got), dump(t, want)
	for p := range w {
		if g[p] != w[p] {
			t.Errorf("%q is %.200q, want %.200q", p, g[p], w[p])
		}
	}
	for p := range g {
		if _, ok := w[p]; !ok {
			t.Errorf("%q should not be there: %.100q", p, g[p])
		}
	}
}

// save is Save into memory.
func save(t testing.TB, f, base *vfs.FS) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, f.Save(&b, base))
	return b.Bytes()
}

// roundTrip saves a filesystem, loads and compares it, and saves the result. Both saves must give
// the same bytes.
func roundTrip(t testing.TB, f, base *vfs.FS, quota int64) *vfs.FS {
	t.Helper()
	enc := save(t, f, base)
	g, err := vfs.Load(bytes.NewReader(enc), base, vfs.Options{Quota: quota})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	wantSameFS(t, g, f)
	if again := save(t, g, base); !bytes.Equal(again, enc) {
		t.Errorf("saved again it is %d bytes, was %d, or they differ", len(again), len(enc))
	}
	return g
}

func TestDeltaOfNothing(t *testing.T) {
	base := deltaBase(t)
	f := base.Clone(vfs.Options{})
	if b := save(t, f, base); len(b) != 1 {
		t.Errorf("nothing changed, and that is %d bytes", len(b))
	}
	roundTrip(t, f, base, 0)
	if _, err := f.Delta(base).Next(); err != io.EOF {
		t.Errorf("a difference where there is none: %v", err)
	}
}

// TestDeltaRandom changes a filesystem at random, saves and loads it, and compares the result.
func TestDeltaRandom(t *testing.T) {
	base := deltaBase(t)
	before := dump(t, base)
	for seed := range int64(100) {
		r := rand.New(rand.NewSource(seed))
		const quota = 8 << 20
		f := base.Clone(vfs.Options{Quota: quota})
		for gen := range 3 {
			for range r.Intn(60) {
				scramble(r, f)
			}
			f = roundTrip(t, f, base, quota)
			if t.Failed() {
				t.Fatalf("seed %d, generation %d", seed, gen)
			}
		}
	}
	after := dump(t, base)
	for p, s := range before {
		if after[p] != s {
			t.Errorf("the base's %s changed", p)
		}
	}
}

// scramble makes one random change. Errors are allowed.
func scramble(r *rand.Rand, f *vfs.FS) {
	v := f.Root()
	dirs := []string{"/bin", "/bin/sub", "/bin/sub/deep", "/tmp", "/tmp/x", "/tmp/x/y", "", "/new"}
	pick := func() string {
		names := []string{"tool1", "tool2", "tool3", "same1", "same2", "link", "big", "x", "y", "a\nb", "sub", "deep", "bin", "null"}
		return dirs[r.Intn(len(dirs))] + "/" + names[r.Intn(len(names))]
	}
	p := pick()
	switch r.Intn(14) {
	case 0:
		_ = v.WriteFile(p, bytes.Repeat([]byte{byte(r.Int())}, r.Intn(100_000)), fs.FileMode(r.Intn(0o1000)))
	case 1:
		_ = v.Remove(p)
	case 2:
		_ = v.RemoveAll(p)
	case 3, 4:
		_ = v.MkdirAll(p, 0o755)
	case 5:
		_ = v.Symlink(pick(), p)
	case 6, 7:
		_ = v.Link(p, pick())
	case 8:
		_ = v.Rename(p, pick())
	case 9:
		_ = v.Chmod(p, fs.FileMode(r.Intn(0o1000))|fs.ModeSetgid)
	case 10:
		_ = v.Chown(p, r.Uint32(), r.Uint32())
	case 11:
		_ = v.Chtimes(p, time.Unix(r.Int63n(4e9)-2e9, r.Int63n(1e9)))
	case 12:
		_ = v.SetAttrs(p, map[string]string{"k": fmt.Sprint(r.Int()), "\x00=": "v"})
	case 13:
		if h, err := v.OpenFile(p, vfs.WriteOnly|vfs.CreateNew, 0o600); err == nil {
			_, _ = h.Seek(r.Int63n(300_000), io.SeekStart)
			_, _ = h.Write([]byte("written somewhere"))
			_ = h.Truncate(r.Int63n(400_000))
			_ = h.Close()
		}
	}
}

func TestDeltaQuota(t *testing.T) {
	base := deltaBase(t)
	f := base.Clone(vfs.Options{Quota: 1 << 20})
	must(t, f.Root().WriteFile("/tmp/half", make([]byte, 500_000), 0o644))
	enc := save(t, f, base)
	used, _ := f.Usage()
	for _, q := range []int64{used, 1 << 20} {
		g, err := vfs.Load(bytes.NewReader(enc), base, vfs.Options{Quota: q})
		if err != nil {
			t.Fatalf("quota %d for %d used: %v", q, used, err)
		}
		if now, _ := g.Usage(); now != used {
			t.Errorf("%d bytes are used, were %d", now, used)
		}
		if err := g.Root().WriteFile("/tmp/more", make([]byte, 600_000), 0o644); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("over the quota: %v", err)
		}
	}
	if _, err := vfs.Load(bytes.NewReader(enc), base, vfs.Options{Quota: used - 1}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("with too small a quota: %v", err)
	}
}

// TestDeltaSparse checks that holes cost nothing, whatever their size.
func TestDeltaSparse(t *testing.T) {
	base := deltaBase(t)
	f := base.Clone(vfs.Options{Quota: 1 << 20})
	h, err := f.Root().OpenFile("/tmp/huge", vfs.WriteOnly|vfs.CreateNew, 0o644)
	must(t, err)
	must(t, h.Truncate(1<<40))
	must(t, h.Close())
	enc := save(t, f, base)
	if len(enc) > 200 {
		t.Errorf("a hole of a terabyte is %d bytes", len(enc))
	}
	g, err := vfs.Load(bytes.NewReader(enc), base, vfs.Options{Quota: 1 << 20})
	must(t, err)
	if i, err := g.Root().Stat("/tmp/huge"); err != nil || i.Size != 1<<40 {
		t.Errorf("%+v, %v", i, err)
	}
}

// TestDeltaIsOfItsMoment checks that a Delta does not see later writes.
func TestDeltaIsOfItsMoment(t *testing.T) {
	base := deltaBase(t)
	f := base.Clone(vfs.Options{})
	v := f.Root()
	must(t, v.WriteFile("/tmp/f", []byte("before"), 0o644))
	d := f.Delta(base)
	must(t, v.WriteFile("/tmp/f", []byte("after!"), 0o644))
	must(t, v.WriteFile("/tmp/g", nil, 0o644))
	var got []string
	for {
		x, err := d.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		text := x.Path
		for _, data := range x.Blocks() {
			text += "=" + string(data)
		}
		got = append(got, text)
	}
	if want := "[ tmp tmp/f=before]"; fmt.Sprint(got) != want {
		t.Errorf("%q, want %q", fmt.Sprint(got), want)
	}
}

// TestDeltaDeep moves deep directories, which makes paths that no program can name. Such files are
// kept, at a cost that does not grow with the path's length, but Next does not report them.
func TestDeltaDeep(t *testing.T) {
	base := vfs.New(vfs.Options{})
	f := base.Clone(vfs.Options{})
	v := f.Root()
	must(t, v.Mkdir("/0", 0o755))
	must(t, v.WriteFile("/0/file", []byte("deep"), 0o644))
	const n = 3000
	for i := range n {
		next := fmt.Sprintf("/%d-%s", i+1, strings.Repeat("x", 100))
		must(t, v.Mkdir(next, 0o755))
		list, err := v.ReadDir("/")
		must(t, err)
		for _, e := range list {
			if "/"+e.Name != next {
				must(t, v.Rename("/"+e.Name, next+"/d"))
			}
		}
	}
	enc := save(t, f, base)
	if len(enc) > n*200 {
		t.Errorf("%d directories are %d bytes", n, len(enc))
	}
	g, err := vfs.Load(bytes.NewReader(enc), base, vfs.Options{Quota: 64 << 20})
	must(t, err)
	if again := save(t, g, base); !bytes.Equal(again, enc) {
		t.Error("the second saving differs")
	}
	d := f.Delta(base)
	for err = nil; err == nil; {
		_, err = d.Next()
	}
	if !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("it ends with %v", err)
	}
}

// TestLoadRefuses loads encodings that Save does not write.
func TestLoadRefuses(t *testing.T) {
	base := deltaBase(t)
	const (
		root = "D\x00\xed\x83\x80\x80\x08\x00\x00\x00\x00\x00" // mode drwxr-xr-x, nothing else
		meta = "\xa4\x03\x00\x00\x00\x00\x00"                  // mode -rw-r--r--
		link = "\xff\x83\x80\x40\x00\x00\x00\x00\x00"
	)
	ok := root + "F\x01f" + meta + "\x00\x00" + "U" + "E"
	if _, err := vfs.Load(strings.NewReader(ok), base, vfs.Options{Quota: 1 << 20}); err != nil {
		t.Fatalf("the control: %v", err)
	}
	for name, enc := range map[string]string{
		"nothing":              "",
		"no root":              "E E",
		"ends early":           root,
		"ends in a name":       root + "F\x05ab",
		"goes on":              "Ex",
		"unknown step":         root + "Q\x01a",
		"leaves the root":      root + "UUE",
		"no end of directory":  root + "E",
		"two roots":            root + "F\x01f" + meta + "\x00\x00U" + root + "UE",
		"begins with a file":   "F\x01f" + meta + "\x00\x00E",
		"empty name":           root + "W\x00UE",
		"dot":                  root + "W\x01.UE",
		"dots":                 root + "F\x02.." + meta + "\x00\x00UE",
		"slash":                root + "F\x03a/b" + meta + "\x00\x00UE",
		"absolute":             root + "W\x02/aUE",
		"nul":                  root + "W\x02a\x00UE",
		"long name":            root + "W\x80\x02" + strings.Repeat("a", 256) + "UE",
		"twice":                root + "W\x01aW\x01aUE",
		"wrong order":          root + "W\x01bW\x01aUE",
		"directory as a file":  root + "F\x01f\xed\x83\x80\x80\x08\x00\x00\x00\x00\x00\x00\x00UE",
		"file as a directory":  root + "D\x01f" + meta + "UUE",
		"pipe":                 root + "F\x01f\xa4\x83\x80\x10\x00\x00\x00\x00\x00\x00\x00UE",
		"nanoseconds":          root + "F\x01f\xa4\x03\x00\x00\x00\x80\x94\xeb\xdc\x03\x00\x00\x00UE",
		"far future":           root + "F\x01f\xa4\x03\x00\x00\xff\xff\xff\xff\xff\x1f\x00\x00\x00\x00UE",
		"owner":                root + "F\x01f\xa4\x03\xff\xff\xff\xff\xff\x7f\x00\x00\x00\x00\x00\x00UE",
		"long number":          root + "F\x81\x00f" + meta + "\x00\x00UE",
		"endless number":       root + "F" + strings.Repeat("\xff", 20),
		"size":                 root + "F\x01f" + meta + "\xff\xff\xff\xff\xff\xff\x7f\x00UE",
		"contents after end":   root + "F\x01f" + meta + "\x02\x03\x00abc\x00UE",
		"large block":          root + "F\x01f" + meta + "\x80\x80\x10\x81\x80\x02\x00" + strings.Repeat("x", 32<<10+1) + "\x00UE",
		"contents missing":     root + "F\x01f" + meta + "\x05\x05\x00ab",
		"link to nothing":      root + "L\x01l" + link + "\x00UE",
		"link with nul":        root + "L\x01l" + link + "\x01\x00UE",
		"long link":            root + "L\x01l" + link + "\x80\x20" + strings.Repeat("a", 4096) + "UE",
		"no such file":         root + "H\x01h\x00UE",
		"later file":           root + "F\x01f" + meta + "\x00\x00H\x01h\x01UE",
		"strange device":       root + "C\x01d\xb6\x83\x80\x81\x02\x00\x00\x00\x00\x00\x03memUE",
		"many attributes":      root + "F\x01f\xa4\x03\x00\x00\x00\x00\xff\x7f\x00\x00UE",
		"attributes out order": root + "F\x01f\xa4\x03\x00\x00\x00\x00\x02\x01b\x00\x01a\x00\x00\x00UE",
	} {
		f, err := vfs.Load(strings.NewReader(enc), base, vfs.Options{Quota: 1 << 20})
		if !errors.Is(err, vfs.ErrFormat) || f != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The quota must stop a few bytes that ask for much memory.
	for name, enc := range map[string]string{
		"far block": root + "F\x01f" + meta + "\x80\x80\x80\x80\x80\x20\x01\xff\xff\xff\x0fx\x00UE",
	} {
		if _, err := vfs.Load(strings.NewReader(enc), base, vfs.Options{Quota: 1 << 20}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzLoad loads any bytes. A filesystem that Load accepts must be complete and within its quota.
// It must be the same after it is saved and loaded again.
func FuzzLoad(f *testing.F) {
	base := deltaBase(f)
	f.Add([]byte("E"))
	for seed := range int64(20) {
		r := rand.New(rand.NewSource(seed))
		c := base.Clone(vfs.Options{Quota: 1 << 16})
		for range 30 {
			scramble(r, c)
		}
		f.Add(save(f, c, base))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const quota = 1 << 20
		c, err := vfs.Load(bytes.NewReader(data), base, vfs.Options{Quota: quota})
		if err != nil {
			if !errors.Is(err, vfs.ErrFormat) && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		if used, _ := c.Usage(); used > quota {
			t.Errorf("%d bytes are used of %d", used, quota)
		}
		first := save(t, c, base)
		again, err := vfs.Load(bytes.NewReader(first), base, vfs.Options{Quota: quota})
		if err != nil {
			t.Fatalf("what was saved can't be loaded: %v", err)
		}
		if !bytes.Equal(save(t, again, base), first) {
			t.Error("saved twice it differs")
		}
		_ = c.Root().RemoveAll("/bin") // check that links and counts are consistent
		_ = c.Root().RemoveAll("/tmp")
	})
}

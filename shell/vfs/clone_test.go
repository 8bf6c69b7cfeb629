package vfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// model is the simplest form of a filesystem: a map from paths to files. A copy of the filesystem
// copies the whole map.
type model map[string]*thing

type thing struct {
	dir    bool
	target string
	data   []byte
	mode   fs.FileMode
}

func (m model) clone() model {
	c, seen := model{}, map[*thing]*thing{}
	for p, x := range m {
		if seen[x] == nil {
			y := *x
			y.data = slices.Clone(x.data)
			seen[x] = &y
		}
		c[p] = seen[x]
	}
	return c
}

func above(p string) string {
	if d := p[:strings.LastIndexByte(p, '/')]; d != "" {
		return d
	}
	return "/"
}

func (m model) holds(p string) bool {
	for q := range m {
		if strings.HasPrefix(q, p+"/") {
			return true
		}
	}
	return false
}

// canMake returns the error of making a new name.
func (m model) canMake(p string) error {
	d := m[above(p)]
	switch {
	case d == nil:
		return m.missing(above(p))
	case !d.dir:
		return syscall.ENOTDIR
	case m[p] != nil:
		return syscall.EEXIST
	}
	return nil
}

// missing returns the error of reading a missing file.
func (m model) missing(p string) error {
	for d := p; d != "/"; {
		d = above(d)
		if x := m[d]; x != nil {
			if !x.dir {
				return syscall.ENOTDIR
			}
			return syscall.ENOENT
		}
	}
	return syscall.ENOENT
}

func (m model) get(p string) (*thing, error) {
	if x := m[p]; x != nil {
		return x, nil
	}
	return nil, m.missing(p)
}

func (m model) rename(a, b string) error {
	x, err := m.get(a)
	if err != nil {
		return err
	}
	y := m[b]
	if y == nil {
		if err := m.canMake(b); err != nil {
			return err
		}
	}
	switch {
	case x.dir && (strings.HasPrefix(b, a+"/")):
		return syscall.EINVAL
	case y == x:
		return nil
	case y != nil && y.dir && !x.dir:
		return syscall.EISDIR
	case y != nil && !y.dir && x.dir:
		return syscall.ENOTDIR
	case y != nil && y.dir && m.holds(b):
		return syscall.ENOTEMPTY
	}
	m[b] = x
	delete(m, a)
	for p, z := range m.clonePaths() {
		if strings.HasPrefix(p, a+"/") {
			delete(m, p)
			m[b+p[len(a):]] = z
		}
	}
	return nil
}

func (m model) clonePaths() model {
	c := model{}
	for p, x := range m {
		c[p] = x
	}
	return c
}

// twin is a filesystem and its model, with files that are open in both.
type twin struct {
	fs   *vfs.FS
	m    model
	open []handle
}

type handle struct {
	f *vfs.File
	x *thing
}

func randomPath(r *rand.Rand) string {
	p := ""
	for range 1 + r.Intn(3) {
		p += "/" + string(rune('a'+r.Intn(5)))
	}
	return p
}

// step does one random operation on both and compares the answers.
func (w *twin) step(t *testing.T, r *rand.Rand) {
	v, m := w.fs.Root(), w.m
	p, q := randomPath(r), randomPath(r)
	var got, want error
	what := ""
	switch r.Intn(12) {
	case 0, 1:
		what = "mkdir " + p
		got = v.Mkdir(p, 0o755)
		if want = m.canMake(p); want == nil {
			m[p] = &thing{dir: true, mode: 0o755}
		}
	case 2, 3:
		what = "write " + p
		data := make([]byte, r.Intn(70_000))
		_, _ = r.Read(data)
		if r.Intn(2) == 0 {
			data = data[:r.Intn(len(data)+1)%100]
		}
		got = v.WriteFile(p, data, 0o644)
		x := m[p]
		switch {
		case x == nil:
			if want = m.canMake(p); want == nil {
				m[p] = &thing{data: data, mode: 0o644}
			}
		case x.dir:
			want = syscall.EISDIR
		case x.target != "":
			want = got // the model does not resolve paths
			if got == nil {
				return
			}
		default:
			x.data = data
		}
	case 4:
		what = "remove " + p
		got = v.Remove(p)
		x, err := m.get(p)
		if want = err; err == nil && x.dir && m.holds(p) {
			want = syscall.ENOTEMPTY
		}
		if want == nil {
			delete(m, p)
		}
	case 5:
		what = "remove all " + p
		got = v.RemoveAll(p)
		if _, err := m.get(p); err == syscall.ENOTDIR {
			want = err
			break
		}
		for o := range m.clonePaths() {
			if o == p || strings.HasPrefix(o, p+"/") {
				delete(m, o)
			}
		}
	case 6, 7:
		what = "rename " + p + " " + q
		got, want = v.Rename(p, q), m.rename(p, q)
	case 8:
		what = "link " + p + " " + q
		got = v.Link(p, q)
		x, err := m.get(p)
		if want = err; want == nil {
			want = m.canMake(q)
			if want != syscall.ENOENT && want != syscall.ENOTDIR && want != syscall.EEXIST && x.dir {
				want = syscall.EPERM
			}
		}
		if want == nil {
			m[q] = x
		}
	case 9:
		what = "chmod " + p
		mode := fs.FileMode(r.Intn(0o1000))
		got = v.Chmod(p, mode)
		var x *thing
		if x, want = m.get(p); want == nil {
			x.mode = mode
		}
	case 10:
		what = "open " + p
		var f *vfs.File
		f, got = v.OpenFile(p, vfs.ReadWrite, 0)
		x, err := m.get(p)
		if want = err; err == nil && x.dir {
			want = syscall.EISDIR
		}
		if got == nil {
			w.open = append(w.open, handle{f, x})
		}
	default:
		w.use(t, r)
		return
	}
	if !errors.Is(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// use does an operation on an open file. The file may have no name any more.
func (w *twin) use(t *testing.T, r *rand.Rand) {
	if len(w.open) == 0 {
		return
	}
	i := r.Intn(len(w.open))
	h := w.open[i]
	switch r.Intn(4) {
	case 0:
		must(t, h.f.Close())
		w.open = slices.Delete(w.open, i, i+1)
	case 1:
		size := r.Intn(80_000)
		must(t, h.f.Truncate(int64(size)))
		if size <= len(h.x.data) {
			h.x.data = slices.Clone(h.x.data[:size])
		} else {
			h.x.data = append(slices.Clone(h.x.data), make([]byte, size-len(h.x.data))...)
		}
	default:
		off, b := r.Intn(80_000), make([]byte, r.Intn(40_000))
		_, _ = r.Read(b)
		_, _ = h.f.Seek(int64(off), io.SeekStart)
		must(t, second(h.f.Write(b)))
		if len(b) == 0 {
			return
		}
		data := slices.Clone(h.x.data)
		if need := off + len(b); need > len(data) {
			data = append(data, make([]byte, need-len(data))...)
		}
		copy(data[off:], b)
		h.x.data = data
	}
	got := make([]byte, len(h.x.data))
	if i < len(w.open) && w.open[i] == h {
		if _, err := h.f.ReadAt(got, 0); err != nil && err != io.EOF || string(got) != string(h.x.data) {
			t.Fatalf("an open file differs: %v", err)
		}
	}
}

// check compares the whole content of both.
func (w *twin) check(t *testing.T) {
	t.Helper()
	v := w.fs.Root()
	names := map[*thing]int{}
	for _, x := range w.m {
		names[x]++
	}
	count := 0
	for todo := []string{"/"}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		list, err := v.ReadDir(dir)
		must(t, err)
		for _, i := range list {
			count++
			x := w.m[i.Path]
			if x == nil || x.dir != i.Mode.IsDir() || x.mode != i.Mode.Perm() {
				t.Fatalf("%s is %v, the model has %+v", i.Path, i.Mode, x)
			}
			if x.dir {
				todo = append(todo, i.Path)
				continue
			}
			data, err := v.ReadFile(i.Path)
			if err != nil || string(data) != string(x.data) || i.Links != names[x] || i.Size != int64(len(x.data)) {
				t.Fatalf("%s has %d bytes and %d names, the model %d and %d, %v", i.Path, len(data), i.Links, len(x.data), names[x], err)
			}
		}
	}
	if count != len(w.m)-1 {
		t.Fatalf("%d files, the model has %d", count, len(w.m)-1)
	}
}

// TestCloneRandom copies filesystems, and changes originals and copies at random. Each one must
// stay equal to its model, including its open files.
func TestCloneRandom(t *testing.T) {
	rounds := int64(60)
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		r := rand.New(rand.NewSource(seed))
		all := []*twin{{fs: vfs.New(vfs.Options{}), m: model{"/": {dir: true}}}}
		for i := range 600 {
			w := all[r.Intn(len(all))]
			w.step(t, r)
			if i%60 == 59 {
				c := &twin{fs: w.fs.Clone(vfs.Options{}), m: w.m.clone()}
				if len(all) < 5 {
					all = append(all, c)
				} else {
					all[r.Intn(len(all))] = c // the old one is dropped, with its open files
				}
				for _, w := range all {
					w.check(t)
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		for _, w := range all {
			for _, h := range w.open {
				must(t, h.f.Close())
			}
			w.check(t)
			must(t, errors.Join(v0(w.fs)...))
		}
	}
}

// v0 removes everything.
func v0(f *vfs.FS) (errs []error) {
	l, err := f.Root().ReadDir("/")
	errs = append(errs, err)
	for _, i := range l {
		errs = append(errs, f.Root().RemoveAll(i.Path))
	}
	return errs
}

// TestCloneHammer makes copies of copies from many goroutines that also write to all of them.
func TestCloneHammer(t *testing.T) {
	f := manyFiles(t, 200)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			mine := f
			for i := range 60 {
				mine = mine.Clone(vfs.Options{})
				v := mine.Root()
				name := fmt.Sprintf("/many/f%d", (g*31+i)%200)
				want := fmt.Sprint(g, " ", i)
				if err := v.WriteFile(name, []byte(want), 0o644); err != nil {
					t.Error(err)
				}
				if b, _ := v.ReadFile(name); string(b) != want {
					t.Errorf("%q, want %q", b, want)
				}
				_ = f.Root().WriteFile(fmt.Sprintf("/many/f%d", i), []byte{byte(g)}, 0o644)
				if i%20 == 19 {
					mine = f
				}
			}
		})
	}
	wg.Wait()
}

// TestIdleCopies checks that a copy takes little enough memory for ten thousand idle sandboxes.
func TestIdleCopies(t *testing.T) {
	f := manyFiles(t, 500)
	all := make([]*vfs.FS, 10_000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = f.Clone(vfs.Options{})
		must(t, all[i].Root().WriteFile("/tmp/f", []byte("hello"), 0o644))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / uint64(len(all))
	t.Logf("a copy with one file of its own takes %d bytes", each)
	if each > 4<<10 {
		t.Errorf("a copy with one file of its own takes %d bytes", each)
	}
	runtime.KeepAlive(all)
}

// TestLargeDirectory works in a directory of a hundred thousand files.
func TestLargeDirectory(t *testing.T) {
	const n = 100_000
	f := manyFiles(t, n)
	begin := time.Now()
	c := f.Clone(vfs.Options{})
	v := c.Root()
	for i := 0; i < n; i += 2 {
		must(t, v.Remove(fmt.Sprintf("/many/f%d", i)))
	}
	l, err := v.ReadDir("/many")
	must(t, err)
	if len(l) != n/2 || !slices.IsSortedFunc(l, func(a, b vfs.Info) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d files are left, or not in order", len(l))
	}
	must(t, v.RemoveAll("/many"))
	if l, err := f.Root().ReadDir("/many"); err != nil || len(l) != n {
		t.Errorf("the original has %d, %v", len(l), err)
	}
	if d := time.Since(begin); d > 5*time.Minute {
		t.Errorf("that took %v", d)
	}
}

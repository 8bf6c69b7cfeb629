package store_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goerofs "github.com/erofs/go-erofs"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/filler"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) {
	if reexec.Run(filler.Parts()) {
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, opts store.Options) *store.Store {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = filepath.Join(t.TempDir(), "templates")
	}
	s, err := store.Open(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 { // Close is idempotent
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// rootfs returns a tarball with one file.
func rootfs(t testing.TB, content string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func mustImport(t testing.TB, s *store.Store, name, content string) image.Image {
	t.Helper()
	img, err := s.Import(context.Background(), name, rootfs(t, content), nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// read reads a file out of an image.
func read(t testing.TB, path, name string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := fs.ReadFile(img, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func wantKind(t testing.TB, err error, kind carrel.Kind, field string) {
	t.Helper()
	var ce *carrel.Error
	if !errors.As(err, &ce) || ce.Kind != kind || ce.Field != field {
		t.Errorf("error %v: want kind %q of field %q", err, kind, field)
	}
}

func TestLife(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "templates")
	s := open(t, store.Options{Dir: dir, Host: smallHost(t)})
	img := mustImport(t, s, "app:latest", "one")
	if len(img.ID) != 20 || img.Name != "app" || img.Size == 0 || img.Created.IsZero() || img.BuiltIn || img.Source != "root filesystem" || img.User != "root" {
		t.Errorf("%+v", img)
	}
	if read(t, img.Path, "file") != "one" {
		t.Error("other contents")
	}
	if got, err := s.Get(ctx, img.ID); err != nil || got.ID != img.ID || got.Path != img.Path {
		t.Errorf("Get: %+v, %v", got, err)
	}
	if got, ok := s.ByID(img.ID); !ok || got.Name != "app" {
		t.Errorf("ByID: %+v, %v", got, ok)
	}
	if got, ok := s.Named(carrel.DefaultProject, "app"); !ok || got.ID != img.ID {
		t.Errorf("Named: %+v, %v", got, ok)
	}
	for _, none := range [][2]string{{"other", "app"}, {carrel.DefaultProject, "app:latest"}, {carrel.DefaultProject, img.ID}, {"", "app"}} {
		if got, ok := s.Named(none[0], none[1]); ok {
			t.Errorf("%q of project %q: %+v", none[1], none[0], got)
		}
	}
	for id, name := range map[string]string{store.BaseID: "base", store.HostID: "host",
		store.SimID: "sim"} { // none is made by that
		byID, ok := s.ByID(id)
		named, also := s.Named("any", name)
		if !ok || !also || byID.Name != name || named.ID != id || !named.BuiltIn || named.Size != 0 {
			t.Errorf("%s: %+v %v, %+v %v", name, byID, ok, named, also)
		}
	}
	st, err := os.Stat(img.Path)
	if err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", st, err)
	}
	if st, err := os.Stat(filepath.Dir(img.Path)); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", st, err)
	}
	again := open(t, store.Options{Dir: dir, Host: smallHost(t)})
	if got, err := again.Get(ctx, img.ID); err != nil || got.Template.Digest != img.Digest || got.ID != img.ID || !got.Created.Equal(img.Created) {
		t.Errorf("opened again: %+v, %v", got, err)
	}
	list, err := s.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Name)
	}
	if got := strings.Join(names, " "); got != "app base host sim" {
		t.Errorf("List gave %q", got)
	}
	sim, err := s.Get(ctx, store.SimID)
	if err != nil || sim.Path != "" || sim.Tier != carrel.Sim || !sim.BuiltIn || len(sim.ID) != 20 || sim.ID != store.SimID || len(store.BaseID) != 20 {
		t.Errorf("%+v, %v", sim, err)
	}
	// A sandbox that has the image open can still read it.
	f, err := os.Open(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Delete(ctx, img.ID); err != nil {
		t.Fatal(err)
	}
	if fsys, err := goerofs.Open(f); err != nil {
		t.Error(err)
	} else if b, err := fs.ReadFile(fsys, "file"); err != nil || string(b) != "one" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Dir(img.Path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

func TestErrors(t *testing.T) {
	ctx := context.Background()
	s := open(t, store.Options{MaxBytes: 1000, MaxEntries: 10})
	img := mustImport(t, s, "app", "x")
	_, err := s.Get(ctx, "nope")
	wantKind(t, err, carrel.NotFound, "template")
	_, err = s.Get(ctx, "app") // it is no ID
	wantKind(t, err, carrel.NotFound, "template")
	wantKind(t, s.Delete(ctx, "nope"), carrel.NotFound, "template")
	for _, id := range []string{store.BaseID, store.HostID, store.SimID} {
		wantKind(t, s.Delete(ctx, id), carrel.Forbidden, "template")
		_, err = s.Update(ctx, id, carrel.TemplateUpdate{})
		wantKind(t, err, carrel.Forbidden, "template")
	}
	for _, name := range []string{"base", "sim", store.BaseID, store.HostID, store.SimID,
		"base:latest"} {
		_, err = s.Import(ctx, name, rootfs(t, "x"), nil)
		wantKind(t, err, carrel.Forbidden, "name")
	}
	for _, name := range []string{"", ":latest", "-x", ".x", "/x", "UPPER", "a b", "a\x00b", "ü", "a:v1", strings.Repeat("n", 64), strings.Repeat("n", 1<<16)} {
		_, err = s.Import(ctx, name, rootfs(t, "x"), nil)
		wantKind(t, err, carrel.Invalid, "name")
	}
	_, err = s.Import(ctx, img.ID, rootfs(t, "x"), nil)
	wantKind(t, err, carrel.AlreadyExists, "name")
	_, err = s.Import(ctx, "big", rootfs(t, strings.Repeat("x", 1001)), nil)
	wantKind(t, err, carrel.Exhausted, "MaxBytes")
	_, err = s.Import(ctx, "bad", strings.NewReader("no archive"), nil)
	wantKind(t, err, carrel.Invalid, "archive")
	_, err = s.ImportDir(ctx, "dir", filepath.Join(t.TempDir(), "missing"), nil)
	wantKind(t, err, carrel.Invalid, "dir")
	_, err = s.ImportDir(ctx, "dir", "/etc/passwd", nil)
	wantKind(t, err, carrel.Invalid, "dir")
	_, err = store.Open(ctx, store.Options{})
	wantKind(t, err, carrel.Invalid, "Dir")
	entries, err := os.ReadDir(filepath.Dir(filepath.Dir(img.Path)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != img.ID && !strings.HasPrefix(e.Name(), ".") {
			t.Errorf("a failed import left %s", e.Name())
		}
	}
}

func TestReplace(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	now := time.Now()
	s := open(t, store.Options{Dir: dir, Now: func() time.Time { now = now.Add(-time.Hour); return now }}) // a clock that goes back
	one := mustImport(t, s, "app", "one")
	two := mustImport(t, s, "app", "two")
	if one.ID == two.ID || one.Path == two.Path {
		t.Error("the same template")
	}
	if got, ok := s.Named(carrel.DefaultProject, "app"); !ok || got.ID != two.ID {
		t.Errorf("%+v, %v", got, ok)
	}
	if got, err := s.Get(ctx, one.ID); err != nil || read(t, got.Path, "file") != "one" {
		t.Errorf("the older one: %v", err)
	}
	if list, err := s.List(ctx); err != nil || len(list) != 4 {
		t.Errorf("%d templates, %v", len(list), err)
	}
	again := open(t, store.Options{Dir: dir})
	if got, ok := again.Named(carrel.DefaultProject, "app"); !ok || got.ID != two.ID {
		t.Errorf("after a restart: %+v, %v", got, ok)
	}
	_, err := again.Get(ctx, one.ID)
	wantKind(t, err, carrel.NotFound, "template")
	three := mustImport(t, again, "app", "three")
	if err := again.Delete(ctx, three.ID); err != nil {
		t.Fatal(err)
	}
	if got, ok := open(t, store.Options{Dir: dir}).Named(carrel.DefaultProject, "app"); ok {
		t.Errorf("an older one came back: %+v", got)
	}
}

// TestCrash opens the store on the files that a crash leaves at each step.
func TestCrash(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	good := mustImport(t, open(t, store.Options{Dir: dir}), "good", "x")
	id := func(c string) string { return filepath.Join(dir, strings.Repeat(c, 20)) }
	mkdir := func(d string, files map[string]string) {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(d, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	mkdir(id("a"), nil)
	mkdir(id("b"), map[string]string{"part-1": "x"})
	mkdir(id("c"), map[string]string{"image.erofs": "x"})
	mkdir(id("d"), map[string]string{"image.erofs": "x", ".template.json.1": "{}"})
	mkdir(id("e"), map[string]string{"template.json": `{"id":"` + strings.Repeat("e", 20) + `","name":"e"}`})
	mkdir(id("f"), map[string]string{"image.erofs": "x", "template.json": "{"})
	mkdir(id("g"), map[string]string{"image.erofs": "x", "template.json": `{"id":"other","name":"g"}`})
	mkdir(filepath.Join(dir, "not-ours"), map[string]string{"precious": "x"})
	mkdir(id("h"), map[string]string{"part-1": "x"}) // being made right now
	held, err := os.Open(id("h"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	s := open(t, store.Options{Dir: dir})
	for _, c := range strings.Split("abcdefg", "") {
		// A directory with a damaged manifest is no leftover: its image is kept for a person to
		// look at.
		kept := strings.Contains("fg", c)
		if _, err := os.Stat(filepath.Join(id(c), "image.erofs")); kept && err != nil {
			t.Errorf("damaged %s: %v", c, err)
		}
		if _, err := os.Stat(id(c)); !kept && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("leftover %s is still there", c)
		}
		_, err := s.Get(ctx, strings.Repeat(c, 20))
		wantKind(t, err, carrel.NotFound, "template")
	}
	for _, keep := range []string{id("h"), filepath.Join(dir, "not-ours", "precious"), good.Path} {
		if _, err := os.Stat(keep); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	if _, err := s.Get(ctx, good.ID); err != nil {
		t.Error(err)
	}
}

func TestHammer(t *testing.T) {
	ctx := context.Background()
	s := open(t, store.Options{Host: smallHost(t)})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 10 {
				name := fmt.Sprintf("t%d", (i+j)%4)
				switch (i + j) % 5 {
				case 0, 1:
					if _, err := s.Import(ctx, name, rootfs(t, name), nil); err != nil {
						t.Error(err)
					}
				case 2:
					if _, err := s.List(ctx); err != nil {
						t.Error(err)
					}
				case 3:
					t0, _ := s.Named(carrel.DefaultProject, name)
					if _, err := s.Get(ctx, t0.ID); err != nil && carrel.KindOf(err) != carrel.NotFound {
						t.Error(err)
					}
				case 4:
					t0, _ := s.Named(carrel.DefaultProject, name)
					if err := s.Delete(ctx, t0.ID); err != nil && carrel.KindOf(err) != carrel.NotFound {
						t.Error(err)
					}
					if _, err := s.Get(ctx, store.BaseID); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestGetWhileDeleted opens templates while they are deleted: each call finds one or finds none.
func TestGetWhileDeleted(t *testing.T) {
	ctx := context.Background()
	s := open(t, store.Options{})
	for range 40 {
		img := mustImport(t, s, "app", "x")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					_, err := s.Get(ctx, img.ID)
					if err == nil {
						continue
					}
					if carrel.KindOf(err) != carrel.NotFound {
						t.Errorf("get: %v", err)
					}
					return
				}
			})
		}
		if err := s.Delete(ctx, img.ID); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// TestDirectory imports a directory and compares both trees through the kernel.
func TestDirectory(t *testing.T) {
	src := t.TempDir()
	write := func(name, content string, perm fs.FileMode) {
		p := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, perm); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/tool", "#!/bin/sh", 0o4755)
	write("etc/hosts", "mine", 0o640)
	write("deep/er/file", strings.Repeat("long ", 10_000), 0o444)
	write("empty", "", 0o600)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Link(filepath.Join(src, "bin/tool"), filepath.Join(src, "bin/tool2")))
	must(os.Symlink("/etc/shadow", filepath.Join(src, "bin/link")))
	must(os.Symlink("../../../../../../etc", filepath.Join(src, "up")))
	must(syscall.Mkfifo(filepath.Join(src, "fifo"), 0o622))
	must(os.Chmod(filepath.Join(src, "deep"), 0o711|fs.ModeSetgid|fs.ModeSticky))
	if os.Getuid() == 0 {
		must(os.Chown(filepath.Join(src, "empty"), 1234, 99999))
	}
	must(os.Chtimes(filepath.Join(src, "deep/er/file"), time.Time{}, time.Unix(1_500_000_000, 42)))
	s := open(t, store.Options{})
	var last carrel.Progress
	img, err := s.ImportDir(context.Background(), "dir", src, func(p carrel.Progress) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	if last.Stage != image.StageWrite || img.Source != "directory: "+src {
		t.Errorf("%+v %q", last, img.Source)
	}
	mnt := t.TempDir()
	if out, err := exec.Command("mount", "-t", "erofs", "-o", "ro,loop", img.Path, mnt).CombinedOutput(); err != nil {
		testenv.Need(t, "mount", fmt.Errorf("%w: %s", err, out))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mnt, 0); err != nil {
			t.Error(err)
		}
	})
	compare(t, src, mnt)
}

// compare compares two trees as the kernel shows them.
func compare(t *testing.T, want, got string) {
	t.Helper()
	err := filepath.WalkDir(want, func(p string, _ fs.DirEntry, err error) error {
		if err != nil || p == want {
			return err
		}
		rel, err := filepath.Rel(want, p)
		if err != nil {
			return err
		}
		var a, b syscall.Stat_t
		if err := errors.Join(syscall.Lstat(p, &a), syscall.Lstat(filepath.Join(got, rel), &b)); err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		isDir := a.Mode&syscall.S_IFMT == syscall.S_IFDIR
		if a.Mode != b.Mode || a.Uid != b.Uid || a.Gid != b.Gid || a.Mtim != b.Mtim || a.Nlink != b.Nlink || a.Size != b.Size && !isDir {
			t.Errorf("%s: %+v, want %+v", rel, b, a)
		}
		switch a.Mode & syscall.S_IFMT {
		case syscall.S_IFREG:
			x, err := os.ReadFile(p)
			y, err2 := os.ReadFile(filepath.Join(got, rel))
			if err != nil || err2 != nil || !bytes.Equal(x, y) {
				t.Errorf("%s: other contents (%v, %v)", rel, err, err2)
			}
		case syscall.S_IFLNK:
			x, _ := os.Readlink(p)
			y, _ := os.Readlink(filepath.Join(got, rel))
			if x != y {
				t.Errorf("%s leads to %q, want %q", rel, y, x)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestConstantMemory imports a gigabyte, most of it zeros, and watches the heap.
func TestConstantMemory(t *testing.T) {
	const size = 1 << 30
	pr, pw := io.Pipe()
	go func() {
		w := tar.NewWriter(pw)
		err := w.WriteHeader(&tar.Header{Name: "big", Mode: 0o644, Size: size, Format: tar.FormatPAX})
		chunk := make([]byte, 1<<20)
		for i := 0; i < size>>20 && err == nil; i++ {
			chunk[7] = byte(i) // one block in 256 is not zero
			_, err = w.Write(chunk)
		}
		pw.CloseWithError(errors.Join(err, w.Close()))
	}()
	s := open(t, store.Options{})
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	start := time.Now()
	img, err := s.Import(context.Background(), "big", pr, func(carrel.Progress) {
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapInuse)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("1 GiB in %v, heap %d MB at most, %d KB on disk", time.Since(start).Round(time.Millisecond), peak>>20, img.Size>>10)
	if grown := int64(peak) - int64(before.HeapInuse); grown > 32<<20 {
		t.Errorf("the heap grew by %d MB", grown>>20)
	}
	if img.Size > 64<<20 {
		t.Errorf("takes %d MB on disk", img.Size>>20)
	}
}

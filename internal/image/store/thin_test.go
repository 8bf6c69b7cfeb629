package store_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// thinBase is the size of the base in these tests.
const thinBase = 16 << 20

// clock is a time that a test moves on. It also moves on by itself, so that no two templates are of
// one age.
type clock struct{ seconds, looks atomic.Int64 }

func (c *clock) now() time.Time {
	return time.Unix(1_800_000_000+c.seconds.Load(), c.looks.Add(1))
}

// later lets an hour pass.
func (c *clock) later() { c.seconds.Add(3600) }

// thinDir returns a directory on a file system that does not share blocks by itself.
func thinDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	a, err := os.Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(os.WriteFile(a.Name(), make([]byte, 4096), 0o600), a.Close())
	if out, err := exec.Command("cp", "--reflink=always", a.Name(), a.Name()+"2").CombinedOutput(); err == nil {
		testenv.Inapplicable(t, "templates here share blocks by themselves: "+string(out))
	}
	return filepath.Join(dir, "templates")
}

// openThin opens a store with a clock.
func openThin(t *testing.T, dir string, c *clock) *store.Store {
	t.Helper()
	return open(t, store.Options{Dir: dir, CacheDir: dir + "-cache", Now: c.now})
}

// thinAll makes all unused images thin, and returns how many.
func thinAll(t *testing.T, s *store.Store, c *clock) int {
	t.Helper()
	c.later()
	got, err := s.Thin(t.Context(), image.ThinOptions{Unused: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return len(got)
}

// diskUse returns the bytes that a directory takes. A file with several names counts once.
func diskUse(t *testing.T, dir string) (sum int64) {
	t.Helper()
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(name, &st)
		}
		if err == nil && !seen[st.Ino] {
			seen[st.Ino] = true
			sum += st.Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// imageOf gets a template and returns the bytes of its image.
func imageOf(t *testing.T, s *store.Store, id string) []byte {
	t.Helper()
	img, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// derive makes a template of another one and a megabyte of changes.
func derive(t *testing.T, s *store.Store, name string, base image.Image, seed int) image.Image {
	t.Helper()
	from, err := s.Get(t.Context(), base.ID)
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Compose(t.Context(), carrel.Template{Name: name, Project: carrel.DefaultProject},
		from.Path, changes(t, seed), nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// changes are a megabyte of random bytes, and other bytes in the file extra.
func changes(t *testing.T, seed int) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	big := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{2, byte(seed)}).Read(big)
	for name, content := range map[string][]byte{"big": big,
		"extra": fmt.Append(nil, "more of ", seed)} {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestThinTemplates makes ten templates of one base. Unused, they take little more than the base's
// space, on any file system. Used again, each has the image that it had.
func TestThinTemplates(t *testing.T) {
	c := &clock{}
	dir := thinDir(t)
	s := openThin(t, dir, c)
	base := importBase(t, s, "base16", thinBase, "extra")
	one := diskUse(t, dir)
	var all []image.Image
	var contents [][]byte
	for i := range 10 {
		all = append(all, derive(t, s, fmt.Sprint("t", i), base, i))
		contents = append(contents, imageOf(t, s, all[i].ID))
	}
	whole := diskUse(t, dir)
	if n := thinAll(t, s, c); n != 10 {
		t.Errorf("%d of 10 templates are thin", n)
	}
	thin := diskUse(t, dir)
	t.Logf("the base takes %d KB, it and ten templates %d KB, thin %d KB", one>>10, whole>>10, thin>>10)
	// Each has a megabyte of random bytes and its table of files.
	if thin > one+10*(11<<17) {
		t.Errorf("thin templates take %d KB, the base %d KB", thin>>10, one>>10)
	}
	if _, err := os.Stat(all[3].Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if thinAll(t, s, c) != 0 {
		t.Error("a thin template was made thin")
	}
	// The base may go, and another store may come.
	if err := errors.Join(s.Delete(t.Context(), base.ID), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = openThin(t, dir, c)
	var wg sync.WaitGroup
	for i := range all { // each by two at once
		for range 2 {
			wg.Go(func() {
				img, err := s.Get(t.Context(), all[i].ID)
				if err == nil {
					var got []byte
					if got, err = os.ReadFile(img.Path); err == nil && !bytes.Equal(got, contents[i]) {
						err = errors.New("other bytes")
					}
				}
				if err != nil {
					t.Error(i, err)
				}
			})
		}
	}
	wg.Wait()
	if left, err := filepath.Glob(filepath.Join(dir, "*", "part-*")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	if n := thinAll(t, s, c); n != 10 {
		t.Errorf("%d of 10 templates are thin again", n)
	}
}

// TestThinSpares shows which images stay whole: those that somebody uses, holds or has linked, the
// bases of others, and those that are like no other.
func TestThinSpares(t *testing.T) {
	c := &clock{}
	dir := thinDir(t)
	s := openThin(t, dir, c)
	base := importBase(t, s, "base16", thinBase, "extra")
	used, held := derive(t, s, "used", base, 1), derive(t, s, "held", base, 2)
	linked, other := derive(t, s, "linked", base, 3), derive(t, s, "other", base, 4)
	_, alone := importBig(t, s)
	release, ok := s.Hold(held.ID)
	if err := os.Link(linked.Path, filepath.Join(dir, ".root")); err != nil || !ok {
		t.Fatal(err, ok)
	}
	c.later()
	imageOf(t, s, used.ID)
	c.seconds.Add(1)
	if _, err := s.Thin(t.Context(), image.ThinOptions{Unused: time.Minute}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{base.Path, used.Path, held.Path, linked.Path, alone} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(other.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("other:", err)
	}
	release()
	if err := os.Remove(filepath.Join(dir, ".root")); err != nil {
		t.Fatal(err)
	}
	if n := thinAll(t, s, c); n != 3 {
		t.Errorf("%d instead of 3 became thin", n)
	}
	// With a budget, those used first go first.
	imageOf(t, s, used.ID)
	c.seconds.Add(10)
	imageOf(t, s, held.ID)
	c.seconds.Add(10)
	got, err := s.Thin(t.Context(), image.ThinOptions{Unused: time.Hour, Budget: 30 << 20,
		Young: 5 * time.Second})
	if err != nil || len(got) != 1 || got[0].ID != used.ID {
		t.Error(got, err)
	}
}

// TestThinTags gives a thin template another tag, and damages images and deltas.
func TestThinTags(t *testing.T) {
	c := &clock{}
	dir := thinDir(t)
	s := openThin(t, dir, c)
	base := importBase(t, s, "base16", thinBase, "extra")
	img := derive(t, s, "web", base, 1)
	content := imageOf(t, s, img.ID)
	early, err := s.Link(t.Context(), img.ID, carrel.Template{Name: "early", Project: img.Project})
	if err != nil || thinAll(t, s, c) != 1 {
		t.Fatal(err)
	}
	late, err := s.Link(t.Context(), img.ID, carrel.Template{Name: "late", Project: img.Project})
	if err != nil || late.Digest != img.Digest || late.Size != img.Size {
		t.Fatal(late, err)
	}
	if _, err := os.Stat(img.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a tag made the image whole:", err)
	}
	var inodes [3]syscall.Stat_t
	for i, m := range []image.Image{early, img, late} {
		if !bytes.Equal(imageOf(t, s, m.ID), content) {
			t.Error(m.Name, "has another image")
		}
		if err := syscall.Stat(m.Path, &inodes[i]); err != nil || inodes[i].Ino != inodes[0].Ino {
			t.Error(m.Name, "has a file of its own", err)
		}
	}
	if err := s.Delete(t.Context(), early.ID); err != nil {
		t.Fatal(err)
	}
	flipByte(t, img.Path, 5000, true) // in the first chunk, so the next Get sees it
	if !bytes.Equal(imageOf(t, s, img.ID), content) {
		t.Error("a damaged image was not made again")
	}
	if err := s.Delete(t.Context(), late.ID); err != nil || thinAll(t, s, c) != 1 {
		t.Fatal(err)
	}
	flipByte(t, filepath.Join(filepath.Dir(img.Path), "image.delta"), 20_000, true)
	if bad := s.CheckImages(t.Context(), 0); bad != 1 {
		t.Errorf("the check finds %d damaged templates", bad)
	}
	if _, err := s.Get(t.Context(), img.ID); carrel.KindOf(err) != carrel.Unavailable {
		t.Error(err)
	}
}

// TestThinKilled copies a store's directory, by links, at each step of a thinning and of its
// opposite: as a killed process leaves it. A store opened there has the whole template.
func TestThinKilled(t *testing.T) {
	c := &clock{}
	dir := thinDir(t)
	s := openThin(t, dir, c)
	base := importBase(t, s, "base16", thinBase, "extra")
	img := derive(t, s, "web", base, 1)
	content := imageOf(t, s, img.ID)
	hit := map[string]string{}
	for _, point := range store.ThinPoints {
		failpoint.Enable(point, func() error {
			to := dir + "-" + point
			hit[point] = to
			out, err := exec.Command("cp", "-al", dir, to).CombinedOutput()
			if err != nil {
				t.Error(string(out))
			}
			return err
		})
		defer failpoint.Disable(point)
	}
	if thinAll(t, s, c) != 1 || !bytes.Equal(imageOf(t, s, img.ID), content) {
		t.Error("it is not the same image")
	}
	for _, point := range store.ThinPoints {
		failpoint.Disable(point)
		if hit[point] == "" {
			t.Errorf("%s was not reached", point)
			continue
		}
		left := openThin(t, hit[point], c)
		if !bytes.Equal(imageOf(t, left, img.ID), content) {
			t.Error(point, ": another image")
		}
		if parts, err := filepath.Glob(filepath.Join(hit[point], "*", "part-*")); err != nil ||
			len(parts) > 0 {
			t.Error(point, parts, err)
		}
		thinAll(t, left, c)
		if !bytes.Equal(imageOf(t, left, img.ID), content) {
			t.Error(point, ": another image in the end")
		}
	}
}

// TestThinUse uses templates while they are made thin all the time. No Get may fail, and no file that
// it returns may be missing or wrong.
func TestThinUse(t *testing.T) {
	dir := thinDir(t)
	s := open(t, store.Options{Dir: dir, CacheDir: dir + "-cache"})
	base := importBase(t, s, "base16", 2<<20, "extra")
	var all []image.Image
	for i := range 3 {
		all = append(all, derive(t, s, fmt.Sprint("t", i), base, i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var made atomic.Int64
	gets := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			got, err := s.Thin(t.Context(), image.ThinOptions{})
			if made.Add(int64(len(got))); err != nil {
				t.Error(err)
			}
		}
	})
	// Uses follow each other so closely that an image seldom becomes thin between two of them.
	for begun := time.Now(); gets < 75 || made.Load() == 0 && time.Since(begun) < 30*time.Second; {
		for i, m := range all {
			if _, err := s.Get(t.Context(), m.ID); err != nil {
				t.Fatal(i, err)
			}
			release, ok := s.Hold(m.ID) // a test can't rely on being fast
			img, err := s.Get(t.Context(), m.ID)
			if err != nil || !ok {
				t.Fatal(i, err, ok)
			}
			if got := read(t, img.Path, "extra"); got != fmt.Sprint("more of ", i) {
				t.Fatal(i, got)
			}
			release()
			gets++
		}
	}
	cancel()
	wg.Wait()
	t.Logf("%d images became thin during %d uses", made.Load(), gets)
	if made.Load() == 0 {
		t.Error("nothing became thin")
	}
}

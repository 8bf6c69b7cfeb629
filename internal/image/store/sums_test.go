package store_test

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// importBig makes a template of several chunks, and returns its ID and the path of its image.
func importBig(t *testing.T, s *store.Store) (id, path string) {
	t.Helper()
	src := t.TempDir()
	big := make([]byte, 5<<20)
	_, _ = rand.Read(big)
	if err := os.WriteFile(filepath.Join(src, "big"), big, 0o644); err != nil {
		t.Fatal(err)
	}
	img, err := s.ImportDir(t.Context(), "big", src, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img.ID, img.Path
}

// flipByte changes one byte of a file. quietly keeps the file's times, as a fault of the disk does.
func flipByte(t *testing.T, path string, at int64, quietly bool) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if quietly {
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedTemplate damages a template's image. It must not be handed out.
func TestDamagedTemplate(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, path string)
		check  bool // only the check in the background finds it
	}{
		"written into": {func(t *testing.T, p string) { flipByte(t, p, 3<<20, false) }, false},
		"cut off":      {func(t *testing.T, p string) { must(t, os.Truncate(p, 2<<20)) }, false},
		"superblock":   {func(t *testing.T, p string) { flipByte(t, p, 1024, true) }, false},
		"faulty disk":  {func(t *testing.T, p string) { flipByte(t, p, 3<<20, true) }, true},
		"foreign sums": {func(t *testing.T, p string) { rewriteSums(t, p) }, false},
		"broken sums": {func(t *testing.T, p string) {
			must(t,
				os.Truncate(filepath.Join(filepath.Dir(p), "image.sums"), 20))
		}, false},
		"after a good read": {func(t *testing.T, p string) { flipByte(t, p, 4<<20, false) }, false},
	} {
		for _, again := range []bool{false, true} { // with the store that made it, and with the next one
			dir := t.TempDir()
			s := open(t, store.Options{Dir: dir})
			id, path := importBig(t, s)
			if name == "after a good read" {
				if _, err := s.Get(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			c.damage(t, path)
			if again {
				must(t, s.Close())
				s = open(t, store.Options{Dir: dir})
			} else if strings.HasSuffix(name, "sums") {
				continue // the store that made it has them in memory
			}
			_, err := s.Get(t.Context(), id)
			if c.check {
				if err != nil {
					t.Errorf("%s: before the check: %v", name, err)
				}
				if bad := s.CheckImages(t.Context(), 0); bad != 1 {
					t.Errorf("%s: %d damaged images", name, bad)
				}
				_, err = s.Get(t.Context(), id)
			}
			if carrel.KindOf(err) != carrel.Unavailable || !strings.Contains(err.Error(), "damaged") ||
				!strings.Contains(carrel.HintOf(err), "import") {
				t.Errorf("%s: %v, hint %q", name, err, carrel.HintOf(err))
			}
			if again, _ := importBig(t, s); again == id {
				t.Errorf("%s: it was not made again", name)
			}
			if bad := s.CheckImages(t.Context(), 0); bad > 1 {
				t.Errorf("%s: %d damaged images", name, bad)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rewriteSums puts the table of another image in the place of this image's.
func rewriteSums(t *testing.T, path string) {
	t.Helper()
	_, other := importBig(t, open(t, store.Options{Dir: t.TempDir()}))
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(other), "image.sums"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(filepath.Dir(path), "image.sums"), raw, fs.FileMode(0o644)))
}

// TestCopiedTemplate copies a whole store. Every file is another one then, and none is damaged.
func TestCopiedTemplate(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Options{Dir: dir})
	id, path := importBig(t, s)
	must(t, s.Close())
	to := t.TempDir()
	must(t, os.CopyFS(filepath.Join(to, id), os.DirFS(filepath.Dir(path))))
	s = open(t, store.Options{Dir: to})
	for range 2 {
		if _, err := s.Get(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if bad := s.CheckImages(t.Context(), 0); bad != 0 {
		t.Errorf("%d damaged images", bad)
	}
}

// TestDamagedHost damages the built-in template. It is made again, with the same content.
func TestDamagedHost(t *testing.T) {
	s := open(t, store.Options{Dir: t.TempDir(), CacheDir: t.TempDir(), Host: smallHost(t)})
	img, err := s.Get(t.Context(), store.HostID)
	must(t, err)
	whole, err := os.ReadFile(img.Path)
	must(t, err)
	for name, damage := range map[string]func(){
		"written into": func() { flipByte(t, img.Path, int64(len(whole)/2), false) },
		"faulty disk": func() {
			flipByte(t, img.Path, int64(len(whole)/2), true)
			if s.CheckImages(t.Context(), 0) != 1 {
				t.Error("the check found nothing")
			}
		},
		"cut off": func() { must(t, os.Truncate(img.Path, 4096)) },
	} {
		damage()
		again, err := s.Get(t.Context(), store.HostID)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := os.ReadFile(again.Path)
		must(t, err)
		if string(got) != string(whole) {
			t.Errorf("%s: the new base has another content", name)
		}
	}
	if bad := s.CheckImages(t.Context(), 0); bad != 0 {
		t.Errorf("%d damaged images", bad)
	}
}

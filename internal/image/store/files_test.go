package store_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/store"
)

func TestFiles(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "data/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "data/secret", Typeflag: tar.TypeReg, Mode: 0o600, Size: 4, Uid: 7, Gid: 70000},
		{Name: "data/same", Typeflag: tar.TypeLink, Linkname: "data/secret"},
		{Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "usr/bin/sudo", Typeflag: tar.TypeReg, Mode: 0o4755},
		{Name: "bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../../../../data"},
		{Name: "loop", Typeflag: tar.TypeSymlink, Linkname: "loop"},
		{Name: "latin-\xe9", Typeflag: tar.TypeReg, Mode: 0o644},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, "root"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, store.Options{})
	img, err := s.Import(t.Context(), "t", &b, nil)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Link(img.Path, link); err != nil {
		t.Fatal(err)
	}
	f, err := s.Files(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for range 2 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	for name, want := range map[string]fs.FileMode{".": fs.ModeDir | 0o755, "data/secret": 0o600, "data/same": 0o600,
		"usr/bin": fs.ModeDir | fs.ModeSticky | 0o777, "usr/bin/sudo": fs.ModeSetuid | 0o755, "latin-\xe9": 0o644} {
		if got, err := f.Lstat(name); err != nil || got.Mode != want {
			t.Errorf("%s: mode %v, %v, want %v", name, got.Mode, err, want)
		}
	}
	if got, err := f.Lstat("data/same"); err != nil || got.UID != 7 || got.GID != 70000 || got.Size != 4 {
		t.Errorf("another name of a file: %+v, %v", got, err)
	}
	if got, err := f.Lstat("bin"); err != nil || got.Mode&fs.ModeSymlink == 0 || got.Target != "usr/bin" {
		t.Errorf("a symbolic link: %+v, %v", got, err)
	}
	for _, name := range []string{"bin/sudo", "up/secret", "loop/x", "data/secret/x", "nope", "nope/x", "data/nope"} {
		if got, err := f.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %+v, %v, want that it is not there", name, got, err)
		}
		if _, err := f.List(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("list %s: %v", name, err)
		}
	}
	for _, name := range []string{"", "/data", "..", "../data", "data/../data", "data/", "./data"} {
		if _, err := f.Lstat(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	names, err := f.List("data")
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"same", "secret"}) {
		t.Errorf("list: %q, %v", names, err)
	}
	r, err := f.Open("data/same")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "root" {
		t.Errorf("content %q, %v", got, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"data", "bin", "up"} {
		if _, err := f.Open(name); err == nil {
			t.Errorf("%s was opened as a file", name)
		}
	}
}

func TestFilesOfNoImage(t *testing.T) {
	s := open(t, store.Options{})
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte(strings.Repeat("junk", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]carrel.Kind{junk: carrel.Invalid, junk + "x": carrel.NotFound, "relative": carrel.Invalid, filepath.Dir(junk): carrel.Invalid} {
		if _, err := s.Files(t.Context(), name); !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", name, err, kind)
		}
	}
}

package kept_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/kept"
)

// program is some content that compresses a little.
func program(t *testing.T) []byte {
	t.Helper()
	b := make([]byte, 300<<10)
	if _, err := rand.Read(b[:100<<10]); err != nil {
		t.Fatal(err)
	}
	return b
}

func open(t *testing.T) (*kept.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "kernels")
	s, err := kept.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// unpacked reads a kept program, which must be a file that the kernel would execute.
func unpacked(t *testing.T, s *kept.Store, name string) []byte {
	t.Helper()
	f, err := s.Unpack(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || fi.Mode().Perm() != 0o555 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestKeepAndUnpack(t *testing.T) {
	s, dir := open(t)
	a := program(t)
	for range 2 { // the second is there already
		if err := s.Keep(kept.Facts{Name: "a", Version: "1", Control: 3},
			bytes.NewReader(a)); err != nil {
			t.Fatal(err)
		}
	}
	if got := unpacked(t, s, "a"); !bytes.Equal(got, a) {
		t.Error("another program came back")
	}
	f, err := s.Get("a")
	if err != nil || f.Version != "1" || f.Control != 3 || f.Size != int64(len(a)) {
		t.Errorf("%+v, %v", f, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files, one for each build", len(files))
	}
	if _, err := s.Get("b"); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("a build that is not kept: %v", err)
	}
	if err := s.Drop("a"); err != nil || s.Has("a") {
		t.Errorf("drop: %v", err)
	}
	if err := s.Drop("a"); err != nil {
		t.Errorf("drop again: %v", err)
	}
}

func TestImportTakesOnlyWhatExportGave(t *testing.T) {
	s, _ := open(t)
	a := program(t)
	if err := s.Keep(kept.Facts{Name: "a"}, bytes.NewReader(a)); err != nil {
		t.Fatal(err)
	}
	r, size, err := s.Export("a")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	r.Close()
	if err != nil || int64(len(raw)) != size {
		t.Fatalf("%d of %d bytes, %v", len(raw), size, err)
	}
	other, dir := open(t)
	bad := bytes.Clone(raw)
	bad[len(bad)-100] ^= 1
	for what, text := range map[string][]byte{"damaged": bad, "cut off": raw[:len(raw)/2],
		"empty": nil, "text": []byte("{}\n")} {
		if err := other.Import("a", bytes.NewReader(text)); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := other.Import("b", bytes.NewReader(raw)); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("under another name: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("refused imports left %d files", len(files))
	}
	if err := other.Import("a", bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	if got := unpacked(t, other, "a"); !bytes.Equal(got, a) {
		t.Error("another program came back")
	}
	list, err := other.List()
	if err != nil || len(list) != 1 || list[0].Name != "a" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestDamageOnDiskIsFound(t *testing.T) {
	s, dir := open(t)
	if err := s.Keep(kept.Facts{Name: "a"}, bytes.NewReader(program(t))); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, kept.File("a"))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-100] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Unpack("a"); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".x-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(); err != nil {
		t.Error(err)
	}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			t.Errorf("leftover %s", f.Name())
		}
	}
}

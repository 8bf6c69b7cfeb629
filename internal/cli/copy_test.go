package cli

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// job returns a copy that writes the names of left-out files to told.
func job(told io.Writer, comp carrel.Computer) *copyJob {
	return &copyJob{app: &app{out: io.Discard, err: told}, comp: comp, bar: newBar(io.Discard)}
}

// TestDownloadGoesOn shows that an entry that can't be written here is reported. Later entries are
// copied, with their modes and times.
func TestDownloadGoesOn(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	then := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, h := range []tar.Header{
		{Name: "a", Typeflag: tar.TypeReg, Size: 4, Mode: 0o644},
		{Name: "pipe", Typeflag: tar.TypeFifo},
		{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: "d/private", Typeflag: tar.TypeReg, Size: 4, Mode: 0o600},
		{Name: "d/tool", Typeflag: tar.TypeReg, Size: 4, Mode: 0o4755},
	} {
		h.ModTime = then
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte("evil")) // the buffer takes all
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	here := t.TempDir()
	if err := os.MkdirAll(filepath.Join(here, "a", "kept"), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(here)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var told bytes.Buffer
	j := job(&told, lying{archive: archive.Bytes()})
	if err := j.downloadTar(t.Context(), root, "/d"); err != nil {
		t.Fatal(err)
	}
	if err := j.incomplete(); err == nil || !strings.Contains(err.Error(), "1 thing could not be copied") {
		t.Errorf("it ends with %v", err)
	}
	for _, name := range []string{"left out a: ", "left out pipe: "} {
		if !strings.Contains(told.String(), name) {
			t.Errorf("it says %q, without %q", told.String(), name)
		}
	}
	for name, mode := range map[string]fs.FileMode{"d": fs.ModeDir | 0o700, "d/private": 0o600, "d/tool": 0o755} {
		info, err := os.Stat(filepath.Join(here, name))
		if err != nil || info.Mode() != mode || !info.ModTime().Equal(then) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// TestUploadGoesOn shows that two files are reported and the archive goes on: one that shrinks
// while it is read, and one that can't be read.
func TestUploadGoesOn(t *testing.T) {
	here := t.TempDir()
	for _, name := range []string{"a", "locked", "z"} {
		if err := os.WriteFile(filepath.Join(here, name), []byte(name), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	var told, archive bytes.Buffer
	j := job(&told, nil)
	w := tar.NewWriter(&archive)
	f, err := os.Open(filepath.Join(here, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := w.WriteHeader(&tar.Header{Name: "a", Size: 100, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if err := j.packContent(t.Context(), w, f, "a", 100); err != nil {
		t.Fatal(err)
	}
	gone, err := os.Lstat(filepath.Join(here, "locked"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(here, "locked")); err != nil { // between the walk and the copy
		t.Fatal(err)
	}
	if packed, err := j.packOne(t.Context(), w, filepath.Join(here, "locked"), "locked", gone, false); packed || err != nil {
		t.Errorf("a file that is gone: %v, %v", packed, err)
	}
	info, err := os.Lstat(filepath.Join(here, "z"))
	if err != nil {
		t.Fatal(err)
	}
	if packed, err := j.packOne(t.Context(), w, filepath.Join(here, "z"), "z", info, false); !packed || err != nil {
		t.Errorf("the last: %v, %v", packed, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if j.failed.Load() != 2 || !strings.Contains(told.String(), "left out locked: ") || !strings.Contains(told.String(), "left out a: ") {
		t.Errorf("%d failed, told %q", j.failed.Load(), told.String())
	}
	r := tar.NewReader(&archive)
	var names []string
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		names = append(names, h.Name)
	}
	if strings.Join(names, " ") != "a z" {
		t.Errorf("the archive holds %q", names)
	}
}

package service

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// TestKeepingARootLeavesItsTimes calls keepRoot again and again, which must not change a new link's
// times. A driver recognises an unchanged image by them, and would otherwise read it again.
func TestKeepingARootLeavesItsTimes(t *testing.T) {
	dir := t.TempDir()
	img := image.Image{Template: carrel.Template{ID: "t"}, Path: filepath.Join(dir, "image.erofs")}
	if err := os.WriteFile(img.Path, []byte("image"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &roots{opts: &Options{Dir: filepath.Join(dir, "sandboxes")},
		log: slog.New(slog.DiscardHandler), young: youngRoot}
	changed := func() syscall.Timespec {
		t.Helper()
		name, path, err := s.keepRoot(img)
		if err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(path)
		if err != nil || name == "" {
			t.Fatalf("%q %v", name, err)
		}
		return fi.Sys().(*syscall.Stat_t).Ctim
	}
	first := changed()
	for range 20 {
		if got := changed(); got != first {
			t.Fatalf("%v, then %v", first, got)
		}
	}
}

// TestKeepingARootWithoutItsFile keeps the root of a template whose image is missing. That is no
// template without files.
func TestKeepingARootWithoutItsFile(t *testing.T) {
	dir := t.TempDir()
	s := &roots{opts: &Options{Dir: dir}, log: slog.New(slog.DiscardHandler), young: youngRoot}
	_, _, err := s.keepRoot(image.Image{Template: carrel.Template{ID: "t"}, Path: filepath.Join(dir, "no")})
	if err == nil || carrel.HintOf(err) == "" {
		t.Error(err)
	}
	if name, path, err := s.keepRoot(image.Image{Template: carrel.Template{ID: "sim"}}); name != "" ||
		path != "" || err != nil {
		t.Error(name, path, err)
	}
}

// TestKeepingARootOfANewFile keeps the root of a template whose image is made again: as that of a
// thin template, or in place of a damaged one. Its sandboxes know the root by one name.
func TestKeepingARootOfANewFile(t *testing.T) {
	dir := t.TempDir()
	img := image.Image{Template: carrel.Template{ID: "t"}, Path: filepath.Join(dir, "image.erofs")}
	s := &roots{opts: &Options{Dir: filepath.Join(dir, "sandboxes")},
		log: slog.New(slog.DiscardHandler), young: youngRoot}
	names := map[string]bool{}
	for _, content := range []string{"image", "again"} {
		if err := errors.Join(os.WriteFile(img.Path+"2", []byte(content), 0o600),
			os.Rename(img.Path+"2", img.Path)); err != nil {
			t.Fatal(err)
		}
		name, path, err := s.keepRoot(img)
		if err != nil {
			t.Fatal(err)
		}
		names[name] = true
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%q, %v", got, err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "sandboxes", ".roots"))
	if len(names) != 1 || len(entries) != 1 || err != nil {
		t.Error(names, entries, err)
	}
}

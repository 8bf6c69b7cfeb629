package service

import (
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

package guestbin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/carrel-dev/carrel"
)

func TestExtract(t *testing.T) {
	built := fstest.MapFS{image: {Data: []byte("an image")}}
	dir := filepath.Join(t.TempDir(), "made")
	var wg sync.WaitGroup
	paths := make([]string, 8)
	for i := range paths {
		wg.Go(func() {
			var err error
			if paths[i], err = extract(built, dir, image); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, p := range paths {
		if p != paths[0] || !filepath.IsAbs(p) {
			t.Fatalf("paths differ or are relative: %q", paths)
		}
	}
	info, err := os.Stat(paths[0])
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}

	// A changed file is replaced.
	if err := os.WriteFile(paths[0], []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if p, err := extract(built, dir, image); err != nil || p != paths[0] {
		t.Fatal(p, err)
	}
	if data, _ := os.ReadFile(paths[0]); string(data) != "an image" {
		t.Errorf("content %q", data)
	}
}

// TestExtractNoted shows that the hash noted at build time is trusted for a file that exists, but
// never for a file that is written.
func TestExtractNoted(t *testing.T) {
	const noted = image + ".sum"
	data := []byte("an image")
	sum := sha256.Sum256(data)
	built := fstest.MapFS{image: {Data: data}, noted: {Data: []byte(hex.EncodeToString(sum[:]) + "\n")}}
	dir := t.TempDir()
	p, err := extract(built, dir, image)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := extract(fstest.MapFS{image: {Data: data}}, dir, image); err != nil || plain != p {
		t.Errorf("with the sum %q, without %q, %v", p, plain, err)
	}
	built[image] = &fstest.MapFile{Data: []byte("damaged")}
	if again, err := extract(built, dir, image); err != nil || again != p {
		t.Errorf("what is there is right: %q, %v", again, err)
	}
	if _, err := extract(built, t.TempDir(), image); err == nil {
		t.Error("an image that is not what was noted was written")
	}
	built[noted] = &fstest.MapFile{Data: []byte("no sum")}
	if _, err := extract(built, dir, image); err == nil {
		t.Error("a sum that is none was taken")
	}
}

func TestExtractWithoutImage(t *testing.T) {
	_, err := extract(fstest.MapFS{"assets/README.md": {}}, t.TempDir(), vmInit)
	if !errors.Is(err, carrel.Unsupported) || carrel.HintOf(err) == "" {
		t.Errorf("got %v, hint %q", err, carrel.HintOf(err))
	}
}

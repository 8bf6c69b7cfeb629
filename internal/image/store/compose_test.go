package store_test

import (
	"os"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// TestEqualBuilds makes equal images at different times, by composing and by a link. They have one
// digest and one file.
func TestEqualBuilds(t *testing.T) {
	now := time.Now()
	s := open(t, store.Options{Now: func() time.Time { now = now.Add(time.Hour); return now }})
	base := mustImport(t, s, "base-of-all", "hello")
	made := func(name, settings string) carrel.Template {
		return carrel.Template{Name: name, Project: base.Project, Build: "b",
			Key: image.TwoKeys("content", settings)}
	}
	compose := func(name, settings string) image.Image {
		t.Helper()
		img, err := s.Compose(t.Context(), made(name, settings), base.Path, rootfs(t, "changed"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	one, two := compose("one", "a"), compose("two", "b")
	if found, ok := s.WithContent(base.Project, "content"); !ok || found.ID != two.ID {
		t.Errorf("found %q, %v; want the newest, %q", found.ID, ok, two.ID)
	}
	if found, ok := s.WithContent(base.Project, "cont"); ok {
		t.Errorf("the beginning of a content found %q", found.ID)
	}
	if _, ok := s.WithContent("another", "content"); ok {
		t.Error("another project found the image")
	}
	three, err := s.Link(t.Context(), two.ID, made("three", "c"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(one.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range []image.Image{two, three} {
		other, err := os.Stat(img.Path)
		if err != nil {
			t.Fatal(err)
		}
		if img.Digest != one.Digest || len(img.Digest) != len("sha256:")+64 || !os.SameFile(info, other) {
			t.Errorf("%s has the digest %s, not %s, or a file of its own", img.Name, img.Digest, one.Digest)
		}
		if got, err := s.Get(t.Context(), img.ID); err != nil || read(t, got.Path, "file") != "changed" {
			t.Errorf("%s: %v", img.Name, err)
		}
	}
	// A link of an image whose sum is not known yet has one.
	four, err := s.Link(t.Context(), base.ID, made("four", "d"))
	if err != nil || len(four.Digest) != len(one.Digest) || four.Digest == one.Digest {
		t.Errorf("the digest is %q, %v", four.Digest, err)
	}
	if bad := s.CheckImages(t.Context(), 0); bad != 0 {
		t.Errorf("%d images are damaged", bad)
	}
}

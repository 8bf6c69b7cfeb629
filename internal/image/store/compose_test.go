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

// TestNamedByBuild finds the results of builds by the builds' IDs.
func TestNamedByBuild(t *testing.T) {
	s := open(t, store.Options{})
	base := mustImport(t, s, "base-of-all", "hello")
	const of = "lasting0000000000001"
	build := func(name, tag, id string) image.Image {
		t.Helper()
		img, err := s.Link(t.Context(), base.ID,
			carrel.Template{Name: name, Tag: tag, Of: of, Build: id, Project: base.Project, Key: image.TwoKeys(id, tag)})
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	listed := func() (id string) {
		t.Helper()
		all, err := s.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, img := range all {
			if img.Name == "web" {
				if id != "" {
					t.Error("a template is listed twice")
				}
				id = img.ID
			}
		}
		return id
	}
	first := build("web", "v1", "b1")
	if got := listed(); got != first.ID {
		t.Errorf("a template without a default tag is listed as %q, want %q", got, first.ID)
	}
	build(image.HiddenMark+"layer", "", "b1")
	second := build("web", "v1", "b2") // takes the tag
	named := build("web", "b1", "b3")  // its tag is the ID of another build
	for name, want := range map[string]string{"web:b2": second.ID, of + ":b2": second.ID, "web:v1": second.ID,
		"web:b1": named.ID, of + ":b1": named.ID, "web:b3": named.ID} {
		if got, ok := s.Named(base.Project, name); !ok || got.ID != want {
			t.Errorf("%s is %q, %v, want %q", name, got.ID, ok, want)
		}
	}
	if err := s.Untag(t.Context(), of, "b1"); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.Named(base.Project, "web:b1"); !ok || got.ID != first.ID {
		t.Errorf("the replaced build is %q, %v, want %q", got.ID, ok, first.ID)
	}
	for _, name := range []string{"web:b9", "other:b2", "web:", image.HiddenMark + "layer:b1", "base-of-all:b1"} {
		if got, ok := s.Named(base.Project, name); ok {
			t.Errorf("%s is %q", name, got.ID)
		}
	}
	if got, ok := s.Named("another", "web:b2"); ok {
		t.Errorf("another project found %q", got.ID)
	}
	if _, ok := s.Named(base.Project, "web"); ok {
		t.Error("a template without a default tag has one")
	}
	for name, want := range map[string]string{"web": of, of: of, "nope": "", "": "", "base-of-all": base.Of,
		image.HiddenMark + "layer": ""} {
		if got := s.LastingID(base.Project, name); got != want {
			t.Errorf("the lasting ID of %q is %q, want %q", name, got, want)
		}
	}
	if got := s.LastingID("another", "web"); got != "" {
		t.Errorf("another project found %q", got)
	}
	usual := build("web", "", "b4")
	build("web", "v2", "b5")
	if got := listed(); got != usual.ID {
		t.Errorf("a template with a default tag is listed as %q, want %q", got, usual.ID)
	}
	if err := s.Delete(t.Context(), usual.ID); err != nil || listed() != "" {
		t.Errorf("after its end it is listed as %q, %v", listed(), err)
	}
}

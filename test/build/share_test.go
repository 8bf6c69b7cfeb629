package build

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/carrel-dev/carrel"
)

// TestSettingsKeepTheImage changes only settings of a template. The new image is then the file of
// the old one, and its digest is the sum of that file.
func TestSettingsKeepTheImage(t *testing.T) {
	oneTier(t, carrel.NS, func(t *testing.T, b *bench) {
		first := b.ready(carrel.BuildSpec{Name: "first", Instructions: steps("RUN echo made > ~/state")})
		second := b.ready(carrel.BuildSpec{Name: "second",
			Instructions: steps("RUN echo made > ~/state", "ENV WORD=added")})
		if first.Image == second.Image {
			t.Fatalf("both builds gave the image %s", first.Image)
		}
		b.sameImage(first.Image, second.Image)
		if got := b.run("second", "cat ~/state; echo $WORD"); got != "made\nadded" {
			t.Errorf("the second template has %q", got)
		}
		if got := b.run("first", "echo $WORD"); got != "" {
			t.Errorf("the first template has %q", got)
		}
		// Without a step that changes files, it is the base's.
		base, err := b.GetTemplate(b.t.Context(), small)
		if err != nil {
			t.Fatal(err)
		}
		plain := b.ready(carrel.BuildSpec{Name: "plain", Instructions: steps("ENV WORD=alone")})
		b.sameImage(base.ID, plain.Image)
		if got := b.run("plain", "echo $WORD"); got != "alone" {
			t.Errorf("the template of settings alone has %q", got)
		}
		// A daemon of later accepts the images.
		b.d.Restart()
		if got := b.run("second", "cat ~/state; echo $WORD"); got != "made\nadded" {
			t.Errorf("after a restart the second template has %q", got)
		}
	})
}

// sameImage checks that two templates have one file, and that the second one's digest is its sum.
func (b *bench) sameImage(one, two string) {
	b.t.Helper()
	path := func(id string) string { return filepath.Join(b.d.Dir, "templates", id, "image.erofs") }
	x, err := os.Stat(path(one))
	if err != nil {
		b.t.Fatal(err)
	}
	y, err := os.Stat(path(two))
	if err != nil {
		b.t.Fatal(err)
	}
	if !os.SameFile(x, y) {
		b.t.Errorf("%s and %s have files of their own", one, two)
	}
	raw, err := os.ReadFile(path(two))
	if err != nil {
		b.t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	t, err := b.GetTemplate(b.t.Context(), two)
	if want := "sha256:" + hex.EncodeToString(sum[:]); err != nil || t.Digest != want {
		b.t.Errorf("the digest is %q, %v; the file's is %s", t.Digest, err, want)
	}
}

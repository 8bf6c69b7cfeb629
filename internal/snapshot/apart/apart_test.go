package apart

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/blobtest"
	"github.com/carrel-dev/carrel/internal/snapshot/disk"
)

// store opens blobs on a disk.
func store(t *testing.T) *disk.Blobs {
	t.Helper()
	b, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// names lists blobs.
func names(t *testing.T, b snapshot.Blobs, prefix string) (out []string) {
	t.Helper()
	if err := b.List(t.Context(), prefix, func(i snapshot.BlobInfo) error {
		out = append(out,
			i.Name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func put(t *testing.T, b snapshot.Blobs, name, text string) {
	t.Helper()
	if err := b.Put(t.Context(), name, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
}

// get reads a blob; "" when it is not there.
func get(t *testing.T, b snapshot.Blobs, name string) string {
	t.Helper()
	rc, err := b.Get(t.Context(), name, 0, -1)
	if errors.Is(err, carrel.NotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	raw, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestBlobs runs the suite of all blobs on a part.
func TestBlobs(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) snapshot.Blobs {
		b, err := disk.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return New(b, []string{"own"})
	})
}

// TestOriginalIsSafe lets a copy, and a copy of the copy, replace and delete every name.
func TestOriginalIsSafe(t *testing.T) {
	under := store(t)
	put(t, under, "packs/a", "original")
	first, second := New(under, []string{"first"}), New(under, []string{"second", "first"})
	if got := names(t, first, ""); len(got) != 0 {
		t.Errorf("a copy lists %v", got)
	}
	for _, b := range []*Blobs{first, second} {
		if got := get(t, b, "packs/a"); got != "original" {
			t.Errorf("a copy reads %q", got)
		}
	}
	put(t, first, "packs/a", "first's")
	put(t, first, "packs/b", "first's")
	if a, b := get(t, second, "packs/a"), get(t, second, "packs/b"); a != "first's" || b != "first's" {
		t.Errorf("the copy's copy reads %q and %q", a, b)
	}
	for _, name := range []string{"packs/a", "packs/b"} {
		if err := second.Delete(context.Background(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, first, "packs/"); !slices.Equal(got, []string{"packs/a", "packs/b"}) {
		t.Errorf("the first copy has %v", got)
	}
	if err := first.Delete(t.Context(), "packs/a"); err != nil {
		t.Fatal(err)
	}
	if got := get(t, under, "packs/a"); got != "original" {
		t.Errorf("the original has %q", got)
	}
	if got := names(t, under, "packs/"); !slices.Equal(got, []string{"packs/a"}) {
		t.Errorf("the original lists %v", got)
	}
}

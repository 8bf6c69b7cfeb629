package store_test

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/registry"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// anyImage lets every image go.
func anyImage(image.Image) bool { return true }

// ids lists the IDs of images, in order.
func ids(all []image.Image) []string {
	out := []string{}
	for _, img := range all {
		out = append(out, img.ID)
	}
	slices.Sort(out)
	return out
}

// TestCollect collects bases of builds. One that is held stays until its last holder releases it.
// Templates and drafts of builds stay in any case.
func TestCollect(t *testing.T) {
	ctx := t.Context()
	s := open(t, store.Options{})
	base, err := s.Import(ctx, image.HiddenMark+"base", rootfs(t, "base"), nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Import(ctx, image.HiddenMark+"other", rootfs(t, "other"), nil)
	if err != nil {
		t.Fatal(err)
	}
	draft, err := s.Import(ctx, image.DraftMark+"1", rootfs(t, "draft"), nil)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := s.Import(ctx, "mine", rootfs(t, "mine"), nil)
	if err != nil {
		t.Fatal(err)
	}
	first, ok := s.Hold(base.ID)
	if !ok {
		t.Fatal("an image that is there can't be held")
	}
	second, _ := s.Hold(base.ID)
	for _, id := range []string{store.BaseID, store.SimID} {
		release, ok := s.Hold(id)
		if !ok {
			t.Fatalf("the built-in template %s can't be held", id)
		}
		release()
	}
	if got := ids(s.Collectable()); !slices.Equal(got, []string{other.ID}) {
		t.Errorf("%v may go, and only %s is not held", got, other.ID)
	}
	if got, err := s.Collect(ctx, func(image.Image) bool { return false }); err != nil ||
		len(got) > 0 {
		t.Errorf("none may go, and %v went, %v", ids(got), err)
	}
	if got, err := s.Collect(ctx, anyImage); err != nil ||
		!slices.Equal(ids(got), []string{other.ID}) {
		t.Errorf("%v went, %v", ids(got), err)
	}
	first()
	first() // a second call must not count
	if got, err := s.Collect(ctx, anyImage); err != nil || len(got) > 0 {
		t.Errorf("one still holds it, and %v went, %v", ids(got), err)
	}
	second()
	if got, err := s.Collect(ctx, anyImage); err != nil ||
		!slices.Equal(ids(got), []string{base.ID}) {
		t.Errorf("nobody holds it, and %v went, %v", ids(got), err)
	}
	if _, ok := s.Hold(base.ID); ok {
		t.Error("an image that is gone can be held")
	}
	for _, img := range []image.Image{draft, mine} {
		if _, err := s.Get(ctx, img.ID); err != nil {
			t.Errorf("%s: %v", img.Name, err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Collect(cancelled, anyImage); err == nil {
		t.Error("a collection that is cancelled succeeds")
	}
}

// TestCollectDuringPulls pulls a base and holds it, again and again, beside collections. An image
// that is held must be readable until it is released.
func TestCollectDuringPulls(t *testing.T) {
	ts := httptest.NewServer(server.New(server.Logger(log.New(io.Discard, "", 0))))
	defer ts.Close()
	ref := strings.TrimPrefix(ts.URL, "http://") + "/app:1"
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(rootfs(t, "pulled")), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
	s := open(t, store.Options{Registries: registry.Config{Keychain: authn.NewMultiKeychain(),
		Allow: []string{strings.TrimPrefix(ts.URL, "http://")}}})
	ctx, over := context.WithCancel(t.Context())
	var collections, pulls sync.WaitGroup
	collections.Go(func() {
		for ctx.Err() == nil {
			if _, err := s.Collect(t.Context(), anyImage); err != nil {
				t.Errorf("collect: %v", err)
			}
		}
	})
	for range 3 {
		pulls.Go(func() {
			for held := 0; held < 3; {
				got, err := s.PullBase(t.Context(), carrel.PullOptions{Image: ref}, nil)
				if err != nil {
					t.Errorf("pull: %v", err)
					return
				}
				release, ok := s.Hold(got.ID)
				if !ok {
					continue // collected before anybody held it
				}
				held++
				if _, err := s.Get(t.Context(), got.ID); err != nil {
					t.Errorf("a base that is held: %v", err)
				} else if got := read(t, got.Path, "file"); got != "pulled" {
					t.Errorf("a base that is held has %q", got)
				}
				release()
			}
		})
	}
	pulls.Wait()
	over()
	collections.Wait()
}

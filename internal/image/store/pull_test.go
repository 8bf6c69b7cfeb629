package store_test

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"strings"
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

func TestPull(t *testing.T) {
	ts := httptest.NewServer(server.New(server.Logger(log.New(io.Discard, "", 0))))
	defer ts.Close()
	ref := strings.TrimPrefix(ts.URL, "http://") + "/app:1"
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(rootfs(t, "pulled")), nil })
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
	s := open(t, store.Options{Registries: registry.Config{Keychain: authn.NewMultiKeychain(), Allow: []string{strings.TrimPrefix(ts.URL, "http://")}}})
	stages := map[string]bool{}
	got, err := s.Pull(context.Background(), "app", carrel.PullOptions{Image: ref}, func(p carrel.Progress) { stages[p.Stage] = true })
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != digest.String() || got.Source != "registry: "+ref || got.User != "root" || read(t, got.Path, "file") != "pulled" {
		t.Errorf("%+v", got)
	}
	for _, stage := range []string{image.StagePull, image.StageUnpack, image.StageWrite} {
		if !stages[stage] {
			t.Errorf("no progress of stage %q", stage)
		}
	}
	_, err = s.Pull(context.Background(), "app2", carrel.PullOptions{Image: ref + "0"}, nil)
	wantKind(t, err, carrel.NotFound, "image")
}

package daemontest

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// ServeSmall serves an image of [SmallRoot] in a registry of this process. It returns the registry's host and the image's name.
func ServeSmall(t *testing.T) (host, image string) {
	t.Helper()
	raw, err := SmallRoot()
	testenv.Need(t, "ldd", err)
	ts := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(ts.Close)
	host = strings.TrimPrefix(ts.URL, "http://")
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Config.Env = []string{"PATH=/usr/bin:/bin", "OF_IMAGE=yes"}
	file.Config.Cmd = []string{"sleep", "1000"}
	if img, err = mutate.ConfigFile(img, file); err != nil {
		t.Fatal(err)
	}
	image = host + "/team/small:1"
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return host, image
}

package store_test

import (
	"context"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
	s := open(t, store.Options{Registries: registry.Config{Keychain: authn.NewMultiKeychain(),
		Allow: []string{strings.TrimPrefix(ts.URL, "http://")}}})
	stages := map[string]bool{}
	got, err := s.Pull(context.Background(), "app", carrel.PullOptions{Image: ref},
		func(p carrel.Progress) { stages[p.Stage] = true })
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

// oneLayer publishes an image of one file in a registry that wants a password, and returns its
// name.
func oneLayer(t *testing.T, password string,
	change func(http.ResponseWriter, *http.Request) bool) (host string) {
	t.Helper()
	inner := server.New(server.Logger(log.New(io.Discard, "", 0)))
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, p, _ := r.BasicAuth(); p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if change == nil || r.Method != http.MethodGet || !change(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(ts.Close)
	host = strings.TrimPrefix(ts.URL, "http://")
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser,
		error) {
		return io.NopCloser(rootfs(t, "pulled")), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	r, err := name.ParseReference(host + "/app:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img, remote.WithAuth(
		&authn.Basic{Username: "me", Password: password})); err != nil {
		t.Fatal(err)
	}
	return host
}

// operator has the credentials of a daemon's owner for every registry.
type operator struct{ password string }

// Resolve implements authn.Keychain.
func (o operator) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: "me", Password: o.password}, nil
}

// TestPullByProjects shows who may use the operator's credentials, and that a kept layer of one
// project opens nothing for another one.
func TestPullByProjects(t *testing.T) {
	host := oneLayer(t, "sesame", nil)
	s := open(t, store.Options{Registries: registry.Config{Keychain: operator{"sesame"},
		Allow: []string{host}}})
	pull := func(c carrel.Caller, own *carrel.RegistryCredentials) error {
		_, err := s.Pull(carrel.WithCaller(context.Background(), c), "app",
			carrel.PullOptions{Image: host + "/app:1", Credentials: own}, nil)
		return err
	}
	for _, c := range []carrel.Caller{carrel.Local(), {Project: "p", Role: carrel.RoleAdmin},
		{Project: carrel.DefaultProject, Role: carrel.RoleMember}} {
		if err := pull(c, nil); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	stranger := carrel.Caller{Project: "q", Role: carrel.RoleMember}
	wantKind(t, pull(stranger, nil), carrel.Unauthenticated, "image")
	wantKind(t, pull(stranger, &carrel.RegistryCredentials{Username: "me", Password: "no"}),
		carrel.Unauthenticated, "image")
	if err := pull(stranger, &carrel.RegistryCredentials{Username: "me",
		Password: "sesame"}); err != nil {
		t.Error(err)
	}
}

// TestFailedPullLeavesNothing lets a registry send a wrong layer. No template and no layer stays.
func TestFailedPullLeavesNothing(t *testing.T) {
	host := oneLayer(t, "sesame", func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			_, _ = io.WriteString(w, "something else")
			return true
		}
		return false
	})
	dir := t.TempDir()
	s := open(t, store.Options{Dir: filepath.Join(dir, "templates"),
		CacheDir:   filepath.Join(dir, "cache"),
		Registries: registry.Config{Keychain: operator{"sesame"}, Allow: []string{host}}})
	_, err := s.Pull(context.Background(), "app", carrel.PullOptions{Image: host + "/app:1"}, nil)
	wantKind(t, err, carrel.Invalid, "image")
	var left []string
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != ".lock" {
			left = append(left, p)
		}
		return err
	})
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

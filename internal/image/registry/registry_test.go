package registry_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	goerofs "github.com/erofs/go-erofs"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	pull "github.com/carrel-dev/carrel/internal/image/registry"
)

// server is a registry in this process.
type server struct {
	host     string
	user     string // "" is "me"
	password string // demanded, if set
	refused  atomic.Int64
	change   atomic.Pointer[change]
}

// change alters the body of an answer.
type change func(path string, body []byte) []byte

// alter sets what becomes of the answers from now on. Requests of a fetch that failed may still be
// under way.
func (s *server) alter(c change) { s.change.Store(&c) }

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{}
	reg := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pw, _ := r.BasicAuth(); s.password != "" &&
			(user != cmp.Or(s.user, "me") || pw != s.password) {
			s.refused.Add(1)
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		alter := s.change.Load()
		if alter == nil || r.Method != http.MethodGet {
			reg.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		reg.ServeHTTP(rec, r)
		body := (*alter)(r.URL.Path, rec.Body.Bytes())
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(ts.Close)
	s.host = strings.TrimPrefix(ts.URL, "http://")
	return s
}

// layer is a layer with one file.
func layer(t *testing.T, file, content string) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sample is an image of two layers for one architecture.
func sample(t *testing.T, arch string) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layer(t, "arch", arch), layer(t, ".wh.gone", ""), layer(t, "top", strings.Repeat("text", 50_000)))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", arch
	cfg.Config.Env, cfg.Config.WorkingDir, cfg.Config.Cmd = []string{"A=b"}, "/srv", []string{"run"}
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	return img
}

func (s *server) push(t *testing.T, ref string, img v1.Image) v1.Hash {
	t.Helper()
	r, err := name.ParseReference(s.host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatal(err)
	}
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// fetch pulls an image with a client that may reach the test's own registries, and builds its tree.
func fetch(t *testing.T, ref string, change func(*pull.Config,
	*pull.Request)) (fs.FS, *archive.Result, error) {
	t.Helper()
	return fetchWith(t, carrel.PullOptions{Image: ref}, change)
}

func fetchWith(t *testing.T, opts carrel.PullOptions,
	change func(*pull.Config, *pull.Request)) (fs.FS, *archive.Result, error) {
	t.Helper()
	dir := t.TempDir()
	cfg := pull.Config{Keychain: authn.NewMultiKeychain(), Allow: []string{"127.0.0.1"}}
	req := pull.Request{Project: "p", Operator: true}
	if change != nil {
		change(&cfg, &req)
	}
	if cfg.Cache == nil {
		cfg.Cache = pull.NewCache(filepath.Join(dir, "cache"), -1, slog.New(slog.DiscardHandler))
	}
	c, err := pull.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	img, res, err := build(t, c, dir, opts, req)
	for _, left := range files(t, dir) {
		if err != nil || !strings.Contains(left, "image-") && !strings.Contains(left, "cache/") {
			t.Errorf("a pull (%v) left %s", err, left)
		}
	}
	return img, res, err
}

// build pulls an image into a directory.
func build(t *testing.T, c *pull.Client, dir string, opts carrel.PullOptions,
	req pull.Request) (fs.FS, *archive.Result, error) {
	t.Helper()
	src, release, err := c.Pull(context.Background(), opts, req)
	if err != nil {
		return nil, nil, err
	}
	newFile := func() (*os.File, error) { return os.CreateTemp(dir, "image-*") }
	f, res, err := archive.Importer{NewFile: newFile}.Image(context.Background(), src, "registry")
	release()
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { f.Close() })
	img, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return img, res, nil
}

// files lists the files below a directory.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ask asks for the digest of an image.
func ask(t *testing.T, ref string) string {
	t.Helper()
	c, err := pull.New(pull.Config{Keychain: authn.NewMultiKeychain(), Allow: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	digest, err := c.Digest(context.Background(), carrel.PullOptions{Image: ref}, pull.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func content(t *testing.T, img fs.FS, file string) string {
	t.Helper()
	b, err := fs.ReadFile(img, file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPull(t *testing.T) {
	s := serve(t)
	digest := s.push(t, "team/app:1", sample(t, runtime.GOARCH))
	for what, ref := range map[string]string{"tag": s.host + "/team/app:1", "digest": s.host + "/team/app@" + digest.String()} {
		t.Run(what, func(t *testing.T) {
			var last carrel.Progress
			img, res, err := fetch(t, ref, func(_ *pull.Config, r *pull.Request) {
				r.Meter = image.NewMeter(func(p carrel.Progress) { last = p })
			})
			if err != nil {
				t.Fatal(err)
			}
			if content(t, img, "arch") != runtime.GOARCH || len(content(t, img, "top")) != 200_000 {
				t.Error("other contents")
			}
			if got := ask(t, ref); got != digest.String() {
				t.Errorf("the digest is %s, not %s", got, digest)
			}
			if res.Digest != digest.String() || res.Env["A"] != "b" || res.WorkDir != "/srv" || res.Start[0] != "run" || res.User != "root" {
				t.Errorf("%+v", res)
			}
			if last.Stage != image.StagePull || last.Done == 0 || last.Done != last.Total {
				t.Errorf("progress ends with %+v", last)
			}
		})
	}
}

func TestIndex(t *testing.T) {
	s := serve(t)
	add := func(arch, variant string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: sample(t, arch), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch, Variant: variant}}}
	}
	pushIndex := func(ref string, adds ...mutate.IndexAddendum) {
		r, err := name.ParseReference(s.host + "/" + ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.WriteIndex(r, mutate.AppendManifests(empty.Index, adds...)); err != nil {
			t.Fatal(err)
		}
	}
	pushIndex("multi:1", add("s390x", ""), add(runtime.GOARCH, ""), add("riscv64", ""))
	img, _, err := fetch(t, s.host+"/multi:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, img, "arch"); got != runtime.GOARCH {
		t.Errorf("pulled the image for %s", got)
	}
	pushIndex("foreign:1", add("s390x", ""), add("riscv64", ""))
	_, _, err = fetch(t, s.host+"/foreign:1", nil)
	wantKind(t, err, carrel.Unsupported, "s390x")
	s.push(t, "single:1", sample(t, "s390x"))
	_, _, err = fetch(t, s.host+"/single:1", nil)
	wantKind(t, err, carrel.Unsupported, "s390x")
}

func wantKind(t *testing.T, err error, kind carrel.Kind, says string) {
	t.Helper()
	if carrel.KindOf(err) != kind || !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("error %v of kind %q: want %q, saying %q", err, carrel.KindOf(err), kind, says)
	}
}

func TestRefusals(t *testing.T) {
	s := serve(t)
	digest := s.push(t, "app:1", sample(t, runtime.GOARCH))
	ref := s.host + "/app@" + digest.String()
	_, _, err := fetch(t, "Not A Name", nil)
	wantKind(t, err, carrel.Invalid, "")
	_, _, err = fetch(t, s.host+"/app@sha256:123", nil)
	wantKind(t, err, carrel.Invalid, "")
	_, _, err = fetch(t, s.host+"/app:2", nil)
	wantKind(t, err, carrel.NotFound, "app:2")
	_, _, err = fetch(t, s.host+"/app@sha256:"+strings.Repeat("0", 64), nil)
	wantKind(t, err, carrel.NotFound, "")
	_, _, err = fetch(t, ref, func(_ *pull.Config, r *pull.Request) { r.MaxBytes = 100 })
	wantKind(t, err, carrel.Exhausted, "MaxBytes")
	_, _, err = fetch(t, "127.0.0.1:1/app:1", nil)
	wantKind(t, err, carrel.Unavailable, "127.0.0.1:1")

	// A registry that sends other content than the digest names.
	s.alter(func(path string, body []byte) []byte {
		if strings.Contains(path, "/manifests/") {
			return append(body, ' ')
		}
		return body
	})
	_, _, err = fetch(t, ref, nil)
	wantKind(t, err, carrel.Invalid, "digest")
	s.alter(func(path string, body []byte) []byte {
		if strings.Contains(path, "/blobs/") && bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
			var b bytes.Buffer
			g := gzip.NewWriter(&b)
			_, _ = g.Write([]byte("evil"))
			_ = g.Close()
			return append(b.Bytes(), body[b.Len():]...) // of the same length
		}
		return body
	})
	_, _, err = fetch(t, ref, nil)
	wantKind(t, err, carrel.Invalid, "")
	s.alter(func(path string, body []byte) []byte {
		if strings.Contains(path, "/blobs/") && bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
			return body[:len(body)/2]
		}
		return body
	})
	if _, _, err = fetch(t, ref, nil); err == nil {
		t.Error("half a layer was accepted")
	}
}

// keychain has one password for one registry.
type keychain struct{ host, password string }

func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if r.RegistryStr() != k.host {
		return authn.Anonymous, nil
	}
	return &authn.Basic{Username: "me", Password: k.password}, nil
}

func TestCredentials(t *testing.T) {
	s := serve(t)
	s.push(t, "app:1", sample(t, runtime.GOARCH))
	s.password = "sesame"
	_, _, err := fetch(t, s.host+"/app:1", nil)
	wantKind(t, err, carrel.Unauthenticated, "")
	if strings.Contains(fmt.Sprint(err), "sesame") {
		t.Error("the error holds the password")
	}
	_, _, err = fetch(t, s.host+"/app:1", func(o *pull.Config,
		_ *pull.Request) {
		o.Keychain = keychain{s.host, "wrong"}
	})
	wantKind(t, err, carrel.Unauthenticated, "")
	if _, _, err := fetch(t, s.host+"/app:1", func(o *pull.Config,
		_ *pull.Request) {
		o.Keychain = keychain{s.host, "sesame"}
	}); err != nil {
		t.Error(err)
	}
	if s.refused.Load() == 0 {
		t.Error("nothing was refused")
	}
}

func TestCancel(t *testing.T) {
	s := serve(t)
	s.push(t, "app:1", sample(t, runtime.GOARCH))
	ctx, cancel := context.WithCancel(context.Background())
	s.alter(func(path string, body []byte) []byte { cancel(); return body })
	c, err := pull.New(pull.Config{Allow: []string{s.host}, Cache: pull.NewCache(t.TempDir(), 0, nil)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _, err = c.Pull(ctx, carrel.PullOptions{Image: s.host + "/app:1"}, pull.Request{})
	wantKind(t, err, carrel.TimedOut, "")
}

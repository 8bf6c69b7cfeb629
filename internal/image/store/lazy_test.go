package store_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/filler"
	"github.com/carrel-dev/carrel/internal/image/registry"
	"github.com/carrel-dev/carrel/internal/image/stargz"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// slow is a registry whose answers a test holds, counts and changes.
type slow struct {
	host  string
	inner http.Handler // the registry itself
	asked atomic.Int64 // for parts of layers
	// judge decides about a request for a part of a layer: it may answer itself.
	judge atomic.Pointer[func(w http.ResponseWriter, r *http.Request, from, to int64) (done bool)]
}

func (s *slow) do(f func(w http.ResponseWriter, r *http.Request, from, to int64) bool) {
	s.judge.Store(&f)
}

// holdRuns holds the requests for more than a chunk, which only the background sends, until free is
// called.
func (s *slow) holdRuns() (free func()) {
	hold := make(chan struct{})
	s.do(func(_ http.ResponseWriter, r *http.Request, from, to int64) bool {
		if to-from > 1<<20+100_000 {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
		return false
	})
	return func() { close(hold) }
}

func serveSlow(t *testing.T) *slow {
	t.Helper()
	s := &slow{inner: server.New(server.Logger(log.New(io.Discard, "", 0)))}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from, to int64
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 {
			s.asked.Add(1)
			if f := s.judge.Load(); f != nil && (*f)(w, r, from, to) {
				return
			}
		}
		s.inner.ServeHTTP(w, r)
	}))
	t.Cleanup(ts.Close)
	t.Cleanup(ts.CloseClientConnections)
	s.host = strings.TrimPrefix(ts.URL, "http://")
	return s
}

func (s *slow) options(t *testing.T) store.Options {
	return store.Options{Dir: filepath.Join(t.TempDir(), "templates"),
		Registries: registry.Config{Keychain: authn.NewMultiKeychain(), Allow: []string{s.host}}}
}

// lazyFiles are files of the test image: content that does not compress, and zeros.
func lazyFiles() map[string][]byte {
	random := rand.NewChaCha8([32]byte{1})
	files := map[string][]byte{"etc/passwd": []byte("root:x:0:0::/:/bin/sh\nme:x:7:7::/:/bin/sh\n")}
	for i := range 5 {
		b := make([]byte, 2<<20+i*1000)
		_, _ = random.Read(b)
		clear(b[1<<20 : 1<<20+200_000])
		files[fmt.Sprintf("data/file%d", i)] = b
	}
	return files
}

// estargz makes a layer with a table of contents.
func estargz(t *testing.T, headers []tar.Header, content map[string][]byte) (v1.Layer, string) {
	t.Helper()
	var out bytes.Buffer
	w, err := stargz.NewWriter(&out, io.Discard)
	for i := range headers {
		h := headers[i]
		if err == nil {
			h.Size = int64(len(content[h.Name]))
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(content[h.Name])
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(out.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, w.TOCDigest()
}

// pushLazy pushes an image of two layers: the second one replaces and hides files of the first.
func (s *slow) pushLazy(t *testing.T, ref string, change func(*mutate.Addendum)) {
	t.Helper()
	files := lazyFiles()
	lower := []tar.Header{{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644},
		{Typeflag: tar.TypeDir, Name: "data/", Mode: 0o755}}
	for i := range 5 {
		lower = append(lower, tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("data/file%d", i),
			Mode: 0o640, Uid: 7})
	}
	lower = append(lower, tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "data/file1"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "soft", Linkname: "data/file2"})
	upper := []tar.Header{{Typeflag: tar.TypeReg, Name: "data/file3", Mode: 0o600},
		{Typeflag: tar.TypeReg, Name: "data/.wh.file4", Mode: 0o600}}
	img := empty.Image
	for i, headers := range [][]tar.Header{lower, upper} {
		for k := range headers {
			headers[k].ModTime, headers[k].Format = time.Unix(1700000000, 5), tar.FormatPAX
		}
		content := files
		if i == 1 {
			content = map[string][]byte{"data/file3": []byte("of the upper layer")}
		}
		l, toc := estargz(t, headers, content)
		add := mutate.Addendum{Layer: l, Annotations: map[string]string{stargz.Annotation: toc}}
		if change != nil {
			change(&add)
		}
		var err error
		if img, err = mutate.Append(img, add); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Config.User = "linux", runtime.GOARCH, "7"
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	r, err := name.ParseReference(s.host + "/" + ref)
	if err == nil {
		err = remote.Write(r, img)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func needFiller(t *testing.T) {
	t.Helper()
	testenv.Need(t, "fuse", filler.Able())
}

func (s *slow) pull(t *testing.T, st *store.Store, as string, lazy bool) image.Image {
	t.Helper()
	img, err := st.Pull(context.Background(), as,
		carrel.PullOptions{Image: s.host + "/lazy:1", Lazy: lazy}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func sumFile(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// whole waits until a template is an ordinary one.
func whole(t *testing.T, st *store.Store, id string) image.Image {
	t.Helper()
	var img image.Image
	testenv.EventuallyNil(t, "the image is whole", func() (err error) {
		img, err = st.Get(context.Background(), id)
		return err
	})
	if img.Lazy != nil || img.View != "" {
		t.Errorf("a whole template says %+v", img)
	}
	return img
}

// TestLazyIsTheSame compares a lazily pulled image with the one that is pulled whole.
func TestLazyIsTheSame(t *testing.T) {
	needFiller(t)
	s := serveSlow(t)
	s.pushLazy(t, "lazy:1", nil)
	st := open(t, s.options(t))
	want := s.pull(t, st, "whole", false)
	got := s.pull(t, st, "lazy", true)
	if got.Lazy == nil || got.Lazy.State != carrel.LazyFilling || got.Digest != want.Digest ||
		got.User != "me" || want.User != "me" {
		t.Fatalf("%+v %+v", got, got.Lazy)
	}
	img := whole(t, st, got.ID)
	if a, b := sumFile(t, img.Path), sumFile(t, want.Path); a != b {
		t.Errorf("the image is %s, pulled whole it is %s", a, b)
	}
	if img.Size > want.Size+1<<20 {
		t.Errorf("it takes %d bytes, pulled whole %d", img.Size, want.Size)
	}
}

// TestDemandOvertakes holds every request of the background. Reads of the view must pass.
func TestDemandOvertakes(t *testing.T) {
	needFiller(t)
	s := serveSlow(t)
	s.pushLazy(t, "lazy:1", nil)
	st := open(t, s.options(t))
	want := s.pull(t, st, "whole", false)
	free := s.holdRuns()
	got := s.pull(t, st, "lazy", true)
	ctx := context.Background()
	if _, err := st.Get(ctx, got.ID); carrel.KindOf(err) != carrel.Conflict {
		t.Errorf("half an image is given out: %v", err)
	}
	if ok, err := image.IsWhole(got.Path); ok || err != nil {
		t.Errorf("half an image looks whole: %v", err)
	}
	img, err := st.Boot(ctx, got.ID)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if a, b := sumFile(t, img.View), sumFile(t, want.Path); a != b {
		t.Errorf("the view is %s, pulled whole it is %s", a, b)
	}
	t.Logf("the view was read in %v with %d requests", time.Since(start), s.asked.Load())
	free()
	whole(t, st, got.ID)
}

// TestFillerKilled kills the filler half way. The next one goes on.
func TestFillerKilled(t *testing.T) {
	needFiller(t)
	s := serveSlow(t)
	s.pushLazy(t, "lazy:1", nil)
	st := open(t, s.options(t))
	want := s.pull(t, st, "whole", false)
	free := s.holdRuns()
	got := s.pull(t, st, "lazy", true)
	img, err := st.Boot(context.Background(), got.ID)
	if err != nil {
		t.Fatal(err)
	}
	view, err := os.Open(img.View)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	half := make([]byte, 2<<20)
	if _, err := io.ReadFull(view, half); err != nil {
		t.Fatal(err)
	}
	p := filler.Find(filepath.Dir(img.Path))
	if p == nil {
		t.Fatal("there is no filler")
	}
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the open view fails", func() bool {
		_, err := view.ReadAt(half[:1], want.Size/2)
		return err != nil
	})
	free()
	if a, b := sumFile(t, whole(t, st, got.ID).Path), sumFile(t, want.Path); a != b {
		t.Errorf("the image is %s, pulled whole it is %s", a, b)
	}
}

// TestStoreStartsAgain leaves a filler without a store, as a killed daemon does. The next store adopts it.
func TestStoreStartsAgain(t *testing.T) {
	needFiller(t)
	s := serveSlow(t)
	s.pushLazy(t, "lazy:1", nil)
	opts := s.options(t)
	st := open(t, opts)
	want := sumFile(t, s.pull(t, st, "whole", false).Path)
	free := s.holdRuns()
	got := s.pull(t, st, "lazy", true)
	first := filler.Find(filepath.Dir(got.Path))
	// A store that was closed leaves no filler that nobody uses.
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the filler ends", func() bool {
		return filler.Find(filepath.Dir(got.Path)) == nil && unix.Kill(first.PID(), 0) != nil
	})
	st = open(t, opts)
	if _, err := st.Boot(context.Background(), got.ID); err != nil {
		t.Fatal(err)
	}
	free()
	if sum := sumFile(t, whole(t, st, got.ID).Path); sum != want {
		t.Errorf("the image is %s, pulled whole it is %s", sum, want)
	}
}

// TestLyingRegistry shows that no lie about a chunk gets into an image, and that each ends.
func TestLyingRegistry(t *testing.T) {
	needFiller(t)
	lies := map[string]func(http.ResponseWriter, *http.Request, int64, int64) bool{
		"other bytes": func(w http.ResponseWriter, _ *http.Request, from, to int64) bool {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, to+1))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(bytes.Repeat([]byte("x"), int(to-from+1)))
			return true
		},
		"another range": func(w http.ResponseWriter, r *http.Request, from, to int64) bool {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from+1, to+1, to+2))
			w.WriteHeader(http.StatusPartialContent)
			return true
		},
		"a private redirect": func(w http.ResponseWriter, r *http.Request, _, _ int64) bool {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusTemporaryRedirect)
			return true
		},
	}
	for what, lie := range lies {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // most of it is waiting between attempts
			s := serveSlow(t)
			s.pushLazy(t, "lazy:1", nil)
			st := open(t, s.options(t))
			// The tables of contents are true. Large parts are lies; they wait for the pull's end.
			pulled := make(chan struct{})
			s.do(func(w http.ResponseWriter, r *http.Request, from, to int64) bool {
				if to-from < 100_000 {
					return false
				}
				select {
				case <-pulled:
				case <-r.Context().Done():
				}
				return lie(w, r, from, to)
			})
			got := s.pull(t, st, "lazy", true)
			close(pulled)
			var err error
			testenv.Eventually(t, "the fill fails", func() bool {
				_, err = st.Boot(context.Background(), got.ID)
				return carrel.KindOf(err) == carrel.Unavailable
			})
			t.Log(err)
			if ok, _ := image.IsWhole(got.Path); ok {
				t.Error("the image is taken for whole")
			}
			if carrel.HintOf(err) == "" {
				t.Error("no hint")
			}
		})
	}
}

// TestForgedTOC changes what the manifest says of a table of contents, and leaves it out.
func TestForgedTOC(t *testing.T) {
	needFiller(t)
	for what, change := range map[string]func(*mutate.Addendum){
		"another digest": func(a *mutate.Addendum) {
			a.Annotations[stargz.Annotation] = "sha256:" + strings.Repeat("0", 64)
		},
		"none": func(a *mutate.Addendum) { a.Annotations = nil },
	} {
		t.Run(what, func(t *testing.T) {
			s := serveSlow(t)
			s.pushLazy(t, "lazy:1", change)
			st := open(t, s.options(t))
			got := s.pull(t, st, "lazy", true)
			if got.Lazy == nil || got.Lazy.State != carrel.LazyWhole || got.Lazy.Reason == "" {
				t.Fatalf("%+v", got.Lazy)
			}
			t.Log(got.Lazy.Reason)
			if img, err := st.Get(context.Background(), got.ID); err != nil || img.Lazy != nil {
				t.Errorf("%+v %v", img.Lazy, err)
			}
		})
	}
}

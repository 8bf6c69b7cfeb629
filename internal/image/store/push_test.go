package store_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/registry"
	"github.com/carrel-dev/carrel/internal/image/stargz"
	"github.com/carrel-dev/carrel/internal/image/store"
)

// watched is a registry that remembers what it was asked.
type watched struct {
	host string
	mu   sync.Mutex
	log  []string
}

func watch(t *testing.T) *watched {
	t.Helper()
	w := &watched{}
	inner := server.New(server.Logger(log.New(io.Discard, "", 0)))
	ts := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.log = append(w.log, r.Method+" "+r.URL.String())
		w.mu.Unlock()
		// The library's registry knows no mounts. This one takes a layer that it has.
		if q := r.URL.Query(); r.Method == http.MethodPost && q.Get("mount") != "" {
			rec := httptest.NewRecorder()
			inner.ServeHTTP(rec, httptest.NewRequest(http.MethodHead,
				"/v2/"+q.Get("from")+"/blobs/"+q.Get("mount"), nil))
			if rec.Code == http.StatusOK {
				rw.WriteHeader(http.StatusCreated)
				return
			}
		}
		inner.ServeHTTP(rw, r)
	}))
	t.Cleanup(ts.Close)
	w.host = strings.TrimPrefix(ts.URL, "http://")
	return w
}

// asked returns the requests of a method since the last call.
func (w *watched) asked(method string) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.log {
		if strings.HasPrefix(l, method+" ") {
			out = append(out, l)
		}
	}
	w.log = nil
	return out
}

func (w *watched) options() store.Options {
	return store.Options{Registries: registry.Config{Keychain: authn.NewMultiKeychain(),
		Allow: []string{w.host}}}
}

// richRootfs is a root filesystem with every kind of entry that a template keeps.
func richRootfs(t *testing.T) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	when := time.Unix(1700000000, 123456789)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "bin/su", Mode: 0o4755, Size: 3},
		{Typeflag: tar.TypeLink, Name: "bin/hard", Linkname: "bin/su"},
		{Typeflag: tar.TypeSymlink, Name: "bin/soft", Linkname: "/bin/su"},
		{Typeflag: tar.TypeReg, Name: "bin/new\nline ü", Mode: 0o600, Uid: 1000, Gid: 100, Size: 3},
		{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o644},
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeReg, Name: "bin/" + strings.Repeat("x", 200), Mode: 0o644},
	} {
		h.ModTime, h.Format = when, tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte("abc"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// exported is a template's files as a tar stream.
func exported(t *testing.T, s *store.Store, path string) string {
	t.Helper()
	f, err := s.Files(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	if err := archive.Export(context.Background(), f, tar.NewWriter(&b)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPush(t *testing.T) {
	ctx := context.Background()
	reg := watch(t)
	s := open(t, reg.options())
	img, err := s.Import(ctx, "app", richRootfs(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	start := []string{"/bin/su", "-c", "x"}
	if img, err = s.Update(ctx, img.ID, carrel.TemplateUpdate{Start: &start}); err != nil {
		t.Fatal(err)
	}
	stages := map[string]bool{}
	ref := reg.host + "/team/app:1"
	pushed, err := s.Push(ctx, img.ID, carrel.PushOptions{Image: ref},
		func(p carrel.Progress) { stages[p.Stage] = true })
	if err != nil {
		t.Fatal(err)
	}
	if pushed.Sent != pushed.Size || pushed.Size == 0 || pushed.Image != ref ||
		!stages[image.StagePack] || !stages[image.StagePush] {
		t.Errorf("%+v %v", pushed, stages)
	}
	// Another client takes it for a whole image of this digest.
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	remoteImg, err := remote.Image(r)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := remoteImg.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	rc, err := layers[0].Uncompressed() // checks the digest of the packed layer, too
	if err != nil {
		t.Fatal(err)
	}
	sum, _, err := v1.SHA256(rc)
	if err = errors.Join(err, rc.Close()); err != nil {
		t.Error(err)
	}
	if want, err := layers[0].DiffID(); err != nil || sum != want {
		t.Errorf("unpacked, the layer has the digest %v, not %v: %v", sum, want, err)
	}
	if d, err := remoteImg.Digest(); err != nil || d.String() != pushed.Digest {
		t.Errorf("digest %v %v, not %s", d, err, pushed.Digest)
	}
	if d := layerOf(t, remoteImg); !strings.HasPrefix(d.Annotations[stargz.Annotation], "sha256:") ||
		d.Annotations[stargz.SizeAnnotation] == "" {
		t.Errorf("the layer's table of contents is not announced: %v", d.Annotations)
	}
	// Back again: the same files and the same start.
	back, err := s.Pull(ctx, "back", carrel.PullOptions{Image: ref}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(back.Start) != fmt.Sprint(start) || back.User != img.User ||
		exported(t, s, back.Path) != exported(t, s, img.Path) {
		t.Errorf("came back as %+v", back)
	}

	// The second time nothing is sent, from an equal template neither.
	reg.asked("")
	twin, err := s.Import(ctx, "twin", richRootfs(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if twin, err = s.Update(ctx, twin.ID, carrel.TemplateUpdate{Start: &start}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{img.ID, twin.ID, back.ID} {
		again, err := s.Push(ctx, id, carrel.PushOptions{Image: ref}, nil)
		if err != nil || again.Digest != pushed.Digest || again.Sent != 0 {
			t.Errorf("%+v %v", again, err)
		}
		if sent := reg.asked("PUT"); len(sent) > 0 {
			t.Errorf("sent again: %v", sent)
		}
	}
	// To another repository, the registry takes the layer from the first one.
	other, err := s.Push(ctx, img.ID, carrel.PushOptions{Image: reg.host + "/team/other:1"}, nil)
	if err != nil || other.Digest != pushed.Digest {
		t.Errorf("%+v %v", other, err)
	}
	for _, u := range reg.asked("PUT") {
		if strings.Contains(u, "blobs") {
			t.Errorf("sent again: %v", u)
		}
	}
	// Nothing is left behind.
	left, err := filepath.Glob(filepath.Join(t.TempDir(), "..", "*", "push-*"))
	if err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// layerOf returns the descriptor of an image's only layer.
func layerOf(t *testing.T, img v1.Image) v1.Descriptor {
	t.Helper()
	m, err := img.Manifest()
	if err != nil || len(m.Layers) != 1 {
		t.Fatal(m, err)
	}
	return m.Layers[0]
}

// TestPushNamesWithoutTOC pushes files that a table of contents can't name. The layer has none, and
// the files come back.
func TestPushNamesWithoutTOC(t *testing.T) {
	ctx := context.Background()
	reg := watch(t)
	s := open(t, reg.options())
	for i, odd := range []string{"bytes \xff", stargz.TOCName, ".no.prefetch.landmark"} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		h := tar.Header{Typeflag: tar.TypeReg, Name: odd, Mode: 0o644, Size: 3}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, "abc"); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		img, err := s.Import(ctx, fmt.Sprint("odd", i), &b, nil)
		if err != nil {
			t.Fatalf("%q: %v", odd, err)
		}
		ref := fmt.Sprintf("%s/odd:%d", reg.host, i)
		if _, err := s.Push(ctx, img.ID, carrel.PushOptions{Image: ref}, nil); err != nil {
			t.Fatalf("%q: %v", odd, err)
		}
		r, err := name.ParseReference(ref)
		if err != nil {
			t.Fatal(err)
		}
		there, err := remote.Image(r)
		if err != nil {
			t.Fatal(err)
		}
		if d := layerOf(t, there); len(d.Annotations) > 0 {
			t.Errorf("%q: a layer without a table of contents says %v", odd, d.Annotations)
		}
		back, err := s.Pull(ctx, fmt.Sprint("back", i), carrel.PullOptions{Image: ref}, nil)
		if err != nil {
			t.Fatalf("%q: %v", odd, err)
		}
		if got := exported(t, s, back.Path); got != exported(t, s, img.Path) ||
			!strings.Contains(got, odd) {
			t.Errorf("%q did not come back", odd)
		}
	}
}

func TestPushErrors(t *testing.T) {
	ctx := context.Background()
	reg := watch(t)
	s := open(t, reg.options())
	img := mustImport(t, s, "app", "x")
	push := func(id, ref string, own *carrel.RegistryCredentials) error {
		_, err := s.Push(ctx, id, carrel.PushOptions{Image: ref, Credentials: own}, nil)
		return err
	}
	wantKind(t, push("nobody", reg.host+"/a:1", nil), carrel.NotFound, "template")
	wantKind(t, push(store.SimID, reg.host+"/a:1", nil), carrel.Unsupported, "template")
	wantKind(t, push(img.ID, "Not A Name", nil), carrel.Invalid, "image")
	wantKind(t, push(img.ID, reg.host+"/a@sha256:"+strings.Repeat("0", 64), nil), carrel.Invalid,
		"image")
	wantKind(t, push(img.ID, "127.0.0.1:1/a:1", nil), carrel.Forbidden, "image")
	wantKind(t, push(img.ID, reg.host+"/a:1", &carrel.RegistryCredentials{Type: "x"}), carrel.Invalid,
		"credentials.type")

	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v2/":
		case r.Method == http.MethodHead:
			w.WriteHeader(http.StatusNotFound)
		default:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"errors":[{"code":"DENIED","message":"you may only read"}]}`)
		}
	}))
	defer full.Close()
	host := strings.TrimPrefix(full.URL, "http://")
	s = open(t, store.Options{Registries: registry.Config{Keychain: authn.NewMultiKeychain(),
		Allow: []string{host}}})
	img = mustImport(t, s, "app", "x")
	err := push(img.ID, host+"/a:1", nil)
	wantKind(t, err, carrel.Unauthenticated, "image")
	if !strings.Contains(fmt.Sprint(err), "you may only read") ||
		!strings.Contains(fmt.Sprint(err), host) {
		t.Error(err)
	}
	s = open(t, store.Options{Registries: registry.Config{Offline: true}})
	img = mustImport(t, s, "app", "x")
	wantKind(t, push(img.ID, "example.com/a:1", nil), carrel.Unsupported, "image")
}

// TestPushElsewhere lets the registry name another place for the upload. Without permission nothing
// goes there, and credentials never do.
func TestPushElsewhere(t *testing.T) {
	var got []string
	canary := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.Header.Get("Authorization"))
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
	}))
	defer canary.Close()
	reg := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, ok := r.BasicAuth()
		switch {
		case !ok:
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodHead:
			w.WriteHeader(http.StatusNotFound)
		case r.Method == http.MethodPost:
			w.Header().Set("Location", canary.URL+"/upload")
			w.WriteHeader(http.StatusAccepted)
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		}
	}))
	defer reg.Close()
	host := strings.TrimPrefix(reg.URL, "http://")
	own := &carrel.RegistryCredentials{Username: "me", Password: "sesame"}
	for _, allowed := range []bool{false, true} {
		allow := []string{host}
		if allowed {
			allow = append(allow, strings.TrimPrefix(canary.URL, "http://"))
		}
		s := open(t, store.Options{Registries: registry.Config{Allow: allow}})
		img := mustImport(t, s, "app", "x")
		_, err := s.Push(context.Background(), img.ID,
			carrel.PushOptions{Image: host + "/a:1", Credentials: own}, nil)
		if !allowed {
			wantKind(t, err, carrel.Forbidden, "image")
			if len(got) > 0 {
				t.Errorf("went to the canary: %v", got)
			}
			continue
		}
		if err != nil {
			t.Error(err)
		}
		if len(got) != 2 || got[0] != "PUT " || got[1] != "PUT " {
			t.Errorf("the canary got %q", got)
		}
	}
}

// TestEqualImages imports one archive twice: the two images are equal, byte for byte, because no
// time of the import is in them.
func TestEqualImages(t *testing.T) {
	s := open(t, store.Options{})
	var all [2][]byte
	for i, n := range []string{"one", "two"} {
		img, err := s.Import(context.Background(), n, richRootfs(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		if all[i], err = os.ReadFile(img.Path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("equal archives give different images")
	}
}

// TestPushStalls ends a push to a registry that stops reading, and waits for one that only takes
// its time to answer.
func TestPushStalls(t *testing.T) {
	t.Parallel()              // it mostly waits
	const stall = time.Second // a busy machine may stand still for a part of it
	for _, reads := range []bool{true, false} {
		ended := make(chan struct{})
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodHead:
				w.WriteHeader(http.StatusNotFound)
			case r.Method == http.MethodPost:
				w.Header().Set("Location", "/upload")
				w.WriteHeader(http.StatusAccepted)
			case r.Method == http.MethodPut && reads:
				_, _ = io.Copy(io.Discard, r.Body)
				time.Sleep(2 * stall)
				w.WriteHeader(http.StatusCreated)
			case r.Method == http.MethodPut:
				_, _ = r.Body.Read(make([]byte, 1))
				<-ended
			}
		}))
		defer ts.Close()
		defer close(ended)
		host := strings.TrimPrefix(ts.URL, "http://")
		s := open(t, store.Options{Registries: registry.Config{Keychain: authn.NewMultiKeychain(),
			Allow: []string{host}, StallTime: stall}})
		img := importBase(t, s, "app", 32<<20, "x") // more than sockets hold
		_, err := s.Push(context.Background(), img.ID, carrel.PushOptions{Image: host + "/a:1"}, nil)
		if reads && err != nil {
			t.Error(err)
		}
		if !reads {
			wantKind(t, err, carrel.Unavailable, "image")
			if !strings.Contains(fmt.Sprint(err), "took nothing") {
				t.Error(err)
			}
		}
	}
}

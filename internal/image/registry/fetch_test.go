package registry_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/carrel-dev/carrel"
	pull "github.com/carrel-dev/carrel/internal/image/registry"
)

// odd is a registry in front of which a handler may answer.
type odd struct {
	server
	mu    sync.Mutex
	asked []string                                                 // "METHOD path [range]"
	hook  func(w http.ResponseWriter, r *http.Request) (done bool) // nil: none
	inner http.Handler
}

func serveOdd(t *testing.T) *odd {
	t.Helper()
	o := &odd{inner: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.asked = append(o.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
		hook := o.hook
		o.mu.Unlock()
		if hook == nil || !hook(w, r) {
			o.inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(ts.Close)
	o.host = strings.TrimPrefix(ts.URL, "http://")
	return o
}

// count returns how many requests so far contained a text, and forgets all requests.
func (o *odd) count(text string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range o.asked {
		if strings.Contains(a, text) {
			n++
		}
	}
	o.asked = nil
	return n
}

func (o *odd) setHook(h func(http.ResponseWriter, *http.Request) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hook = h
}

// noise is content that does not compress.
func noise(size int) string {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{7})
	_, _ = r.Read(b)
	return string(b)
}

// imageOf puts layers into an image for this machine.
func imageOf(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	return img
}

// body returns the answer of the registry itself, without a hook.
func (o *odd) body(r *http.Request) (int, []byte) {
	plain := r.Clone(r.Context())
	plain.Header.Del("Range")
	rec := httptest.NewRecorder()
	o.inner.ServeHTTP(rec, plain)
	return rec.Code, rec.Body.Bytes()
}

// TestResume cuts every connection after a while. The download goes on where it was.
func TestResume(t *testing.T) {
	for _, ranges := range []bool{true, false} {
		o := serveOdd(t)
		big := noise(3 << 20)
		o.push(t, "app:1", imageOf(t, layer(t, "big", big)))
		var cuts, sent atomic.Int64
		o.setHook(func(w http.ResponseWriter, r *http.Request) bool {
			code, body := o.body(r)
			if !strings.Contains(r.URL.Path, "/blobs/") || r.Method != http.MethodGet || code != 200 ||
				len(body) < 1<<20 {
				return false
			}
			from := 0
			if text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && ranges {
				from, _ = strconv.Atoi(strings.TrimSuffix(text, "-"))
				w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
				w.WriteHeader(http.StatusPartialContent)
			}
			rest := body[from:]
			if most := 1 << 20; len(rest) > most && (ranges || cuts.Load() < 2) {
				rest = rest[:most]
			}
			n, _ := w.Write(rest)
			sent.Add(int64(n))
			if from+n < len(body) {
				cuts.Add(1)
				panic(http.ErrAbortHandler)
			}
			return true
		})
		img, _, err := fetch(t, o.host+"/app:1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if content(t, img, "big") != big {
			t.Error("other content")
		}
		if cuts.Load() < 2 {
			t.Errorf("ranges %t: %d cuts", ranges, cuts.Load())
		}
		if ranges && sent.Load() > 4<<20 {
			t.Errorf("%d bytes were sent for a layer of %d", sent.Load(), len(big))
		}
	}
}

// TestEndlessCuts ends: each connection brings a few bytes.
func TestEndlessCuts(t *testing.T) {
	o := serveOdd(t)
	o.push(t, "app:1", imageOf(t, layer(t, "big", noise(1<<20))))
	o.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		if code, body := o.body(r); strings.Contains(r.URL.Path, "/blobs/") && code == 200 &&
			len(body) > 1<<19 {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body[:100])
			panic(http.ErrAbortHandler)
		}
		return false
	})
	_, _, err := fetch(t, o.host+"/app:1", nil)
	wantKind(t, err, carrel.Unavailable, "cut off")
}

// TestDrip sends a byte now and then, in each part of an image.
func TestDrip(t *testing.T) {
	for _, part := range []string{"/manifests/", "/blobs/", "/v2/"} {
		o := serveOdd(t)
		o.push(t, "app:1", imageOf(t, layer(t, "big", noise(1<<20))))
		o.setHook(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, part) {
				return false
			}
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_, _ = w.Write([]byte(" "))
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return true
				}
			}
		})
		_, _, err := fetch(t, o.host+"/app:1", func(c *pull.Config,
			_ *pull.Request) {
			c.StallTime = 200 * time.Millisecond
		})
		wantKind(t, err, carrel.Unavailable, "sent only")
		if !strings.Contains(carrel.HintOf(err), "mirror") {
			t.Errorf("%s: hint %q", part, carrel.HintOf(err))
		}
	}
	// One that never begins.
	o := serveOdd(t)
	o.setHook(func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
	_, _, err := fetch(t, o.host+"/app:1", func(c *pull.Config,
		_ *pull.Request) {
		c.StallTime = 100 * time.Millisecond
	})
	wantKind(t, err, carrel.TimedOut, "response headers")
}

// TestPatience waits when the registry says how long, and tells the caller when that is too long.
func TestPatience(t *testing.T) {
	o := serveOdd(t)
	o.push(t, "app:1", sample(t, runtime.GOARCH))
	var left atomic.Int64
	wait := "1"
	o.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") && left.Add(-1) >= 0 {
			w.Header().Set("Retry-After", wait)
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		return false
	})
	left.Store(2)
	start := time.Now()
	if _, _, err := fetch(t, o.host+"/app:1", nil); err != nil || time.Since(start) < 2*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	left.Store(100)
	wait = "3600"
	_, _, err := fetch(t, o.host+"/app:1", nil)
	wantKind(t, err, carrel.Unavailable, o.host)
	if carrel.RetryAfterOf(err) != time.Hour ||
		!strings.Contains(fmt.Sprint(err), "limits how often") {
		t.Errorf("%v, retry after %v", err, carrel.RetryAfterOf(err))
	}
}

// TestKeptLayers pulls a second image over the same base: only its own layer is downloaded. Another
// project gets nothing of it.
func TestKeptLayers(t *testing.T) {
	o := serveOdd(t)
	base := layer(t, "base", noise(1<<20))
	digest, err := base.Digest()
	if err != nil {
		t.Fatal(err)
	}
	o.push(t, "one:1", imageOf(t, base, layer(t, "one", "1")))
	o.push(t, "two:1", imageOf(t, base, layer(t, "two", "2")))
	cache := filepath.Join(t.TempDir(), "kept")
	from := func(project string, most int64) func(*pull.Config, *pull.Request) {
		return func(c *pull.Config, r *pull.Request) {
			c.Cache, r.Project = pull.NewCache(cache, most, slog.New(slog.DiscardHandler)), project
		}
	}
	get := func(ref, project string, most int64) (downloads, baseDownloads int) {
		o.count("")
		img, _, err := fetch(t, o.host+"/"+ref, from(project, most))
		if err != nil || content(t, img, "base") != noise(1<<20) {
			t.Fatal(ref, err)
		}
		o.mu.Lock()
		asked := strings.Join(o.asked, "\n")
		o.mu.Unlock()
		if strings.Count(asked, "/manifests/") == 0 {
			t.Error("the registry was not asked for the manifest")
		}
		return strings.Count(asked, "GET /v2/"+ref[:3]+"/blobs/"), strings.Count(asked, digest.Hex)
	}
	if _, n := get("one:1", "p", 0); n != 1 {
		t.Errorf("the base was downloaded %d times", n)
	}
	if all, n := get("two:1", "p", 0); n != 0 || all != 2 { // its configuration and its own layer
		t.Errorf("of the second image %d parts were downloaded, and the base %d times", all, n)
	}
	if _, n := get("two:1", "q", 0); n != 1 {
		t.Error("another project got the layer")
	}
	// A damaged layer is downloaded again.
	for _, f := range files(t, cache) {
		if strings.HasSuffix(f, digest.Hex) {
			if err := os.WriteFile(f, []byte(noise(1<<20)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, n := get("one:1", "p", 0); n != 1 {
		t.Error("a damaged layer was used")
	}
	// The cache stays small: the layers that were not used for the longest time go.
	get("two:1", "q", 1000)
	total := int64(0)
	get("one:1", "r", 2000)
	for _, f := range files(t, cache) {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > 2000 {
		t.Errorf("%d bytes are kept", total)
	}
}

// TestOneDownload pulls an image several times at once: each layer is downloaded once.
func TestOneDownload(t *testing.T) {
	o := serveOdd(t)
	base := layer(t, "base", noise(1<<20))
	o.push(t, "app:1", imageOf(t, base))
	digest, err := base.Digest()
	if err != nil {
		t.Fatal(err)
	}
	cache := pull.NewCache(filepath.Join(t.TempDir(), "kept"), 0, slog.New(slog.DiscardHandler))
	c, err := pull.New(pull.Config{Keychain: authn.NewMultiKeychain(), Allow: []string{o.host},
		Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, _, err := build(t, c, dir, carrel.PullOptions{Image: o.host + "/app:1"},
				pull.Request{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := o.count("GET /v2/app/blobs/" + digest.String()); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

// TestMirrors asks the mirror first, and the registry when the mirror fails.
func TestMirrors(t *testing.T) {
	mirror, upstream := serveOdd(t), serveOdd(t)
	img := sample(t, runtime.GOARCH)
	mirror.push(t, "cached/team/app:1", img)
	upstream.push(t, "team/app:1", img)
	upstream.push(t, "team/other:1", img)
	cfg := func(c *pull.Config, _ *pull.Request) {
		c.Allow = []string{upstream.host}
		c.Mirrors = []pull.Mirror{{upstream.host, "http://" + mirror.host + "/cached"}}
	}
	upstream.count("")
	if _, _, err := fetch(t, upstream.host+"/team/app:1", cfg); err != nil {
		t.Fatal(err)
	}
	if n := upstream.count(""); n != 0 {
		t.Errorf("the registry was asked %d times", n)
	}
	if _, _, err := fetch(t, upstream.host+"/team/other:1", cfg); err != nil {
		t.Error("an image that the mirror lacks:", err)
	}
	// The mirror has the manifest, but loses the layers.
	mirror.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			if _, body := mirror.body(r); bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
				w.WriteHeader(http.StatusNotFound)
				return true
			}
		}
		return false
	})
	if _, _, err := fetch(t, upstream.host+"/team/app:1", cfg); err != nil {
		t.Error("a mirror that loses layers:", err)
	}
	// The caller's credentials are not for the mirror.
	var leaked atomic.Bool
	mirror.setHook(func(_ http.ResponseWriter, r *http.Request) bool {
		leaked.Store(leaked.Load() || r.Header.Get("Authorization") != "")
		return false
	})
	own := &carrel.RegistryCredentials{Username: "me", Password: "sesame"}
	if _, _, err := fetchWith(t, carrel.PullOptions{Image: upstream.host + "/team/app:1",
		Credentials: own}, cfg); err != nil || leaked.Load() {
		t.Errorf("%v, leaked %t", err, leaked.Load())
	}
	// The operator's are for the operator only.
	for _, operator := range []bool{false, true} {
		leaked.Store(false)
		_, _, err := fetch(t, upstream.host+"/team/app:1", func(c *pull.Config, r *pull.Request) {
			cfg(c, r)
			c.Keychain, r.Operator = keychain{mirror.host, "sesame"}, operator
		})
		if err != nil || leaked.Load() != operator {
			t.Errorf("operator %t: %v, credentials sent: %t", operator, err, leaked.Load())
		}
	}
	if _, err := pull.New(pull.Config{Mirrors: []pull.Mirror{{"a b", "https://x.test"}}}); err == nil {
		t.Error("a mirror of no registry")
	}
}

// TestOffline takes images from a directory, and reaches no registry.
func TestOffline(t *testing.T) {
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	img := sample(t, runtime.GOARCH)
	name := map[string]string{"org.opencontainers.image.ref.name": "python:3.12"}
	if err := p.AppendImage(img, layout.WithAnnotations(name)); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	offline := func(c *pull.Config, _ *pull.Request) {
		w := newWorld(t)
		*c = w.config() // any connection is an error
		c.Offline, c.Layout = true, dir
	}
	for _, ref := range []string{"python:3.12", "docker.io/library/python:3.12",
		"python@" + digest.String()} {
		got, res, err := fetch(t, ref, offline)
		if err != nil || res.Digest != digest.String() || content(t, got, "arch") != runtime.GOARCH {
			t.Errorf("%s: %v", ref, err)
		}
	}
	_, _, err = fetch(t, "python:3.13", offline)
	wantKind(t, err, carrel.NotFound, dir)
	_, _, err = fetch(t, "python:3.12", func(c *pull.Config,
		r *pull.Request) {
		offline(c, r)
		c.Layout = ""
	})
	wantKind(t, err, carrel.Unsupported, "offline")
	// With a network, the directory goes first and the registry second.
	o := serveOdd(t)
	o.push(t, "app:1", img)
	both := func(c *pull.Config, _ *pull.Request) { c.Layout = dir }
	if _, _, err := fetch(t, o.host+"/app:1", both); err != nil {
		t.Error(err)
	}
	// A damaged layer of the directory is refused.
	for _, f := range files(t, filepath.Join(dir, "blobs")) {
		if info, err := os.Stat(f); err == nil && info.Size() > 100 && !strings.HasSuffix(f, digest.Hex) {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			raw[len(raw)-1] ^= 1
			if err := os.WriteFile(f, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, _, err = fetch(t, "python:3.12", offline)
	if err == nil {
		t.Error("damaged content was used")
	}
}

// TestPlatform takes this machine's platform and no other.
func TestPlatform(t *testing.T) {
	s := serve(t)
	s.push(t, "app:1", sample(t, runtime.GOARCH))
	for _, p := range []string{"", "linux/" + runtime.GOARCH, "linux/" + runtime.GOARCH + "/v3"} {
		if _, _, err := fetchWith(t, carrel.PullOptions{Image: s.host + "/app:1", Platform: p},
			nil); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{"linux/s390x", "windows/" + runtime.GOARCH, "linux", "x"} {
		_, _, err := fetchWith(t, carrel.PullOptions{Image: s.host + "/app:1", Platform: p}, nil)
		wantKind(t, err, carrel.Unsupported, p)
	}
}

// TestCredentialKinds opens a registry with each kind of credentials that a request may carry.
func TestCredentialKinds(t *testing.T) {
	s := serve(t)
	s.push(t, "app:1", sample(t, runtime.GOARCH))
	get := func(own carrel.RegistryCredentials, endpoint string) error {
		_, _, err := fetchWith(t, carrel.PullOptions{Image: s.host + "/app:1", Credentials: &own},
			func(c *pull.Config, r *pull.Request) {
				c.AWSEndpoint, r.Operator = endpoint, false
			})
		return err
	}
	s.password = "sesame"
	if err := get(carrel.RegistryCredentials{Type: "registry", Username: "me", Password: "sesame"},
		""); err != nil {
		t.Error(err)
	}
	err := get(carrel.RegistryCredentials{Username: "me", Password: "wr0ng"}, "")
	wantKind(t, err, carrel.Unauthenticated, s.host)
	if strings.Contains(fmt.Sprint(err), "wr0ng") {
		t.Error("the error holds the password")
	}

	var asked http.Header
	aws := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=AKIA/") {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w,
				`{"__type":"UnrecognizedClientException","message":"The security token is invalid."}`)
			return
		}
		token := base64.StdEncoding.EncodeToString([]byte("me:sesame"))
		_, _ = io.WriteString(w, `{"authorizationData":[{"authorizationToken":"`+token+`"}]}`)
	}))
	defer aws.Close()
	keys := carrel.RegistryCredentials{Type: "aws", AWSAccessKeyID: "AKIA",
		AWSSecretAccessKey: "53cret", AWSRegion: "eu-west-1"}
	if err := get(keys, aws.URL); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(asked.Get("X-Amz-Target"), ".GetAuthorizationToken") ||
		!strings.Contains(asked.Get("Authorization"), "/eu-west-1/ecr/aws4_request") {
		t.Errorf("asked with %v", asked)
	}
	wantKind(t, get(keys, ""), carrel.Invalid, "Amazon ECR") // the registry is none of Amazon's
	keys.AWSAccessKeyID = "other"
	wantKind(t, get(keys, aws.URL), carrel.Unauthenticated, "The security token is invalid.")
	keys.AWSRegion = "../x"
	wantKind(t, get(keys, aws.URL), carrel.Invalid, "region")

	s.user, s.password = "_json_key", `{"type":"service_account"}`
	if err := get(carrel.RegistryCredentials{Type: "gcp", ServiceAccountJSON: s.password},
		""); err != nil {
		t.Error(err)
	}
	for _, bad := range []carrel.RegistryCredentials{{Type: "gcp", ServiceAccountJSON: "x"},
		{Type: "azure"}, {}, {Username: "me"}, {Type: "aws"}} {
		wantKind(t, get(bad, ""), carrel.Invalid, "credentials.")
	}
	secret := carrel.RegistryCredentials{Password: "sesame"}
	if text := fmt.Sprintf("%v %+v %#v %s", secret, secret, secret,
		slog.AnyValue(secret).Resolve()); strings.Contains(text, "sesame") {
		t.Errorf("printed as %s", text)
	}
}

// TestLies sends parts that are not what they should be. Each is refused with its reason, and
// nothing stays on the disk (fetch looks).
func TestLies(t *testing.T) {
	o := serveOdd(t)
	digest := o.push(t, "app:1", imageOf(t, layer(t, "big", noise(1<<20))))
	answer := func(part string, change func([]byte) []byte) {
		o.setHook(func(w http.ResponseWriter, r *http.Request) bool {
			code, body := o.body(r)
			isLayer := bytes.HasPrefix(body, []byte{0x1f, 0x8b})
			if r.Method != http.MethodGet || code != 200 || !strings.Contains(r.URL.Path, part) ||
				strings.Contains(part, "blobs") && !isLayer {
				return false
			}
			_, _ = w.Write(change(body))
			return true
		})
	}
	for _, c := range []struct {
		what, part string
		change     func([]byte) []byte
		says       string
	}{
		{"another layer of the same size", "/blobs/",
			func(b []byte) []byte { return bytes.Repeat([]byte{1}, len(b)) }, "digest"},
		{"a longer layer", "/blobs/", func(b []byte) []byte { return append(b, 1) }, "gives more"},
		{"an endless manifest", "/manifests/", func(
			[]byte) []byte {
			return bytes.Repeat([]byte{' '}, 9<<20)
		}, "more than"},
		{"a manifest that is none", "/manifests/", func([]byte) []byte { return []byte("<html>") },
			"manifest"},
		{"an empty manifest", "/manifests/", func([]byte) []byte { return []byte("{}") }, "neither"},
		{"a negative size", "/manifests/", func(b []byte) []byte {
			return bytes.ReplaceAll(b,
				[]byte(`"size":`), []byte(`"size":-`))
		}, ""},
		{"a digest of another kind", "/manifests/",
			func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("sha256:"), []byte("md5:")) }, ""},
		{"another media type", "/manifests/", func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("container.image.v1+json"), []byte("helm.config.v1+json"))
		}, "helm"},
	} {
		answer(c.part, c.change)
		_, _, err := fetch(t, o.host+"/app:1", nil)
		if carrel.KindOf(err) != carrel.Invalid || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v of kind %q, want one that says %q", c.what, err, carrel.KindOf(err), c.says)
		}
	}
	answer("/manifests/", func(b []byte) []byte { return append(b, ' ') })
	_, _, err := fetch(t, o.host+"/app@"+digest.String(), nil)
	wantKind(t, err, carrel.Invalid, "digest")
	// A huge size is refused before a byte is downloaded.
	answer("/manifests/", func(b []byte) []byte {
		return bytes.ReplaceAll(b, []byte(`"size":`), []byte(`"size":9999999`))
	})
	_, _, err = fetch(t, o.host+"/app:1", nil)
	wantKind(t, err, carrel.Exhausted, "MaxBytes")
	// Indexes in a circle.
	o.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			fmt.Fprintf(w,
				`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","size":1,"digest":"sha256:%064d"}]}`, 1)
			return true
		}
		return false
	})
	_, _, err = fetch(t, o.host+"/app:1", nil)
	wantKind(t, err, carrel.Invalid, "")
}

// TestReleaseEndsDownloads shows that no download outlives a pull that nobody wants any more.
func TestReleaseEndsDownloads(t *testing.T) {
	o := serveOdd(t)
	o.push(t, "app:1", imageOf(t, layer(t, "big", noise(1<<20))))
	o.setHook(func(w http.ResponseWriter, r *http.Request) bool {
		if code, body := o.body(r); strings.Contains(r.URL.Path, "/blobs/") && code == 200 &&
			len(body) > 1<<19 {
			_, _ = w.Write(body[:1000])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
		return false
	})
	dir := t.TempDir()
	c, err := pull.New(pull.Config{Keychain: authn.NewMultiKeychain(), Allow: []string{o.host},
		Cache: pull.NewCache(dir, 0, slog.Default())})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	src, release, err := c.Pull(context.Background(), carrel.PullOptions{Image: o.host + "/app:1"},
		pull.Request{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { _, err := src.Layers[0].Open(context.Background()); done <- err }()
	release()
	wantKind(t, <-done, carrel.TimedOut, "")
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestDockerConfiguration takes credentials from the file that docker login writes, and from a
// credential helper that it names.
func TestDockerConfiguration(t *testing.T) {
	s := serve(t)
	s.push(t, "app:1", sample(t, runtime.GOARCH))
	s.password = "sesame"
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	helper := "#!/bin/sh\nread -r host\nprintf '{\"ServerURL\":\"%s\",\"Username\":\"me\",\"Secret\":\"sesame\"}' \"$host\"\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte(helper),
		0o700); err != nil {
		t.Fatal(err)
	}
	get := func(config string) error {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := fetch(t, s.host+"/app:1", func(c *pull.Config, _ *pull.Request) { c.Keychain = nil })
		return err
	}
	basic := base64.StdEncoding.EncodeToString([]byte("me:sesame"))
	if err := get(`{"auths":{"` + s.host + `":{"auth":"` + basic + `"}}}`); err != nil {
		t.Error("a login:", err)
	}
	if err := get(`{"credHelpers":{"` + s.host + `":"test"}}`); err != nil {
		t.Error("a helper:", err)
	}
	wantKind(t, get(`{"auths":{"other.example.com":{"auth":"`+basic+`"}}}`), carrel.Unauthenticated,
		s.host)
}

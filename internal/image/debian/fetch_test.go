package debian_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/debian"
)

// big is a package whose bytes do not fit into one packet.
func big(t testing.TB) packed {
	text := make([]byte, 300<<10)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(text) // it never fails
	return deb(t, "big", "gz", "", nil, file{name: "./usr/share/big", text: string(text)})
}

func TestFetch(t *testing.T) {
	a, b := deb(t, "a", "xz", "", nil), big(t)
	m := newMirror(t, a, b)
	f := m.fetcher(t)
	var last atomic.Int64
	meter := image.NewMeter(func(p carrel.Progress) {
		if p.Stage == debian.StageFetch {
			last.Store(p.Done)
		}
	})
	if err := f.Fetch(t.Context(), pinsOf(a, b), meter); err != nil {
		t.Fatal(err)
	}
	if want := a.pin.Size + b.pin.Size; last.Load() != want {
		t.Errorf("progress of %d bytes, not %d", last.Load(), want)
	}
	rc, err := f.Open(b.pin)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	if got, err := io.ReadAll(rc); err != nil || !bytes.Equal(got, b.raw) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// The cache serves the second time, also without a mirror.
	n := len(m.requests())
	f.Mirror = debian.Mirror{}
	if err := f.Fetch(t.Context(), pinsOf(a, b), nil); err != nil || len(m.requests()) != n {
		t.Errorf("from the cache: %v, %d requests", err, len(m.requests())-n)
	}
}

// TestFetchContinues has a mirror that cuts each answer off. Every attempt goes on where the last
// one ended, also in another process.
func TestFetchContinues(t *testing.T) {
	b := big(t)
	m := newMirror(t, b)
	cut := func(w http.ResponseWriter, r *http.Request, raw []byte) bool {
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(raw[:100<<10])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	m.set(cut)
	f := m.fetcher(t)
	f.Attempts = 1
	if err := f.Fetch(t.Context(), pinsOf(b), nil); carrel.KindOf(err) != carrel.Unavailable {
		t.Fatalf("cut off: %v", err)
	}
	m.set(nil)
	again := debian.NewFetcher(f.Mirror, f.Dir)
	if err := again.Fetch(t.Context(), pinsOf(b), nil); err != nil {
		t.Fatal(err)
	}
	asked := m.requests()
	if last := asked[len(asked)-1]; !strings.HasSuffix(last, "bytes=102400-") {
		t.Errorf("the rest was asked for by %q", last)
	}
	if rc, err := again.Open(b.pin); err != nil {
		t.Error(err)
	} else {
		_ = rc.Close()
	}
	left, err := filepath.Glob(filepath.Join(f.Dir, "*.part"))
	if err != nil || len(left) > 0 {
		t.Errorf("parts left: %v %v", left, err)
	}
}

// TestFetchAttacks has mirrors that lie, and checks that nothing of theirs stays in the cache.
func TestFetchAttacks(t *testing.T) {
	b := big(t)
	elsewhere := newMirror(t, b) // another server that only this machine reaches
	to := func(address string) func(http.ResponseWriter, *http.Request, []byte) bool {
		return func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			w.Header().Set("Location", address)
			w.WriteHeader(http.StatusFound)
			return true
		}
	}
	drip := func(every time.Duration) func(http.ResponseWriter, *http.Request, []byte) bool {
		return func(w http.ResponseWriter, r *http.Request, raw []byte) bool {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for i := range raw {
				select {
				case <-r.Context().Done():
					return true
				case <-tick.C:
				}
				_, _ = w.Write(raw[i : i+1])
				w.(http.Flusher).Flush()
			}
			return true
		}
	}
	for _, c := range []struct {
		name, want string
		handle     func(http.ResponseWriter, *http.Request, []byte) bool
		change     func(*debian.Fetcher)
	}{
		{"other bits of the same size", "SHA-256",
			func(w http.ResponseWriter, _ *http.Request, raw []byte) bool {
				evil := bytes.Clone(raw)
				evil[len(evil)-1]++
				_, _ = w.Write(evil)
				return true
			}, nil},
		{"too much", "more than the package has", func(w http.ResponseWriter, _ *http.Request,
			raw []byte) bool {
			_, _ = w.Write(append(bytes.Clone(raw), make([]byte, 1<<20)...))
			return true
		}, nil},
		{"too little", "10 of 3", func(w http.ResponseWriter, r *http.Request, raw []byte) bool {
			_, _ = w.Write(raw[:10])
			return true
		}, nil},
		{"a wrong range", "SHA-256", func(w http.ResponseWriter, r *http.Request, raw []byte) bool {
			if r.Header.Get("Range") == "" {
				_, _ = w.Write(raw[:10])
				return true
			}
			w.Header().Set("Content-Range", "bytes 10-20/21")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(raw[:len(raw)-10])
			return true
		}, nil},
		{"nothing", "sent nothing for", drip(time.Hour),
			func(f *debian.Fetcher) { f.Stall = 50 * time.Millisecond }},
		{"drops", "too slow", drip(10 * time.Millisecond),
			func(f *debian.Fetcher) { f.Grace, f.MinRate = 200*time.Millisecond, 1<<30 }},
		{"a redirect to a metadata service", "no public address",
			to("http://169.254.169.254/latest/meta-data/"), nil},
		{"a redirect to IPv6 metadata", "no public address", to("http://[fd00:ec2::254]/"), nil},
		{"a redirect to this machine", "no public address", to(elsewhere.url), nil},
		{"a redirect to a name of this machine", "no public address",
			to("http://localhost" + elsewhere.url[strings.LastIndex(elsewhere.url, ":"):]), nil},
		{"a redirect to a mapped address", "no public address", to("http://[::ffff:169.254.169.254]/"),
			nil},
		{"a redirect to a file", "redirects from http to", to("file:///etc/passwd"), nil},
		{"redirects without end", "again and again",
			func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
				return true
			}, nil},
		{"not there", "no longer has", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			http.NotFound(w, r)
			return true
		}, nil},
		{"a failing server", "503", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			http.Error(w, "secret of the mirror", http.StatusServiceUnavailable)
			return true
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMirror(t, b)
			m.set(c.handle)
			f := m.fetcher(t)
			f.Attempts = 2
			if c.change != nil {
				c.change(f)
			}
			err := f.Fetch(t.Context(), pinsOf(b), nil)
			if carrel.KindOf(err) != carrel.Unavailable || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("%v", err)
			}
			if carrel.HintOf(err) == "" {
				t.Error("no hint")
			}
			if found, _ := filepath.Glob(filepath.Join(f.Dir, "*.deb")); len(found) > 0 {
				t.Errorf("the cache has %v", found)
			}
		})
	}
	if asked := elsewhere.requests(); len(asked) > 0 {
		t.Errorf("a redirect reached another server of this machine: %v", asked)
	}
}

// TestFetchRetries has a mirror that works at the third attempt.
func TestFetchRetries(t *testing.T) {
	b := big(t)
	m := newMirror(t, b)
	var tries atomic.Int32
	m.set(func(w http.ResponseWriter, r *http.Request, raw []byte) bool {
		switch tries.Add(1) {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
			return true
		case 2:
			_, _ = w.Write([]byte(strings.Repeat("x", len(raw)))) // wrong, so it must begin anew
			return true
		}
		return false
	})
	f := m.fetcher(t)
	if err := f.Fetch(t.Context(), pinsOf(b), nil); err != nil {
		t.Fatal(err)
	}
	if asked := m.requests(); len(asked) != 3 || strings.Contains(asked[2], "bytes=") {
		t.Errorf("%q", asked)
	}
}

func TestFetchWithoutMirror(t *testing.T) {
	b := big(t)
	f := debian.NewFetcher(debian.Mirror{}, t.TempDir())
	err := f.Fetch(t.Context(), pinsOf(b), nil)
	if carrel.KindOf(err) != carrel.Unavailable ||
		!strings.Contains(carrel.HintOf(err), "--debian-mirror") {
		t.Errorf("%v, hint %q", err, carrel.HintOf(err))
	}
}

// TestFetchCalledOff ends the context while the mirror is silent.
func TestFetchCalledOff(t *testing.T) {
	b := big(t)
	m := newMirror(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	m.set(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		cancel()
		<-r.Context().Done()
		return true
	})
	if err := m.fetcher(t).Fetch(ctx, pinsOf(b), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestOpenChecks changes a package in the cache.
func TestOpenChecks(t *testing.T) {
	b := big(t)
	f := newMirror(t, b).fetcher(t)
	if err := f.Fetch(t.Context(), pinsOf(b), nil); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(f.Dir, b.pin.SHA256+".deb")
	if err := os.WriteFile(name, append(b.raw[:len(b.raw)-1:len(b.raw)-1], 0x55), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Open(b.pin); err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("%v", err)
	}
	if err := f.Fetch(t.Context(), pinsOf(b), nil); err != nil {
		t.Fatal(err)
	}
	rc, err := f.Open(b.pin)
	if err != nil {
		t.Fatal(err)
	}
	_ = rc.Close()
}

func TestPrune(t *testing.T) {
	a, b := deb(t, "a", "gz", "", nil), big(t)
	f := newMirror(t, a, b).fetcher(t)
	if err := f.Fetch(t.Context(), pinsOf(a, b), nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Dir, "old.part"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.Prune(pinsOf(a), time.Now()) // everything is young
	if left := names(t, f.Dir); len(left) != 3 {
		t.Fatalf("%v", left)
	}
	f.Prune(pinsOf(a), time.Now().Add(100*24*time.Hour))
	if left := names(t, f.Dir); !slices.Equal(left, []string{a.pin.SHA256 + ".deb"}) {
		t.Errorf("%v", left)
	}
}

func names(t testing.TB, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

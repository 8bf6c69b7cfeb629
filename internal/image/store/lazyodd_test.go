package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// isContents reports whether a request is for contents of files. Those for a table of contents are
// smaller in these tests.
func isContents(from, to int64) bool { return to-from > 100_000 }

// truth is the answer to a request for a part of a layer.
func (s *slow) truth(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.inner.ServeHTTP(w, r)
	return w
}

// misbehave makes the registry answer requests for contents as odd does, from now on. Those of a pull
// that runs wait for its end.
func (s *slow) misbehave(odd func(w http.ResponseWriter, r *http.Request, from, to int64) bool) (pulled func()) {
	wait := make(chan struct{})
	s.do(func(w http.ResponseWriter, r *http.Request, from, to int64) bool {
		if !isContents(from, to) {
			return false
		}
		select {
		case <-wait:
		case <-r.Context().Done():
		}
		return odd(w, r, from, to)
	})
	return sync.OnceFunc(func() { close(wait) })
}

// oddPull pulls the image whole and lazily. It returns the store, the template that is filled from a
// registry that is odd from then on, its open view, and the bytes that the view should have.
func oddPull(t *testing.T, s *slow, change func(*store.Options),
	odd func(w http.ResponseWriter, r *http.Request, from, to int64) bool) (st *store.Store,
	got image.Image, view *os.File, want []byte) {
	t.Helper()
	needFiller(t)
	t.Parallel() // most of it is waiting between attempts
	s.pushLazy(t, "lazy:1", nil)
	opts := s.options(t)
	if change != nil {
		change(&opts)
	}
	st = open(t, opts)
	want, err := os.ReadFile(s.pull(t, st, "whole", false).Path)
	if err != nil {
		t.Fatal(err)
	}
	pulled := s.misbehave(odd)
	defer pulled()
	got = s.pull(t, st, "lazy", true)
	if got.Lazy == nil || got.Lazy.State != carrel.LazyFilling {
		t.Fatalf("%+v", got.Lazy)
	}
	img, err := st.Boot(context.Background(), got.ID)
	if err == nil {
		view, err = os.Open(img.View)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = view.Close() })
	return st, got, view, want
}

// readView reads all parts of a view at once. Each is right, or fails with EIO. It returns how many
// were right and failed, and how long the last one took.
func readView(t *testing.T, view *os.File, want []byte) (right, failed int64, took time.Duration) {
	t.Helper()
	const part = 128 << 10
	var wg sync.WaitGroup
	var ok, bad atomic.Int64
	start := time.Now()
	for at := 0; at < len(want); at += part {
		wg.Go(func() {
			b := make([]byte, min(part, len(want)-at))
			switch n, err := view.ReadAt(b, int64(at)); {
			case errors.Is(err, unix.EIO):
				bad.Add(1)
			case err != nil && err != io.EOF:
				t.Errorf("a read from %d on: %v", at, err)
			case !bytes.Equal(b[:n], want[at:at+n]) || n == 0:
				t.Errorf("%d bytes from %d on are wrong", n, at)
			default:
				ok.Add(1)
			}
		})
	}
	wg.Wait()
	right, failed, took = ok.Load(), bad.Load(), time.Since(start)
	t.Logf("%d reads were right, %d failed, in %v", right, failed, took)
	return right, failed, took
}

// healed waits until the image is whole from a registry that is sane again.
func healed(t *testing.T, s *slow, st *store.Store, id string, want []byte) {
	t.Helper()
	s.judge.Store(nil)
	if got, err := os.ReadFile(whole(t, st, id).Path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the image that was filled later is another one: %v", err)
	}
}

// TestLazyWithoutRanges pulls lazily from a registry that sends layers only as a whole: the image
// comes whole. One that sends no parts any more after the pull fails the fill, with the reason.
func TestLazyWithoutRanges(t *testing.T) {
	noRanges := func(_ http.ResponseWriter, r *http.Request, _, _ int64) bool {
		r.Header.Del("Range")
		return false
	}
	t.Run("from the beginning", func(t *testing.T) {
		needFiller(t)
		t.Parallel()
		s := serveSlow(t)
		s.pushLazy(t, "lazy:1", nil)
		st := open(t, s.options(t))
		want := s.pull(t, st, "whole", false)
		s.do(noRanges)
		got := s.pull(t, st, "lazy", true)
		if got.Lazy == nil || got.Lazy.State != carrel.LazyWhole ||
			!strings.Contains(got.Lazy.Reason, "does not give parts") {
			t.Fatalf("%+v", got.Lazy)
		}
		if a, b := sumFile(t, whole(t, st, got.ID).Path), sumFile(t, want.Path); a != b {
			t.Errorf("the image is %s, pulled whole it is %s", a, b)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(got.Path), "fill.*")); err != nil ||
			len(left) > 0 {
			t.Error(left, err)
		}
	})
	t.Run("after the pull", func(t *testing.T) {
		s := serveSlow(t)
		st, got, view, want := oddPull(t, s, nil, noRanges)
		if _, failed, _ := readView(t, view, want); failed == 0 {
			t.Error("no read fails")
		}
		var err error
		testenv.Eventually(t, "the fill fails", func() bool {
			_, err = st.Boot(context.Background(), got.ID)
			return carrel.KindOf(err) == carrel.Unavailable
		})
		if !strings.Contains(err.Error(), "does not give parts") || carrel.HintOf(err) == "" {
			t.Errorf("%v; hint: %s", err, carrel.HintOf(err))
		}
	})
}

// TestLazyTruncated pulls from a registry that sends less than it was asked for: it breaks the
// connection, or says that it sends a shorter range.
func TestLazyTruncated(t *testing.T) {
	const most = 300_000
	s := serveSlow(t)
	turn := new(atomic.Int64)
	truncate := func(w http.ResponseWriter, r *http.Request, from, to int64) bool {
		body := s.truth(r).Body.Bytes()
		cut := body[:min(len(body), most)]
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", from, to))
		if turn.Add(1)%2 == 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(body))) // and then it breaks
		} else {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", from, from+int64(len(cut))-1))
		}
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(cut)
		return true
	}
	st, got, view, want := oddPull(t, s, nil, truncate)
	right, failed, took := readView(t, view, want)
	if right == 0 || failed == 0 || took > 30*time.Second {
		t.Errorf("%d reads were right, %d failed, in %v", right, failed, took)
	}
	if img, err := st.Boot(context.Background(), got.ID); err != nil || img.Lazy == nil {
		t.Errorf("after answers that were cut, it says %+v %v", img.Lazy, err)
	}
	healed(t, s, st, got.ID, want)
	if right, failed, _ = readView(t, view, want); failed > 0 || right == 0 {
		t.Errorf("of a whole image %d reads fail", failed)
	}
	// A table of contents that is cut refuses the pull, and nothing is left of it.
	s.do(func(w http.ResponseWriter, r *http.Request, from, to int64) bool {
		body := s.truth(r).Body.Bytes()
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", from, to))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(body[:len(body)/2])
		return true
	})
	refused(t, s, st, carrel.Unavailable)
}

// refused pulls once more, which must fail at once and leave nothing.
func refused(t *testing.T, s *slow, st *store.Store, kind carrel.Kind) {
	t.Helper()
	before, err := st.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err = st.Pull(t.Context(), "again", carrel.PullOptions{Image: s.host + "/lazy:1", Lazy: true}, nil)
	if carrel.KindOf(err) != kind || carrel.HintOf(err) == "" || time.Since(start) > 30*time.Second {
		t.Errorf("after %v: %v; hint: %s", time.Since(start), err, carrel.HintOf(err))
	}
	if after, err := st.List(t.Context()); err != nil || len(after) != len(before) {
		t.Errorf("a refused pull left a template: %v", err)
	}
}

// TestLazyDrip pulls from a registry that sends some bytes each second. Reads fail in bounded time,
// and the fill goes on when the registry is sane again.
func TestLazyDrip(t *testing.T) {
	s := serveSlow(t)
	drip := func(w http.ResponseWriter, r *http.Request, from, to int64) bool {
		body := s.truth(r).Body.Bytes()
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/*", from, to))
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(http.StatusPartialContent)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := range body {
			_, _ = w.Write(body[i : i+1])
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return true
			}
		}
		return true
	}
	st, got, view, want := oddPull(t, s, func(o *store.Options) {
		o.Registries.StallTime = 200 * time.Millisecond
	}, drip)
	_, failed, took := readView(t, view, want)
	if failed == 0 || took > 30*time.Second {
		t.Errorf("%d reads failed in %v", failed, took)
	}
	healed(t, s, st, got.ID, want)
	if _, failed, _ = readView(t, view, want); failed > 0 {
		t.Errorf("of a whole image %d reads fail", failed)
	}
	s.do(drip)
	refused(t, s, st, carrel.Unavailable)
}

// TestLazyLie changes one byte of one chunk. Reads of that chunk fail, all others are right, and the
// template can't be used any more.
func TestLazyLie(t *testing.T) {
	const place = 3_000_000 // in the lower layer
	s := serveSlow(t)
	st, got, view, want := oddPull(t, s, nil, func(w http.ResponseWriter, r *http.Request, from, to int64) bool {
		if place < from || place > to {
			return false
		}
		answer := s.truth(r)
		body := answer.Body.Bytes()
		body[place-from] ^= 1
		w.Header().Set("Content-Range", answer.Header().Get("Content-Range"))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
		return true
	})
	right, failed, _ := readView(t, view, want)
	if failed == 0 || right < failed {
		t.Errorf("%d reads were right, %d failed", right, failed)
	}
	var err error
	testenv.Eventually(t, "the fill fails", func() bool {
		_, err = st.Boot(context.Background(), got.ID)
		return carrel.KindOf(err) == carrel.Unavailable
	})
	if !strings.Contains(err.Error(), "sha256:") || carrel.HintOf(err) == "" {
		t.Errorf("%v; hint: %s", err, carrel.HintOf(err))
	}
	if again, _, _ := readView(t, view, want); again < right {
		t.Errorf("%d reads were right, before the fill failed %d", again, right)
	}
	if ok, _ := image.IsWhole(got.Path); ok {
		t.Error("the image is taken for whole")
	}
}

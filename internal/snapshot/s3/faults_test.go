package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/blobtest"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
)

// TestServerDies stops the server and starts it again.
func TestServerDies(t *testing.T) {
	server := s3test.Start(t)
	loc := server.URL(server.Bucket(t), "p")
	o := options(server)
	o.Retries = 2
	b := open(t, loc, o)
	defer b.Close()
	content := blobtest.Content(1, 100_000)
	put(t, b, "x", content)
	server.Stop()
	_, err := read(t.Context(), b, "x")
	wantError(t, "Get", err, carrel.Unavailable, server.SecretKey)
	wantError(t, "Put", b.Put(t.Context(), "y", strings.NewReader("y"), 1), carrel.Unavailable)
	wantError(t, "Delete", b.Delete(t.Context(), "x"), carrel.Unavailable)
	wantError(t, "List", b.List(t.Context(), "", func(snapshot.BlobInfo) error { return nil }), carrel.Unavailable)
	wantError(t, "Open", tryOpen(t, loc, o), carrel.Unavailable)
	server.Restart(t)
	wantContent(t, b, "x", content)
	put(t, b, "y", []byte("y"))
}

func TestSlowDown(t *testing.T) {
	server := s3test.Start(t)
	o := options(server)
	o.Retries = 4
	b, proxy := openFaulty(t, server, server.Bucket(t), o)
	var seen sync.Map
	proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
		_, again := seen.LoadOrStore(r.Method+r.URL.String(), true) // each is told so once
		if !again {
			_, _ = io.Copy(io.Discard, r.Body)
			slowDown(w)
		}
		return !again
	})
	for _, size := range []int{1000, 12 << 20} {
		content := blobtest.Content(2, size)
		put(t, b, "x", content)
		wantContent(t, b, "x", content)
	}
	if err := b.Delete(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		slowDown(w)
		return true
	})
	before := proxy.requests.Load()
	_, err := read(t.Context(), b, "x")
	wantError(t, "Get from a server that is always busy", err, carrel.Unavailable)
	if tries := proxy.requests.Load() - before; tries != 4 {
		t.Errorf("it was tried %d times, want 4", tries)
	}
}

// TestLostRace makes the server answer writes with a conflict. A write that then succeeds must
// work; one that always loses is Conflict.
func TestLostRace(t *testing.T) {
	server := s3test.Start(t)
	b, proxy := openFaulty(t, server, server.Bucket(t), options(server))
	conflict := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `<Error><Code>OperationAborted</Code><Message>A conflicting operation is in progress.</Message></Error>`)
	}
	var seen sync.Map
	proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
		_, again := seen.LoadOrStore(r.Method+r.URL.String(), true)
		refuse := !again && (r.Method == http.MethodPut || r.Method == http.MethodPost) && !strings.Contains(r.URL.RawQuery, "partNumber") && !strings.Contains(r.URL.RawQuery, "uploads")
		if refuse {
			conflict(w, r)
		}
		return refuse
	})
	for _, size := range []int{1000, 12 << 20} {
		name := fmt.Sprint("x", size)
		content := blobtest.Content(2, size)
		put(t, b, name, content)
		wantContent(t, b, name, content)
	}
	proxy.set(func(w http.ResponseWriter, r *http.Request) bool { conflict(w, r); return true })
	err := b.Put(t.Context(), "y", strings.NewReader("y"), 1)
	wantError(t, "Put that always loses", err, carrel.Conflict)
}

// TestBrokenDownload breaks each answer after some bytes. Reading must continue from there.
func TestBrokenDownload(t *testing.T) {
	server := s3test.Start(t)
	b, proxy := openFaulty(t, server, server.Bucket(t), options(server))
	content := blobtest.Content(3, 1<<20)
	put(t, b, "x", content)
	var gets atomic.Int64
	proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		gets.Add(1)
		forward(t, server, &cut{w, 300_000}, r)
		return true
	})
	wantContent(t, b, "x", content)
	if n := gets.Load(); n != 4 {
		t.Errorf("it took %d requests, want 4", n)
	}
	r, err := b.Get(t.Context(), "x", 1000, 500_000)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content[1000:501_000]) {
		t.Errorf("a range: %d bytes, %v", len(got), err)
	}

	// Now nothing comes any more. That must be an error, not a short blob.
	proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
		forward(t, server, &cut{w, 0}, r)
		return true
	})
	_, err = read(t.Context(), b, "x")
	wantError(t, "Get from a server that breaks off at once", err, carrel.Unavailable)
}

// TestReplacedWhileBroken replaces the blob while its reader's connection is broken.
func TestReplacedWhileBroken(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t)
	b, proxy := openFaulty(t, server, bucket, options(server))
	direct := open(t, server.URL(bucket, "p"), options(server))
	defer direct.Close()
	put(t, b, "x", blobtest.Content(4, 1<<20))
	var done atomic.Bool
	proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || done.Swap(true) {
			return false
		}
		defer put(t, direct, "x", blobtest.Content(5, 1<<20)) // before the reader comes back
		forward(t, server, &cut{w, 300_000}, r)
		return true
	})
	_, err := read(t.Context(), b, "x")
	wantError(t, "Get", err, carrel.Conflict)
}

// TestDamagedUpload flips one bit on the way. The server must refuse, and no blob may appear.
func TestDamagedUpload(t *testing.T) {
	server := s3test.Start(t)
	o := options(server)
	o.Retries = 2
	bucket := server.Bucket(t)
	b, proxy := openFaulty(t, server, bucket, o)
	proxy.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			body[len(body)/2] ^= 1
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		return false
	})
	for _, size := range []int{1000, 12 << 20} {
		content := blobtest.Content(6, size)
		if err := b.Put(t.Context(), "x", bytes.NewReader(content), int64(size)); err == nil {
			t.Errorf("Put of %d bytes worked", size)
		}
	}
	if _, err := read(t.Context(), b, "x"); !errors.Is(err, carrel.NotFound) {
		t.Errorf("Get: %v, want NotFound", err)
	}
	noUploads(t, server, bucket)
}

func TestNothingLeft(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t)
	b := open(t, server.URL(bucket, "p"), options(server))
	defer b.Close()
	for _, has := range []int{0, 6 << 20, 20<<20 - 1} {
		err := b.Put(t.Context(), "x", bytes.NewReader(blobtest.Content(7, has)), 20<<20)
		if !errors.Is(err, carrel.Invalid) {
			t.Errorf("Put of %d bytes: %v", has, err)
		}
	}
	noUploads(t, server, bucket)
	for o := range server.Client(t).ListObjectsIter(t.Context(), bucket, minio.ListObjectsOptions{Recursive: true}) {
		t.Errorf("left: %s, %v", o.Key, o.Err)
	}
}

// TestLostAnswer completes an upload, and the answer gets lost. The second try is told that there
// is no such upload; that is no failure.
func TestLostAnswer(t *testing.T) {
	server := s3test.Start(t)
	b, proxy := openFaulty(t, server, server.Bucket(t), options(server))
	var lost atomic.Bool
	proxy.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !r.URL.Query().Has("uploadId") || lost.Swap(true) {
			return false
		}
		forward(t, server, httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
	content := blobtest.Content(8, 12<<20)
	put(t, b, "x", content)
	if !lost.Load() {
		t.Error("no answer was lost")
	}
	wantContent(t, b, "x", content)
}

// TestSilentServer uses a server that accepts a request and never answers.
func TestSilentServer(t *testing.T) {
	server := s3test.Start(t)
	o := options(server)
	o.Retries, o.Timeout = 2, 5*time.Second // Open must get its answer in this time, too
	b, proxy := openFaulty(t, server, server.Bucket(t), o)
	end := make(chan struct{})
	defer close(end)
	proxy.set(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-end:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	})
	_, err := read(t.Context(), b, "x")
	wantError(t, "Get", err, carrel.Unavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := read(ctx, b, "x"); !errors.Is(err, carrel.TimedOut) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get with a deadline: %v, want TimedOut", err)
	}
}

// TestNoRanges uses a server that ignores ranges and sends the whole blob.
func TestNoRanges(t *testing.T) {
	server := s3test.Start(t)
	b, proxy := openFaulty(t, server, server.Bucket(t), options(server))
	put(t, b, "x", blobtest.Content(9, 1000))
	proxy.set(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", `"0"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(blobtest.Content(9, 1000))
		return true
	})
	if _, err := b.Get(t.Context(), "x", 500, 100); !errors.Is(err, carrel.Unsupported) {
		t.Errorf("Get: %v, want Unsupported", err)
	}
}

// TestStaleUploads makes two unfinished uploads: a crash left one two days ago, the other is under
// way.
func TestStaleUploads(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t)
	core := minio.Core{Client: server.Client(t)}
	begin := func(key string) {
		if _, err := core.NewMultipartUpload(t.Context(), bucket, key, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	begin("p/old")
	begin("elsewhere/old")
	err := filepath.WalkDir(filepath.Join(server.Dir, bucket), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		old := time.Now().Add(-48 * time.Hour) // the server reads the time from the directory
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
	begin("p/new")
	if err := tryOpen(t, server.URL(bucket, "p"), options(server)); err != nil {
		t.Fatal(err)
	}
	var left []string
	for u := range core.ListIncompleteUploads(t.Context(), bucket, "", true) {
		left = append(left, u.Key)
	}
	if slices.Sort(left); !slices.Equal(left, []string{"elsewhere/old", "p/new"}) {
		t.Errorf("left are %q", left)
	}
}

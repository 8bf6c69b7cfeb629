package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/snapshot/s3"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
)

// faulty is a proxy in front of the server. It calls fault for every request. fault reports whether
// it answered the request itself.
type faulty struct {
	fault    atomic.Pointer[fault]
	requests atomic.Int64
}

type fault func(w http.ResponseWriter, r *http.Request) bool

func (f *faulty) set(fn fault) { f.fault.Store(&fn) }

// openFaulty opens blobs through a proxy that has no fault yet.
func openFaulty(t *testing.T, server *s3test.Server, bucket string, o s3.Options) (*s3.Blobs, *faulty) {
	t.Helper()
	target, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{}
	f.set(func(http.ResponseWriter, *http.Request) bool { return false })
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:    &http.Transport{DisableKeepAlives: true},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		if !(*f.fault.Load())(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	b := open(t, "s3://"+bucket+"/p?endpoint="+front.URL, o)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, f
}

func put(t *testing.T, b snapshot.Blobs, name string, content []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
}

func read(ctx context.Context, b snapshot.Blobs, name string) ([]byte, error) {
	r, err := b.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(r)
	return out, errors.Join(err, r.Close())
}

func wantContent(t *testing.T, b snapshot.Blobs, name string, want []byte) {
	t.Helper()
	if got, err := read(t.Context(), b, name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(want))
	}
}

// wantError checks an error's kind, that it has a hint, and that it shows none of the secrets.
func wantError(t *testing.T, what string, err error, kind carrel.Kind, secrets ...string) {
	t.Helper()
	if carrel.KindOf(err) != kind || carrel.HintOf(err) == "" {
		t.Errorf("%s: %v (%s, hint %q), want %s with a hint", what, err, carrel.KindOf(err), carrel.HintOf(err), kind)
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, secret := range secrets {
			if strings.Contains(fmt.Sprintf("%v %+v", e, carrel.HintOf(e)), secret) {
				t.Errorf("%s: the error tells a secret: %v", what, e)
			}
		}
	}
}

func tryOpen(t *testing.T, loc string, o s3.Options) error {
	t.Helper()
	l, err := s3.ParseLocation(loc)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s3.Open(t.Context(), l, o)
	if err != nil {
		return err
	}
	return b.Close()
}

// slowDown answers like a busy server.
func slowDown(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprint(w, `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
}

// cut passes on a number of bytes of an answer and then breaks the connection.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		panic(http.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}

// forward hands a request to the server and writes the answer to w.
func forward(t *testing.T, server *s3test.Server, w http.ResponseWriter, r *http.Request) {
	target, err := url.Parse(server.Endpoint)
	if err != nil {
		t.Error(err)
		return
	}
	(&httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target); p.Out.Host = p.In.Host },
		Transport: &http.Transport{DisableKeepAlives: true},
	}).ServeHTTP(w, r)
}

// noUploads fails when parts of a blob are left in a bucket.
func noUploads(t *testing.T, server *s3test.Server, bucket string) {
	t.Helper()
	for u := range server.Client(t).ListIncompleteUploads(t.Context(), bucket, "", true) {
		t.Errorf("left unfinished: %s, %v", u.Key, u.Err)
	}
}

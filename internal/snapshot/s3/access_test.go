package s3_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/blobtest"
	"github.com/carrel-dev/carrel/internal/snapshot/s3"
	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
)

// TestCredentials shows that the test server checks credentials, and checks the errors for wrong
// ones.
func TestCredentials(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t)
	loc := server.URL(bucket, "p")
	if err := tryOpen(t, loc, options(server)); err != nil {
		t.Fatalf("with the right credentials: %v", err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(server.Endpoint + "/" + bucket)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("without a signature the server says %s", resp.Status)
	}
	const secret = "wrong-secret-value"
	for name, change := range map[string]func(*s3.Options){
		"unknown key":  func(o *s3.Options) { o.AccessKey, o.SecretKey = "nobody", secret },
		"wrong secret": func(o *s3.Options) { o.SecretKey = secret },
		"no key":       func(o *s3.Options) { o.AccessKey = "" },
		"no secret":    func(o *s3.Options) { o.SecretKey = "" },
	} {
		o := options(server)
		change(&o)
		wantError(t, name, tryOpen(t, loc, o), carrel.Unauthenticated, secret, server.SecretKey)
	}
}

func TestNoBucket(t *testing.T) {
	server := s3test.Start(t)
	wantError(t, "Open", tryOpen(t, server.URL("no-such-bucket", ""), options(server)), carrel.NotFound)

	bucket := server.Bucket(t)
	b := open(t, server.URL(bucket, ""), options(server))
	defer b.Close()
	if err := server.Client(t).RemoveBucket(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	_, err := read(t.Context(), b, "x") // not NotFound: the blob may still exist
	wantError(t, "Get", err, carrel.Unavailable)
	wantError(t, "Put", b.Put(t.Context(), "x", strings.NewReader("x"), 1), carrel.Unavailable)
}

// TestIndiscreetServer uses a server whose errors quote the request, as some proxies do.
func TestIndiscreetServer(t *testing.T) {
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "<Error><Code>InvalidRequest</Code><Message>bad headers: %s</Message></Error>", r.Header)
	}))
	defer front.Close()
	o := s3.Options{AccessKey: "key", SecretKey: "the-secret", SessionToken: "the-token", Retries: 1}
	err := tryOpen(t, "s3://bucket?endpoint="+front.URL, o)
	if err == nil || !strings.Contains(err.Error(), "bad headers") {
		t.Errorf("Open: %v, want what the server said", err)
	}
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		t.Error("what the server said can be got at as it was")
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", err, err, err), fmt.Sprintf("%v %+v %#v %s", o, o, o, o)} {
		if strings.Contains(text, "the-secret") || strings.Contains(text, "the-token") {
			t.Errorf("a secret is told: %s", text)
		}
	}
}

func TestWrongRegion(t *testing.T) {
	server := s3test.Start(t)
	loc := strings.Replace(server.URL(server.Bucket(t), ""), "region="+s3test.Region, "region=eu-1", 1)
	wantError(t, "Open", tryOpen(t, loc, options(server)), carrel.Invalid)
}

// TestTLS talks to the server through TLS, with a trusted certificate and with an unknown one.
func TestTLS(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t)
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { forward(t, server, w, r) }))
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // drops errors of handshakes that must fail
	front.StartTLS()
	defer front.Close()
	o := options(server)
	o.Retries = 2
	wantError(t, "Open with a certificate of nobody", tryOpen(t, "s3://"+bucket+"?endpoint="+front.URL, o), carrel.Unavailable)
	o.RootCAs = x509.NewCertPool()
	o.RootCAs.AddCert(front.Certificate())
	b := open(t, "s3://"+bucket+"?endpoint="+front.URL, o)
	defer b.Close()
	for _, size := range []int{0, 1000, 12 << 20} {
		content := blobtest.Content(10, size)
		put(t, b, "x", content)
		wantContent(t, b, "x", content)
	}
}

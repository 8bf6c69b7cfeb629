// Package s3test runs a real S3 server for tests: versitygw on a directory of the test's own, on
// the loopback. It checks signatures like any other server. "make bin/s3server" builds it from the
// module internal/tools/s3server, so that its dependencies stay out of Carrel's own modules. Where
// it is not built, tests that need it are skipped. They fail instead if CARREL_REQUIRE holds s3.
package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// Region is the server's region.
const Region = "us-east-1"

// Server is a running S3 server. Its credentials are valid for every bucket.
type Server struct {
	Endpoint  string // http://127.0.0.1:port
	AccessKey string
	SecretKey string
	Dir       string // holds the buckets, as directories

	meta    string // holds the metadata of objects, as files
	binary  string
	addr    string
	stop    func() // nil while it is stopped
	buckets atomic.Int64
}

// Start starts a server. It is stopped when the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	binary, err := find()
	testenv.Need(t, "s3", err)
	dir := t.TempDir()
	s := &Server{AccessKey: "test-key", SecretKey: "test-secret-0123456789", Dir: filepath.Join(dir, "buckets"), meta: filepath.Join(dir, "meta"), binary: binary}
	for _, dir := range []string{s.Dir, s.meta} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(s.Stop)
	const tries = 5 // another process may take the free port first
	for i := range tries {
		if s.addr, err = freeAddr(); err == nil {
			err = s.run()
		}
		if err == nil {
			s.Endpoint = "http://" + s.addr
			return s
		}
		t.Logf("try %d: %v", i+1, err)
	}
	t.Fatalf("the S3 server does not start: %v", err)
	return nil
}

// find returns the path of the server's binary.
func find() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, "bin", "s3server")
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if _, err := os.Stat(path); err != nil {
				return "", errors.New("bin/s3server, which \"make bin/s3server\" builds")
			}
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the directory of Carrel's module")
		}
		dir = filepath.Dir(dir)
	}
}

// freeAddr returns an unused address on the loopback.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// run starts the process and waits until it answers.
func (s *Server) run() error {
	var log bytes.Buffer
	// It gets nothing of this process's environment, which may hold credentials of a real store.
	cmd := exec.Command(s.binary, "--port", s.addr, "--region", Region, "--health", "/health", "--quiet",
		"posix", "--sidecar", s.meta, s.Dir)
	cmd.Env = []string{"ROOT_ACCESS_KEY_ID=" + s.AccessKey, "ROOT_SECRET_ACCESS_KEY=" + s.SecretKey, "HOME=" + s.Dir}
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // for killed tests
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stop := func() {
		_ = cmd.Process.Kill() // an error means that it has ended already
		<-ended
	}
	if err := s.await(ctx, ended); err != nil {
		stop()
		return fmt.Errorf("%w: %s", err, &log)
	}
	s.stop = stop
	return nil
}

// await returns when the server answers or has ended.
func (s *Server) await(ctx context.Context, ended chan error) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var over error
	err := testenv.Within(ctx, time.Minute, func() error {
		select {
		case err := <-ended:
			ended <- err
			over = fmt.Errorf("it ended: %w", err)
			return nil // waiting is over
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/health", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close() // empty
			if resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
		}
		return err
	})
	return errors.Join(over, err)
}

// Stop ends the server at once, like a power cut. Idempotent.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Restart starts the server again after a Stop, with the same address and content.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// Client is a plain client with the server's root credentials. Tests use it to look at the objects
// directly.
func (s *Server) Client(t testing.TB) *minio.Client {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	c, err := minio.New(strings.TrimPrefix(s.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Region: Region, Transport: transport, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Bucket makes a new bucket and returns its name.
func (s *Server) Bucket(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", s.buckets.Add(1))
	if err := s.Client(t).MakeBucket(t.Context(), name, minio.MakeBucketOptions{Region: Region}); err != nil {
		t.Fatal(err)
	}
	return name
}

// URL returns the snapshot store's URL for a place in a bucket: s3://….
func (s *Server) URL(bucket, prefix string) string {
	return "s3://" + bucket + "/" + prefix + "?" + url.Values{"endpoint": {s.Endpoint}, "region": {Region}}.Encode()
}

// Package s3test runs a real S3 server for tests: versitygw on a directory of the
// test's own, on the loopback, checking signatures as any other. It is built by "make
// bin/s3server" from the module internal/tools/s3server, so that what it depends on
// stays out of Carrel's own modules; where it is not built, tests that need it are
// skipped, or fail where CARREL_REQUIRE holds s3.
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

// Region is the one that the server says it is in.
const Region = "us-east-1"

// Server is a running S3 server. Its credentials are good for every bucket.
type Server struct {
	Endpoint  string // http://127.0.0.1:port
	AccessKey string
	SecretKey string
	Dir       string // holds the buckets, as directories

	meta    string // holds what is known about objects, as files
	binary  string
	addr    string
	stop    func() // nil while it is stopped
	buckets atomic.Int64
}

// Start starts a server, which ends with the test.
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
	const tries = 5 // somebody else may take the free port
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

// freeAddr returns an address of the loopback on which nobody listens.
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
	// Nothing of this process's environment: it may hold credentials of the real one.
	cmd := exec.Command(s.binary, "--port", s.addr, "--region", Region, "--health", "/health", "--quiet",
		"posix", "--sidecar", s.meta, s.Dir)
	cmd.Env = []string{"ROOT_ACCESS_KEY_ID=" + s.AccessKey, "ROOT_SECRET_ACCESS_KEY=" + s.SecretKey, "HOME=" + s.Dir}
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is killed leaves none
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stop := func() {
		_ = cmd.Process.Kill() // an error means that it has ended
		<-ended
	}
	if err := s.await(ctx, ended); err != nil {
		stop()
		return fmt.Errorf("%w: %s", err, &log)
	}
	s.stop = stop
	return nil
}

// await returns when the server answers, or has ended.
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

// Stop ends the server, as a power cut would. Idempotent.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Restart starts it again after a Stop, with the same address and content.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// Client is a plain client of the server's root, for looking behind what is tested.
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

// URL is the snapshot store's URL of a place in a bucket: s3://….
func (s *Server) URL(bucket, prefix string) string {
	return "s3://" + bucket + "/" + prefix + "?" + url.Values{"endpoint": {s.Endpoint}, "region": {Region}}.Encode()
}

package sdk

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// daemon is a carrel serve of the tests' own.
type daemon struct {
	url, key, domain string
}

// lockedBuffer collects a process's output.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startDaemon starts bin/carrel serve in a directory of its own, waits until its
// base template is there and stops it after the test.
func startDaemon(t *testing.T, extra ...string) *daemon {
	t.Helper()
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v (build it with: make build)", err)
	}
	dir, port := t.TempDir(), freePort(t)
	args := []string{"--data-dir", dir, "serve", "--listen", "127.0.0.1:" + port}
	for i, a := range extra {
		extra[i] = strings.ReplaceAll(a, tlsPort, port)
	}
	cmd := exec.Command(bin, append(args, extra...)...)
	log := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kill := exec.Command(bin, "--data-dir", dir, "kill", "--all")
		kill.Env = append(os.Environ(), "SSL_CERT_FILE="+certificateOf(extra))
		_ = kill.Run()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", lastLines(log.String(), 60))
		}
	})
	d := &daemon{domain: argAfter(extra, "--domain")}
	waitReady(t, dir, d, log)
	inspect := exec.Command(bin, "--data-dir", dir, "template", "inspect", "base")
	inspect.Env = append(os.Environ(), "SSL_CERT_FILE="+certificateOf(extra))
	if out, err := inspect.CombinedOutput(); err != nil {
		t.Fatalf("base template: %v\n%s\n%s", err, out, log)
	}
	return d
}

func waitReady(t *testing.T, dir string, d *daemon, log *lockedBuffer) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		raw, err := os.ReadFile(filepath.Join(dir, "daemon.json"))
		key, keyErr := os.ReadFile(filepath.Join(dir, "api-key"))
		var info struct {
			URL string `json:"url"`
		}
		if err == nil && keyErr == nil && json.Unmarshal(raw, &info) == nil {
			d.url, d.key = info.URL, strings.TrimSpace(string(key))
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the daemon did not start:\n%s", log)
		}
	}
}

// tlsPort stands for the daemon's port in arguments.
const tlsPort = "PORT"

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// argAfter returns the argument that follows flag.
func argAfter(args []string, flag string) string {
	for i, a := range args {
		if a == flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// certificateOf returns the authority's file beside the daemon's certificate.
func certificateOf(args []string) string {
	if cert := argAfter(args, "--tls-cert"); cert != "" {
		return filepath.Join(filepath.Dir(cert), "ca.pem")
	}
	return ""
}

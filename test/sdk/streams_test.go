package sdk

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestManyStreams holds 200 commands of one sandbox open at once, from one client of the Python
// SDK. Over TLS it speaks HTTP/2, where a connection has a limited number of streams: the SDK must
// learn the limit and open more connections, and no stream may wait for another's end.
func TestManyStreams(t *testing.T) {
	testenv.Need(t, "namespaces", canUnshare())
	dir := t.TempDir()
	authority := makeCertificates(t, dir, "carrel.example.com")
	dns := startResolver(t, dir)
	_, err := exec.LookPath("python3")
	testenv.Need(t, "python", err)
	installPython(t)
	d := daemontest.Start(t, "--domain", "carrel.example.com:"+daemontest.Port, "--tls-cert",
		filepath.Join(dir, "cert.pem"),
		"--tls-key", filepath.Join(dir, "key.pem"))
	cmd := exec.Command("python/.venv/bin/python", "python/many_streams.py")
	cmd.Env = append(cleanEnv(), "E2B_DOMAIN="+d.Domain, "E2B_API_KEY="+d.Key,
		"SSL_CERT_FILE="+authority, "TEMPLATE=sim")
	dns.wrap(cmd)
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	out, err := runFor(ctx, cmd)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
}

package sdk

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestSelfSigned uses host names and the daemon's own authority, as a developer without a
// certificate does. TestHostNames runs the full suites; here run those that reach previews and
// streams.
func TestSelfSigned(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "namespaces", canUnshare())
	_, err := exec.LookPath("node")
	testenv.Need(t, "node", err)
	install(t, "js/node_modules/e2b", "npm", "ci", "--prefix", "js", "--silent")
	dns := startResolver(t, t.TempDir())
	d := daemontest.Start(t, "--domain", "carrel.example.com:"+daemontest.Port, "--tls-self-signed")
	out, err := d.CLI("ca").Output()
	if err != nil {
		t.Fatal(err)
	}
	authority := strings.TrimSpace(string(out))
	cmd := exec.Command("node", "--test", "--test-concurrency=1", "--test-timeout=300000", "js/life.test.mjs", "js/commands.test.mjs")
	cmd.Env = append(cleanEnv(), "SDK=e2b", "E2B_DOMAIN="+d.Domain, "E2B_API_KEY="+d.Key, "NODE_EXTRA_CA_CERTS="+authority)
	dns.wrap(cmd)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	text, err := runFor(ctx, cmd)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Log(lastLines(text, 12))
	// Without the authority no client accepts the certificate.
	blind := exec.Command("node", "--test", "js/life.test.mjs")
	blind.Env = append(cleanEnv(), "SDK=e2b", "E2B_DOMAIN="+d.Domain, "E2B_API_KEY="+d.Key)
	dns.wrap(blind)
	if text, err := runFor(ctx, blind); err == nil {
		t.Errorf("it works without the authority:\n%s", lastLines(text, 12))
	}
}

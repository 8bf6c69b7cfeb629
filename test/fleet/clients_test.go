package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestClients runs E2B's own JavaScript client, unmodified, against a front: the tests of test/sdk
// that simulated sandboxes pass.
func TestClients(t *testing.T) {
	sdk := jsClient(t)
	f := start(t, 2)
	names := []string{"commands", "files", "life"}
	if !testing.Short() {
		names = append(names, "pause", "snapshots", "lifecycle", "methods", "pty")
	}
	args := []string{"--test", "--test-concurrency=2", "--test-timeout=300000"}
	for _, name := range names {
		args = append(args, filepath.Join(sdk, name+".test.mjs"))
	}
	key, _ := f.fronts[0].Key()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = sdk
	cmd.Env = append(os.Environ(), "SDK=e2b", "TEMPLATE=sim", "E2B_API_URL="+f.fronts[0].URL(),
		"E2B_SANDBOX_URL="+f.fronts[0].URL(), "E2B_API_KEY="+key)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, failures(string(out)))
	}
	t.Log(summary(string(out)))
}

// failures are the parts of the output about tests that failed.
func failures(out string) string {
	if i := strings.Index(out, "failing tests:"); i >= 0 {
		return out[i:]
	}
	return out
}

// summary is the runner's count of tests.
func summary(out string) string {
	var lines []string
	for _, line := range strings.Split(out, "\n") {
		for _, word := range []string{"tests ", "pass ", "fail ", "skipped "} {
			if strings.HasPrefix(strings.TrimLeft(line, "# ℹ"), word) {
				lines = append(lines, strings.TrimLeft(line, "# ℹ"))
			}
		}
	}
	return strings.Join(lines, ", ")
}

// jsClient is the directory with E2B's JavaScript client and its tests.
func jsClient(t *testing.T) string {
	t.Helper()
	_, err := exec.LookPath("node")
	testenv.Need(t, "node", err)
	sdk, err := filepath.Abs("../sdk/js")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(sdk, "node_modules", "e2b")); err != nil {
		if out, err := exec.Command("npm", "ci", "--prefix", sdk, "--silent").CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v: %s", err, out)
		}
	}
	return sdk
}

// Package sdk drives E2B's own SDKs, unmodified and from the registries, against a
// real daemon (bin/carrel) with real sandboxes, in both routing forms: headers on
// one plain port, and <port>-<id>.<domain> with TLS.
package sdk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// suite is one SDK's tests.
type suite struct {
	name string
	need string // what the machine must have
	cmd  func(t *testing.T) *exec.Cmd
	env  []string
}

func suites() []suite {
	older := nodeTests("*")
	if testing.Short() { // the newest has all
		older = nodeTests("commands", "files", "life")
	}
	return []suite{
		{"npm-newest", "node", nodeTests("*"), []string{"SDK=e2b"}},
		{"npm-2.45", "node", older, []string{"SDK=e2b-2.45"}},
		{"python-sync", "python", pythonTests("test_sync*.py"), nil},
		{"python-async", "python", pythonTests("test_async*.py"), nil},
	}
}

// Arguments of node: how many files run at once, and how long each may take, in milliseconds.
const (
	nodeFiles = "--test-concurrency=2"
	nodeLimit = "--test-timeout=300000"
)

// nodeTests runs the test files whose names, before ".test.mjs", match.
func nodeTests(names ...string) func(t *testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd {
		_, err := exec.LookPath("node")
		testenv.Need(t, "node", err)
		install(t, "js/node_modules/e2b", "npm", "ci", "--prefix", "js", "--silent")
		args := []string{"--test", nodeFiles, nodeLimit}
		for _, name := range names {
			files, err := filepath.Glob("js/" + name + ".test.mjs")
			if err != nil || len(files) == 0 {
				t.Fatal("no test files", err)
			}
			args = append(args, files...)
		}
		return exec.Command("node", args...)
	}
}

func pythonTests(files string) func(t *testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd {
		_, err := exec.LookPath("python3")
		testenv.Need(t, "python", err)
		installPython(t)
		found, err := filepath.Glob(filepath.Join("python", files))
		if err != nil || len(found) == 0 {
			t.Fatal("no test files", err)
		}
		return exec.Command("python/.venv/bin/python", append([]string{"-m", "unittest", "-v"}, found...)...)
	}
}

func installPython(t *testing.T) {
	t.Helper()
	install(t, "python/.venv/bin/pip", "python3", "-m", "venv", "python/.venv")
	install(t, "python/.venv/lib/*/site-packages/e2b", "python/.venv/bin/pip", "install",
		"--quiet", "-r", "python/requirements.txt")
}

var installing sync.Mutex

// install runs a command unless its result exists.
func install(t *testing.T, makes, name string, args ...string) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	if found, _ := filepath.Glob(makes); len(found) > 0 {
		return
	}
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// TestPlain uses one plain port and routing headers. It sets only environment variables and changes
// nothing on the machine.
func TestPlain(t *testing.T) {
	d := daemontest.Start(t, "--wire-table", startOutside(t))
	runSuites(t, suites(), func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL, "E2B_API_KEY="+d.Key)
	})
}

// TestSimulated uses simulated sandboxes: all tests that need neither a restored memory nor a
// listener inside.
func TestSimulated(t *testing.T) {
	d := daemontest.Start(t, "--wire-table", startOutside(t))
	runSuites(t, testenv.Few(2, []suite{
		{"npm-newest", "node", nodeTests("*"), []string{"SDK=e2b", "TEMPLATE=sim"}},
		{"python-sync", "python", pythonTests("test_sync*.py"), []string{"TEMPLATE=sim"}},
		{"python-async", "python", pythonTests("test_async*.py"), []string{"TEMPLATE=sim"}},
	}...), func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL, "E2B_API_KEY="+d.Key)
	})
}

// TestNamespaces uses sandboxes of Linux namespaces. Commands, files, terminals and lifecycles must
// be as with a kernel of their own.
func TestNamespaces(t *testing.T) {
	d := daemontest.Start(t, "--default-tier", "ns")
	ns := []suite{{"npm-newest", "node", nodeTests("commands", "files", "pty", "life"), []string{"SDK=e2b"}}}
	runSuites(t, ns, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL, "E2B_API_KEY="+d.Key)
	})
}

// TestMachines uses virtual machines. With -short, it runs commands and files only.
func TestMachines(t *testing.T) {
	d := daemontest.Start(t, append(daemontest.Machines(t), "--wire-table", startOutside(t))...)
	vm := []suite{
		{"npm-newest", "node", nodeTests("*"), []string{"SDK=e2b"}},
		{"python-sync", "python", pythonTests("test_sync*.py"), nil},
	}
	if testing.Short() {
		vm = []suite{{"npm-newest", "node", nodeTests("commands"), []string{"SDK=e2b"}}}
	}
	for _, s := range vm { // one after the other: what is emulated does not wait, it computes
		t.Run(s.name, func(t *testing.T) {
			s.run(t, 30*time.Minute, func(cmd *exec.Cmd) {
				cmd.Env = append(cmd.Env, "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL, "E2B_API_KEY="+d.Key)
				for i, arg := range cmd.Args {
					switch arg {
					case nodeFiles:
						cmd.Args[i] = "--test-concurrency=1"
					case nodeLimit:
						cmd.Args[i] = "--test-timeout=1200000"
					}
				}
			})
		})
	}
}

// TestHostNames uses host names and TLS, in a network and mount namespace whose
// resolver is ours.
func TestHostNames(t *testing.T) {
	testenv.Need(t, "namespaces", canUnshare())
	dir := t.TempDir()
	authority := makeCertificates(t, dir, "carrel.example.com")
	dns := startResolver(t, dir)
	d := daemontest.Start(t, "--domain", "carrel.example.com:"+daemontest.Port, "--tls-cert", filepath.Join(dir, "cert.pem"),
		"--tls-key", filepath.Join(dir, "key.pem"), "--wire-table", startOutside(t))
	all := suites()
	if testing.Short() { // some tests for each library that speaks HTTP; TestPlain runs all
		all = []suite{
			{"npm-newest", "node", nodeTests("commands", "files", "network", "pty"), []string{"SDK=e2b"}},
			{"python-sync", "python", pythonTests("test_sync.py"), nil},
			{"python-async", "python", pythonTests("test_async.py"), nil},
		}
	}
	runSuites(t, all, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "E2B_DOMAIN="+d.Domain, "E2B_API_KEY="+d.Key, "NODE_EXTRA_CA_CERTS="+authority,
			"SSL_CERT_FILE="+authority, "REQUESTS_CA_BUNDLE="+authority)
		dns.wrap(cmd)
	})
}

func runSuites(t *testing.T, suites []suite, prepare func(*exec.Cmd)) {
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // two at once on two cores: a suite mostly waits
			s.run(t, 10*time.Minute, prepare)
		})
	}
}

// run runs a suite, until a limit.
func (s suite) run(t *testing.T, limit time.Duration, prepare func(*exec.Cmd)) {
	t.Helper()
	cmd := s.cmd(t)
	cmd.Env = append(cleanEnv(), s.env...)
	prepare(cmd)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := runFor(ctx, cmd)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(lastLines(out, 12))
}

// runFor runs cmd until ctx ends.
func runFor(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	if ctx.Err() != nil {
		err = fmt.Errorf("still running: %w", ctx.Err())
	}
	return out.String(), err
}

// cleanEnv returns this environment without variables that would influence an SDK.
func cleanEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "E2B_") && !strings.HasPrefix(kv, "CARREL_") {
			env = append(env, kv)
		}
	}
	return env
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Package matrix runs many versions of E2B's own clients, unmodified and from the registries,
// through a round of their calls against one real daemon (bin/carrel).
package matrix

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// versions reads versions.txt.
func versions(t *testing.T) map[string][]string {
	t.Helper()
	f, err := os.Open("versions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] != "#" {
			out[words[0]] = words[1:]
		}
	}
	return out
}

// TestMatrix runs each version of each client. It takes minutes and installs much, so only
// "make test-matrix" runs it.
func TestMatrix(t *testing.T) {
	if os.Getenv("CARREL_MATRIX") == "" {
		testenv.Need(t, "matrix", errors.New("it installs many versions of each client: run it with make test-matrix"))
	}
	d := daemontest.Start(t)
	env := append(plainEnv(), "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL, "E2B_API_KEY="+d.Key)
	for client, install := range map[string]func(t *testing.T, version string) *exec.Cmd{
		"js": javaScript, "python": python, "cli": commandLine} {
		all := versions(t)[client]
		if len(all) < 4 {
			t.Errorf("%s has the versions %v", client, all)
		}
		for _, version := range all {
			t.Run(client+"-"+version, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				cmd := install(t, version)
				cmd.Env = append(env, cmd.Env...)
				stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
				defer stop()
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				lines := strings.Split(strings.TrimSpace(string(out)), "\n")
				t.Log(lines[len(lines)-1])
			})
		}
	}
}

// plainEnv is this environment without variables that would influence a client.
func plainEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "E2B_") && !strings.HasPrefix(kv, "CARREL_") {
			env = append(env, kv)
		}
	}
	return env
}

func must(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// fromNPM installs a package and returns the directory.
func fromNPM(t *testing.T, pkg string) string {
	t.Helper()
	_, err := exec.LookPath("npm")
	testenv.Need(t, "node", err)
	dir := t.TempDir()
	must(t, "npm", "install", "--prefix", dir, "--silent", "--no-audit", "--no-fund",
		"--ignore-scripts", pkg)
	return dir
}

func javaScript(t *testing.T, version string) *exec.Cmd {
	cmd := exec.Command("node", "smoke.mjs")
	cmd.Env = []string{"SDK=" + fromNPM(t, "e2b@"+version)}
	return cmd
}

func python(t *testing.T, version string) *exec.Cmd {
	_, err := exec.LookPath("python3")
	testenv.Need(t, "python", err)
	dir := t.TempDir()
	must(t, "python3", "-m", "venv", dir)
	must(t, filepath.Join(dir, "bin/pip"), "install", "--quiet", "e2b=="+version)
	return exec.Command(filepath.Join(dir, "bin/python"), "smoke.py")
}

// commandLine lists sandboxes and templates: what the oldest of these versions can do without a
// terminal.
func commandLine(t *testing.T, version string) *exec.Cmd {
	dir := fromNPM(t, "@e2b/cli@"+version)
	cmd := exec.Command("sh", "-ec", `node "$0" sandbox list; node "$0" template list | grep -w base; echo both lists`,
		filepath.Join(dir, "node_modules/@e2b/cli/dist/index.js"))
	cmd.Env = []string{"HOME=" + dir, "E2B_ACCESS_TOKEN=unused"}
	return cmd
}

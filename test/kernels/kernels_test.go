// Package kernels drives E2B's own packages for code interpreters, unmodified and from the
// registries, against sandboxes of the template code-interpreter-v1 of a real daemon (bin/carrel).
package kernels

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/aptmirror"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// suiteTime bounds one package's tests.
const suiteTime = 15 * time.Minute

// TestPackages runs the tests of both packages, and of Jupyter with integrations/jupyter, in both tiers of real processes. Only gvisor keeps memory.
// The directory CARREL_KERNELS holds what can be used again: the packages and the template.
func TestPackages(t *testing.T) {
	testenv.Long(t, "makes a template of 705 packages")
	dir := keptDir(t)
	python := packages(t, dir)
	mirror := aptmirror.Serve(t, "code-interpreter-v1")
	for _, tier := range []struct{ name, memory string }{{"gvisor", "true"}, {"ns", "false"}} {
		t.Run(tier.name, func(t *testing.T) {
			d := daemontest.Start(t, "--default-tier", tier.name, "--debian-mirror", mirror,
				"--cache-dir", filepath.Join(dir, "cache"))
			// The packages' own limits on a request are shorter than a busy machine needs to make it.
			if out, err := d.CLI("template", "get", "code-interpreter-v1").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			all := [][]string{{python, "-m", "unittest", "-v", "python/test_kernels.py"},
				{"node", "--test", "--test-timeout=600000", "js/kernels.test.mjs"},
				{python, "-m", "unittest", "-v", "python/test_languages.py"},
				{python, "-m", "unittest", "-v", "python/test_jupyter.py"}}
			for _, args := range all {
				ctx, cancel := context.WithTimeout(t.Context(), suiteTime)
				defer cancel()
				cmd := exec.CommandContext(ctx, args[0], args[1:]...)
				cmd.Env = append(os.Environ(), "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL,
					"E2B_API_KEY="+d.Key, "MEMORY="+tier.memory, "CARREL="+d.Bin, "CARREL_URL="+d.URL,
					"CARREL_API_KEY="+d.Key)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%v: %v\n%s", args, err, out)
				}
				for line := range strings.Lines(string(out)) {
					if strings.Contains(line, "killed by ") || strings.HasPrefix(line, "Ran ") {
						t.Logf("%s: %s", args[len(args)-1], line)
					}
				}
			}
		})
	}
}

// keptDir is the directory of what can be used again, or a temporary one.
func keptDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CARREL_KERNELS")
	if dir == "" {
		dir = t.TempDir()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// packages installs the clients and returns their Python.
func packages(t *testing.T, dir string) string {
	t.Helper()
	_, err := exec.LookPath("node")
	testenv.Need(t, "node", err)
	_, err = exec.LookPath("python3")
	testenv.Need(t, "python", err)
	venv := filepath.Join(dir, "clients")
	for _, args := range [][]string{
		{"npm", "ci", "--prefix", "js", "--silent"},
		{"python3", "-m", "venv", venv},
		{filepath.Join(venv, "bin/pip"), "install", "--quiet", "-r", "python/requirements.txt",
			"../../integrations/jupyter"},
		{filepath.Join(venv, "bin/jupyter-carrel"), "--sys-prefix", "--program", "../../bin/carrel"},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return filepath.Join(venv, "bin/python")
}

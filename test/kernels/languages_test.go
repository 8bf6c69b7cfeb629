package kernels

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/aptmirror"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// polyglot is a template with kernels for R and Java. Its packages come with the files, as the test's
// daemon reaches no archive.
const polyglot = `FROM template://code-interpreter-v1
USER root
COPY debs /tmp/debs
RUN dpkg -i /tmp/debs/*.deb && rm -rf /tmp/debs
COPY wheels /tmp/wheels
RUN pip install --no-index --no-deps /tmp/wheels/*.whl && rm -rf /tmp/wheels
`

// TestLanguages makes a template with Debian's kernel for R and PyPI's for Java, and runs cells of
// both by E2B's package for Python.
func TestLanguages(t *testing.T) {
	testenv.Long(t, "makes a template with R and a JDK")
	dir := keptDir(t)
	python := packages(t, dir)
	d := daemontest.Start(t, "--debian-mirror", aptmirror.Serve(t, "code-interpreter-v1"),
		"--cache-dir", filepath.Join(dir, "cache"))
	if out, err := d.CLI("template", "get", "code-interpreter-v1").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	recipe := t.TempDir()
	if err := os.WriteFile(filepath.Join(recipe, "Dockerfile"), []byte(polyglot), 0o600); err != nil {
		t.Fatal(err)
	}
	debs(t, d, filepath.Join(recipe, "debs"))
	pip := filepath.Join(filepath.Dir(python), "pip")
	download := exec.CommandContext(t.Context(), pip, "download", "--quiet", "--no-deps",
		"--dest", filepath.Join(recipe, "wheels"), "-r", "python/java/requirements.txt")
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := d.CLI("template", "build", "polyglot", recipe).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suiteTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-m", "unittest", "-v", "python/test_languages.py")
	cmd.Env = append(os.Environ(), "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL,
		"E2B_API_KEY="+d.Key)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// debs downloads Debian's packages for R and Java that the template lacks into a directory, by this
// machine's apt.
func debs(t *testing.T, d *daemontest.Daemon, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "partial"), 0o755); err != nil {
		t.Fatal(err)
	}
	id, err := d.CLI("create", "--template", "code-interpreter-v1").Output()
	if err != nil {
		t.Fatal(err)
	}
	sandbox := strings.TrimSpace(string(id))
	have, err := d.CLI("exec", sandbox, "--", "cat", "/var/lib/dpkg/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CLI("kill", sandbox).Run(); err != nil {
		t.Fatal(err)
	}
	status := filepath.Join(t.TempDir(), "status")
	if err := os.WriteFile(status, have, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "apt-get", "-y", "--no-install-recommends",
		"--download-only", "-o", "Dir::State::status="+status, "-o", "Dir::Cache::archives="+dir,
		"-o", "Debug::NoLocking=1", "install", "r-cran-irkernel", "default-jdk-headless").CombinedOutput()
	if err != nil {
		t.Logf("%s", out)
	}
	testenv.Need(t, "debian", err)
	if err := os.Remove(filepath.Join(dir, "partial")); err != nil {
		t.Fatal(err)
	}
}

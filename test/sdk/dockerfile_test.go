package sdk

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// packagesFile is a Dockerfile as people write it, with a package of npm and one of pip. Both lie
// in its context.
const packagesFile = `# What an agent needs.
FROM e2bdev/base
USER root
ENV PIP_BREAK_SYSTEM_PACKAGES=1 \
    PIP_NO_INDEX=1 APP=/home/user/app
WORKDIR $APP
COPY carrel-hello ./carrel-hello
COPY carrel_greet-1.0-py3-none-any.whl ./
RUN npm install --offline --no-audit --no-fund ./carrel-hello
RUN python3 -m pip install --no-cache-dir ./carrel_greet-1.0-py3-none-any.whl
USER user
`

// publicFile takes the packages from where this machine takes them.
const publicFile = `FROM e2bdev/base
USER root
ENV PIP_BREAK_SYSTEM_PACKAGES=1
WORKDIR /home/user/app
RUN npm install --no-audit --no-fund left-pad
RUN python3 -m pip install --no-cache-dir six
USER user
`

// TestDockerfile makes a template of one Dockerfile with E2B's CLI, with E2B's SDKs, and with
// carrel. A sandbox of each runs what the Dockerfile installed.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	needNpmAndPip(t)
	dir := t.TempDir()
	writePackages(t, dir)
	d := daemontest.Start(t)
	buildWithEach(t, d, dir, "local", `cd /home/user/app && node -p "require('carrel-hello')" && `+
		`python3 -c 'import carrel_greet; print(carrel_greet.text)' && id -un`,
		"hello from npm\ngreetings from pip\nuser")
}

// TestDockerfileOfRegistries is TestDockerfile with packages of the public registries.
func TestDockerfileOfRegistries(t *testing.T) {
	testenv.Long(t, "packages of public registries")
	needNpmAndPip(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Dockerfile"), publicFile)
	d := daemontest.Start(t)
	buildWithEach(t, d, dir, "public", `cd /home/user/app && node -p "require('left-pad')(1, 3, 0)" `+
		`&& python3 -c 'import six; print(six.__name__)'`, "001\nsix")
}

// buildWithEach makes a template of a directory with each client, and runs a command in a sandbox
// of each template.
func buildWithEach(t *testing.T, d *daemontest.Daemon, dir, name, command, want string) {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	node := nodeTests("dockerfile")(t).Path // it installs
	installCLI(t)
	env := append(cleanEnv(), "E2B_API_URL="+d.URL, "E2B_SANDBOX_URL="+d.URL, "E2B_API_KEY="+d.Key,
		"CONTEXT="+dir, "HOME="+t.TempDir())
	for _, c := range []struct {
		client string
		cmd    func(template string) *exec.Cmd
	}{
		{"e2b-cli", func(template string) *exec.Cmd {
			return exec.Command(node, cliCode, "template", "create", template,
				"--path", dir, "--dockerfile", "Dockerfile", "--cpu-count", "1", "--memory-mb", "512")
		}},
		{"npm", func(string) *exec.Cmd { return nodeTests("dockerfile")(t) }},
		{"python", func(string) *exec.Cmd { return pythonTests("test_dockerfile.py")(t) }},
		{"carrel", func(template string) *exec.Cmd {
			return d.CLI("template", "build", template, dir, "--memory", "512")
		}},
	} {
		t.Run(c.client, func(t *testing.T) {
			template := c.client + "-" + name
			cmd := c.cmd(template)
			if cmd.Env == nil {
				cmd.Env = append(env, "NAME="+template)
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			if got := runIn(t, svc, template, command); got != want {
				t.Errorf("a sandbox of %s says %q, want %q", template, got, want)
			}
		})
	}
}

// runIn runs a command in a new sandbox of a template, and returns its output.
func runIn(t *testing.T, svc carrel.Service, template, command string) string {
	t.Helper()
	sb, err := svc.Create(t.Context(), carrel.CreateOptions{Template: template,
		Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatalf("create from %s: %v", template, err)
	}
	defer func() { _ = svc.Kill(t.Context(), sb.ID) }() // the daemon ends the rest
	c, err := svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", command}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(res.Stdout) + string(res.Stderr))
}

// needNpmAndPip skips a test on a machine whose base template has no npm or pip.
func needNpmAndPip(t *testing.T) {
	t.Helper()
	_, err := os.Stat("/usr/bin/npm")
	if err == nil {
		if out, perr := exec.Command("/usr/bin/python3", "-m", "pip",
			"--version").CombinedOutput(); perr != nil {
			err = errors.New(string(out))
		}
	}
	testenv.Need(t, "npm", err)
}

// writePackages writes a context: the Dockerfile and its packages.
func writePackages(t *testing.T, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, "Dockerfile"), packagesFile)
	write(t, filepath.Join(dir, "carrel-hello", "package.json"),
		`{"name": "carrel-hello", "version": "1.0.0", "main": "index.js"}`)
	write(t, filepath.Join(dir, "carrel-hello", "index.js"), `module.exports = 'hello from npm'`)
	var wheel bytes.Buffer
	w := zip.NewWriter(&wheel)
	const info = "carrel_greet-1.0.dist-info/"
	for _, f := range []struct{ name, text string }{
		{"carrel_greet.py", "text = 'greetings from pip'\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: carrel-greet\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: carrel\nRoot-Is-Purelib: true\n" +
			"Tag: py3-none-any\n"},
		{info + "RECORD", "carrel_greet.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info +
			"RECORD,,\n"},
	} {
		out, err := w.Create(f.name)
		if err == nil {
			_, err = out.Write([]byte(f.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "carrel_greet-1.0-py3-none-any.whl"), wheel.String())
}

// write writes a file, and makes its directory.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

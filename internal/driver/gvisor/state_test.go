package gvisor_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	erofs "github.com/erofs/go-erofs"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// pythonRoot makes an image with a shell, Python and the state program. It does so once.
var pythonRoot = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(images.dir, "python")
	if err != nil {
		return "", err
	}
	python := "/usr/bin/python3"
	if !exists(python) {
		python = "python3"
	}
	out, err := exec.Command(python, "-c", "import os, sys, sysconfig; print(os.path.realpath(sys.executable)); print(sysconfig.get_path('stdlib'))").Output()
	if err != nil {
		return "", fmt.Errorf("python3: %w", err)
	}
	python, lib, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	for _, d := range []string{"tmp", "etc", "root", "dev", "proc", "sys"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return "", err
		}
	}
	programs := map[string]string{python: "bin/python3"}
	for _, tool := range []string{"sh", "cat", "mv", "sleep", "ls", "dd", "seq"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			return "", err
		}
		programs[path] = filepath.Join("bin", tool)
	}
	for path, as := range programs {
		if err := copyWithLibraries(path, as, dir); err != nil {
			return "", err
		}
	}
	extensions, err := filepath.Glob(filepath.Join(lib, "lib-dynload", "*.so"))
	if err != nil {
		return "", err
	}
	for _, path := range extensions {
		if err := copyWithLibraries(path, path, dir); err != nil {
			return "", err
		}
	}
	if err := copyModules(lib, filepath.Join(dir, lib)); err != nil {
		return "", err
	}
	program, err := os.ReadFile("testdata/state/state.py")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "state.py"), program, 0o644); err != nil {
		return "", err
	}
	name := dir + ".erofs"
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	w := erofs.Create(f)
	if err := w.CopyFrom(os.DirFS(dir)); err != nil {
		return "", err
	}
	return name, w.Close()
})

// unneeded are the parts of Python's library that no test imports.
var unneeded = regexp.MustCompile(`/(test|tests|__pycache__|dist-packages|idlelib|tkinter|lib2to3|ensurepip|config-[^/]*)$`)

// copyModules copies Python's modules.
func copyModules(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && unneeded.MatchString(path) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".py") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, b, 0o644)
	})
}

// statePort is the port of the state program.
const statePort = 7000

// stateSpec describes a sandbox for the state program.
func stateSpec(t testing.TB) driver.Spec {
	t.Helper()
	root, err := pythonRoot()
	testenv.Need(t, "python", err)
	spec := newSpec(t)
	spec.Root.Image = root
	spec.Limits.MemoryMB, spec.Limits.DiskMB = 1024, 256
	return spec
}

// runInside runs a shell command inside.
func runInside(t testing.TB, in driver.Instance, cmd string) string {
	t.Helper()
	out, ok := get(t, in, "/run?cmd="+url.QueryEscape(cmd))
	if !ok {
		t.Fatalf("%s: %s", cmd, out)
	}
	return out
}

// startState starts the state program with a heap and files.
func startState(t testing.TB, in driver.Instance, mb, files int) {
	t.Helper()
	runInside(t, in, fmt.Sprintf("python3 /state.py %d %d > /tmp/state.log 2>&1 < /dev/null &", mb, files))
	err := testenv.Within(t.Context(), 2*time.Minute, func() error {
		out := runInside(t, in, "cat /tmp/state.log")
		if strings.Contains(out, "Traceback") {
			t.Fatalf("the state program: %s", out)
		}
		if !strings.Contains(out, "ready") {
			return fmt.Errorf("the state program: %s", out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// door is a connection to the state program.
type door struct {
	net.Conn
	lines *bufio.Reader
}

// openDoor connects to the state program.
func openDoor(t testing.TB, in driver.Instance) *door {
	t.Helper()
	c, err := in.Dial(t.Context(), statePort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &door{c, bufio.NewReader(c)}
}

// ask sends one command and returns the answer.
func (d *door) ask(t testing.TB, cmd string) string {
	t.Helper()
	_ = d.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := fmt.Fprintln(d, cmd); err != nil {
		t.Fatal(err)
	}
	line, err := d.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return strings.TrimSpace(line)
}

// askState asks over a connection of its own.
func askState(t testing.TB, in driver.Instance, cmd string) string {
	t.Helper()
	return openDoor(t, in).ask(t, cmd)
}

// wantState checks that all of the program's state is there.
func wantState(t testing.TB, in driver.Instance) {
	t.Helper()
	if got := askState(t, in, "check"); got != "ok" {
		t.Errorf("the state program says %q", got)
	}
}

// contextFor is a context that ends after a time.
func contextFor(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

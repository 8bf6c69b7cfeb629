package gvisor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	erofs "github.com/erofs/go-erofs"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/guest/guestbin"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// sameFiles are the cases about a snapshot's files. With -short only one run of the suite has them:
// they are the same whoever runs the driver, and however its sentries were started.
var sameFiles = []string{"snapshot/many files", "snapshot/damaged", "snapshot/other build",
	"snapshot/leftovers", "snapshot/tar", "snapshot/hostile", "snapshot/full"}

// samePaths are the cases that a sentry that was started ahead, or an unprivileged user's driver,
// goes through in the same way. With -short, they are TestDriver's of the root test alone.
var samePaths = slices.Concat(sameFiles, []string{"output", "ports", "neighbours", "snapshot/generations",
	"snapshot/original gone", "snapshot/files only", "snapshot/files", "snapshot/template",
	"snapshot/at once", "snapshot/cancelled", "snapshot/ended", "snapshot/boot", "snapshot/announced"})

// TestDriver runs the conformance suite with the real guest and the real wire.
func TestDriver(t *testing.T) {
	if os.Getenv(envRole) != "" { // TestRootless
		suite(t, 0, samePaths...)
		return
	}
	suite(t, 0)
}

// TestBlankDriver runs the conformance suite with sentries that were started ahead.
func TestBlankDriver(t *testing.T) {
	suite(t, 2, append([]string{"snapshot/disk limit", "snapshot/freeze", "snapshot/side by side"}, samePaths...)...)
}

// suite runs the conformance suite with a driver that keeps the given number of blank sentries.
// With -short, it leaves out the cases in long.
func suite(t *testing.T, blanks int, long ...string) {
	s := makeSuiteFiles(t)
	w := wire.New(wire.Options{})
	t.Cleanup(func() { w.Close() })
	var mu sync.Mutex
	states := map[string]func(testing.TB) driver.Driver{}
	drivertest.Run(t, drivertest.Harness{
		New: func(t testing.TB) driver.Driver {
			mu.Lock()
			defer mu.Unlock()
			open, ok := states[t.Name()]
			if !ok {
				dir, k := shortDir(t), &drivertest.Keeper{}
				open = func(t testing.TB) driver.Driver {
					d, err := gvisor.New(gvisor.Options{Options: hosted.Options{Root: dir, Network: w, Keeper: k, Executable: images.exe}, Blanks: blanks})
					if err != nil {
						t.Fatal(err)
					}
					readyBlanks(t, d, blanks)
					return d
				}
				states[t.Name()] = open
			}
			return open(t)
		},
		Root:   driver.Root{Image: s.Root},
		Guest:  s.Guest,
		Attack: s.Attack,
		Settle: func(t testing.TB, d driver.Driver) { readyBlanks(t, d.(*gvisor.Driver), blanks) },
		Limits: carrel.Limits{CPUs: 2, MemoryMB: 256, DiskMB: 64, Pids: 128},
		Long:   long,
	})
}

// suiteFiles are the files that the conformance suite needs.
type suiteFiles struct{ Root, Guest, Attack string }

// makeSuiteFiles makes the suite's files. The rootless test can build nothing, so there it finds
// the files that the root test made.
func makeSuiteFiles(t *testing.T) suiteFiles {
	t.Helper()
	s := suiteFiles{Root: filepath.Join(images.dir, "shell.erofs"), Attack: filepath.Join(images.dir, "attack")}
	name := filepath.Join(images.dir, "suite.json")
	if b, err := os.ReadFile(name); err == nil && json.Unmarshal(b, &s) == nil {
		return s
	}
	var err error
	s.Guest, err = guestbin.Extract(images.dir)
	testenv.Need(t, "guest", err)
	testenv.Need(t, "shell", shellRoot(t, s.Root))
	drivertest.BuildAttack(t, s.Attack)
	b, err := json.Marshal(s)
	if err == nil {
		err = errors.Join(os.Chmod(s.Guest, 0o644), os.Chmod(s.Root, 0o644), os.WriteFile(name, b, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shellRoot writes an image with a shell, some tools and the libraries they need,
// taken from this machine.
func shellRoot(t *testing.T, name string) error {
	dir := t.TempDir()
	for _, d := range []string{"tmp", "etc", "root", "usr", "home", "var", "run", "bin"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(dir, "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	for _, tool := range []string{"sh", "cat", "chmod", "rm", "wc", "hostname", "env", "sleep", "ls", "touch", "id", "mkdir"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			return err
		}
		if err := copyWithLibraries(path, filepath.Join("bin", tool), dir); err != nil {
			return err
		}
	}
	// The suite replaces this directory; nothing else touches it.
	if err := os.MkdirAll(filepath.Join(dir, "opt", "tool"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"opt/readme", "opt/tool/data"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	w := erofs.Create(f)
	if err := w.CopyFrom(os.DirFS(dir)); err != nil {
		return err
	}
	return w.Close()
}

// libraryPath finds the absolute paths in what ldd prints.
var libraryPath = regexp.MustCompile(`/[^\s()]+`)

// copyWithLibraries copies a program and the libraries it is linked with.
func copyWithLibraries(path, as, dir string) error {
	files := map[string]string{as: path}
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", path, err)
	}
	for _, lib := range libraryPath.FindAllString(string(out), -1) {
		files[lib] = lib
	}
	for to, from := range files {
		to = filepath.Join(dir, to)
		if exists(to) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			return err
		}
	}
	return nil
}

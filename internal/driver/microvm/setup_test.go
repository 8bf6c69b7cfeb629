//go:build linux

package microvm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/microvm"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// envFiles names the directory with the kernel and carrel-init, which "make microvm" fills.
const envFiles = "CARREL_MICROVM"

func TestMain(m *testing.M) {
	if reexec.Run(microvm.Parts()) || playFake() {
		return
	}
	code := m.Run()
	for _, dir := range leftovers {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// leftovers are directories that all tests share.
var leftovers []string

// things are the files that all tests share.
type things struct{ Kernel, Init, Root, Guest, Attack string }

var shared = sync.OnceValues(makeThings)

// need returns the shared things.
func need(t testing.TB) things {
	t.Helper()
	s, err := shared()
	testenv.Need(t, "microvm", err)
	return s
}

func makeThings() (s things, err error) {
	s.Kernel = os.Getenv(envFiles)
	if s.Kernel == "" {
		return s, fmt.Errorf("no %s: run make microvm", envFiles)
	}
	s.Init = filepath.Join(s.Kernel, "carrel-init")
	dir, err := os.MkdirTemp("", "carrel-microvm-")
	if err != nil {
		return s, err
	}
	leftovers = append(leftovers, dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	s.Root, s.Guest, s.Attack = at("root.erofs"), at("guest.erofs"), at("attack")
	for _, cmd := range []*exec.Cmd{
		exec.Command("go", "run", "github.com/carrel-dev/carrel/internal/tools/guestimage", "-o", s.Guest),
		exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", s.Attack, "github.com/carrel-dev/carrel/internal/driver/drivertest/attack"),
	} {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return s, fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
		}
	}
	tree := at("tree")
	if err := errors.Join(os.Mkdir(tree, 0o755), drivertest.ShellTree(tree)); err != nil {
		return s, err
	}
	st, err := store.Open(context.Background(), store.Options{Dir: at("store")})
	if err != nil {
		return s, err
	}
	im, err := st.ImportDir(context.Background(), "shell", tree, nil)
	if err != nil {
		return s, err
	}
	return s, os.Link(im.Path, s.Root)
}

// state is the state that the drivers of one test share: a directory, a keeper and a wire.
type state struct {
	dir    string
	keeper *drivertest.Keeper
	wire   *wire.Wire
}

func newState(t testing.TB) *state {
	t.Helper()
	w := wire.New(wire.Options{})
	t.Cleanup(func() { w.Close() })
	return &state{dir: t.TempDir(), keeper: &drivertest.Keeper{}, wire: w}
}

// judged finds the accelerator once for all tests, and returns the file with the verdict.
var judged = sync.OnceValues(func() ([]byte, error) {
	files, err := shared()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "carrel-microvm-")
	if err != nil {
		return nil, err
	}
	leftovers = append(leftovers, dir)
	w := wire.New(wire.Options{})
	defer w.Close()
	d, err := microvm.New(microvm.Options{Options: hosted.Options{Root: dir, Network: w}, Kernel: files.Kernel, Init: files.Init})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := d.Probe(context.Background()); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, verdictFile))
})

// verdictFile is where a driver remembers the accelerator.
const verdictFile = "accelerator.json"

// newJudged is newState with a verdict, so that no driver boots a machine for it.
func newJudged(t testing.TB) *state {
	t.Helper()
	s := newState(t)
	verdict, err := judged()
	testenv.Need(t, "microvm", err)
	if err := os.WriteFile(filepath.Join(s.dir, verdictFile), verdict, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// options are those of a driver with this state.
func (s *state) options(t testing.TB) microvm.Options {
	t.Helper()
	files := need(t)
	return microvm.Options{Options: hosted.Options{Root: s.dir, Network: s.wire, Keeper: s.keeper}, Kernel: files.Kernel, Init: files.Init}
}

// open returns a driver that is closed when the test ends.
func (s *state) open(t testing.TB) *microvm.Driver {
	t.Helper()
	d, err := microvm.New(s.options(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	testenv.Need(t, "microvm", d.Probe(t.Context()))
	return d
}

// limits are small and enough.
var limits = carrel.Limits{CPUs: 1, MemoryMB: 256, DiskMB: 64, Pids: 128}

// newSpec describes a sandbox with a directory of its own.
func newSpec(t testing.TB) driver.Spec {
	t.Helper()
	s := need(t)
	return driver.Spec{ID: carrel.NewID(), Root: driver.Root{Image: s.Root}, Guest: s.Guest, Dir: t.TempDir(), Limits: limits}
}

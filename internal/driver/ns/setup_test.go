package ns_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/ns"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/store"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// Environment of a copy of the test binary that an ordinary user runs.
const envState = "CARREL_TEST_NS"

func TestMain(m *testing.M) {
	if reexec.Run(ns.Parts()) {
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

// things are the files that all tests share: images, the attack program, and a TAP device that
// everybody may open, as on most hosts.
type things struct{ Dir, Root, Guest, Attack, Device string }

var shared = sync.OnceValues(makeThings)

// need returns the shared things.
func need(t testing.TB) things {
	t.Helper()
	s, err := shared()
	testenv.Need(t, "guest", err)
	return s
}

func makeThings() (s things, err error) {
	if text := os.Getenv(envState); text != "" {
		return s, json.Unmarshal([]byte(text), &s)
	}
	if s.Dir, err = os.MkdirTemp("", "carrel-ns-"); err != nil {
		return s, err
	}
	leftovers = append(leftovers, s.Dir)
	at := func(name string) string { return filepath.Join(s.Dir, name) }
	s.Root, s.Guest, s.Attack = at("root.erofs"), at("guest.erofs"), at("attack")
	if err := os.Chmod(s.Dir, 0o755); err != nil {
		return s, err
	}
	for _, cmd := range []*exec.Cmd{
		exec.Command("go", "run", "github.com/carrel-dev/carrel/internal/tools/guestimage", "-o", s.Guest),
		exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", s.Attack, "github.com/carrel-dev/carrel/internal/driver/drivertest/attack"),
	} {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return s, fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
		}
	}
	if os.Geteuid() == 0 {
		s.Device = at("tun")
		if err := errors.Join(unix.Mknod(s.Device, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))), os.Chmod(s.Device, 0o666)); err != nil {
			return s, err
		}
	}
	return s, errors.Join(shellRoot(s.Root), os.Chmod(s.Guest, 0o644), os.Chmod(s.Root, 0o644), os.Chmod(s.Attack, 0o755))
}

// files opens images for drivers that unpack them.
var files = sync.OnceValues(func() (image.Store, error) {
	dir, err := os.MkdirTemp("", "carrel-ns-store-")
	if err != nil {
		return nil, err
	}
	leftovers = append(leftovers, dir)
	return store.Open(context.Background(), store.Options{Dir: dir})
})

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

// open returns a driver. It is closed when the test ends.
func (s *state) open(t testing.TB) *ns.Driver {
	t.Helper()
	d := s.openOnly(t)
	t.Cleanup(func() { d.Close() })
	testenv.Need(t, "ns", d.Probe(t.Context()))
	return d
}

// openOnly returns a driver that the caller closes.
func (s *state) openOnly(t testing.TB) *ns.Driver {
	t.Helper()
	st, err := files()
	if err != nil {
		t.Fatal(err)
	}
	d, err := ns.New(ns.Options{Options: hosted.Options{Root: s.dir, Network: s.wire, Keeper: s.keeper}, Files: st.Files, Device: need(t).Device})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// limits are small and enough.
var limits = carrel.Limits{CPUs: 2, MemoryMB: 256, DiskMB: 64, Pids: 128}

// newSpec describes a sandbox with a directory of its own.
func newSpec(t testing.TB) driver.Spec {
	t.Helper()
	s := need(t)
	return driver.Spec{ID: carrel.NewID(), Root: driver.Root{Image: s.Root}, Guest: s.Guest, Dir: t.TempDir(), Limits: limits}
}

// TestDriver runs the conformance suite.
func TestDriver(t *testing.T) {
	s := need(t)
	var mu sync.Mutex
	states := map[string]*state{}
	skip := map[string]string{}
	if testing.Short() && !full() {
		skip["snapshot"] = "not with -short: root's run has it"
	}
	drivertest.Run(t, drivertest.Harness{
		Skip: skip,
		New: func(t testing.TB) driver.Driver {
			mu.Lock()
			defer mu.Unlock()
			if states[t.Name()] == nil {
				states[t.Name()] = newState(t)
			}
			return states[t.Name()].openOnly(t)
		},
		Root: driver.Root{Image: s.Root}, Guest: s.Guest, Attack: s.Attack, Limits: limits, OneOwner: !full(),
	})
}

// stranger is the uid of rootless tests.
const stranger = 54329

// TestRootless runs the tests as an ordinary user.
func TestRootless(t *testing.T) {
	if os.Getenv(envState) != "" {
		testenv.Inapplicable(t, "runs from the root test only")
	}
	if os.Geteuid() != 0 {
		testenv.Need(t, "rootless", errors.New("root, to become another user"))
	}
	s := need(t)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "cn")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(tmp, "copy.test") // others may not enter the test binary's directory
	if out, err := exec.Command("cp", self, bin).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	if err := os.Chown(tmp, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-test.short="+strconv.FormatBool(testing.Short()), "-test.v")
	cmd.Env = []string{envState + "=" + string(text), "TMPDIR=" + tmp, "HOME=" + tmp, "PATH=" + os.Getenv("PATH"), "CARREL_REQUIRE=" + os.Getenv("CARREL_REQUIRE")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	start := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%v\n%s", time.Since(start), out)
	if err != nil {
		t.Error(err)
	}
}

// shellRoot writes an image with a shell and some tools.
func shellRoot(name string) error {
	dir, err := os.MkdirTemp("", "shell")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := drivertest.ShellTree(dir); err != nil {
		return err
	}
	st, err := files()
	if err != nil {
		return err
	}
	im, err := st.ImportDir(context.Background(), "shell", dir, nil)
	if err != nil {
		return err
	}
	return os.Link(im.Path, name)
}

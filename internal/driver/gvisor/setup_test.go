package gvisor_test

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	erofs "github.com/erofs/go-erofs"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	_ "github.com/carrel-dev/carrel/internal/driver/gvisor/umounter" // as in carrel-sentry
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// Environment of a copy of the test binary that plays another process.
const (
	envRole  = "CARREL_TEST_ROLE"
	envState = "CARREL_TEST_STATE"
	// envBlanks is how many blank sentries the drivers of all tests keep.
	envBlanks = "CARREL_TEST_BLANKS"
)

// images are the EROFS images that all tests share, and the binary that the sandboxes run: "" for
// the test binary itself.
var images struct{ dir, root, guest, exe string }

func TestMain(m *testing.M) {
	if reexec.Run(gvisor.Parts()) {
		return
	}
	os.Exit(run(m))
}

// run makes the images and runs the tests. In a copy of the test binary it plays another process.
func run(m *testing.M) int {
	if dir := os.Getenv(envState); dir != "" {
		images.dir = dir
		images.root, images.guest = filepath.Join(dir, "root.erofs"), filepath.Join(dir, "guest.erofs")
		if exe := filepath.Join(dir, "sentry"); exists(exe) {
			images.exe = exe
		}
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "carrel-gvisor-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755) // rootless tests read the images
	}
	if err == nil {
		err = makeImages(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// exists reports whether there is a file of that name.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// build builds a static program of testdata.
func build(pkg, out string) error {
	cmd := exec.Command("go", "build", "-o", out, "./testdata/"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, text)
	}
	return nil
}

// dynamic reports whether this test binary needs a dynamic linker. It does when it is built with
// cgo, for example for the race detector.
func dynamic() bool {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return false
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// makeImages builds the guest and packs it and an almost empty root.
func makeImages(dir string) error {
	images.dir = dir
	if dynamic() {
		images.exe = filepath.Join(dir, "sentry")
		if err := build("sentry", images.exe); err != nil {
			return err
		}
	}
	bin := filepath.Join(dir, "guest")
	if err := build("guest", bin); err != nil {
		return err
	}
	guest, err := os.ReadFile(bin)
	if err != nil {
		return err
	}
	images.root, images.guest = filepath.Join(dir, "root.erofs"), filepath.Join(dir, "guest.erofs")
	if err := writeImage(images.guest, nil, map[string][]byte{"/guest": guest}); err != nil {
		return err
	}
	return writeImage(images.root, []string{"/tmp", "/etc", "/usr", "/root"}, map[string][]byte{"/etc/motd": []byte("template\n")})
}

// writeImage writes an EROFS image with these directories and files.
func writeImage(name string, dirs []string, files map[string][]byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	w := erofs.Create(f)
	for _, d := range dirs {
		if err := w.Mkdir(d, 0o777); err != nil {
			return err
		}
	}
	for path, data := range files {
		e, err := w.Create(path)
		if err != nil {
			return err
		}
		if _, err := e.Write(data); err != nil {
			return err
		}
		if err := e.Chmod(0o755); err != nil {
			return err
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	return w.Close()
}

// newDriver returns a driver of this test alone, with a keeper.
func newDriver(t testing.TB) (*gvisor.Driver, *drivertest.Keeper) {
	t.Helper()
	k := &drivertest.Keeper{}
	d := openDriver(t, shortDir(t), k)
	return d, k
}

// openDriver returns a driver with this root. The environment says how many blank sentries it
// keeps: all tests must pass with some, too.
func openDriver(t testing.TB, root string, k hosted.FDKeeper) *gvisor.Driver {
	t.Helper()
	blanks, _ := strconv.Atoi(os.Getenv(envBlanks))
	return openBlank(t, root, k, blanks)
}

// openBlank returns a driver that keeps the given number of blank sentries. It returns when they
// are ready.
func openBlank(t testing.TB, root string, k hosted.FDKeeper, blanks int) *gvisor.Driver {
	t.Helper()
	d, err := gvisor.New(gvisor.Options{Options: hosted.Options{Root: root, Network: testNetwork{}, Keeper: k, Executable: images.exe}, Blanks: blanks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	testenv.Need(t, "gvisor", d.Probe(t.Context()))
	readyBlanks(t, d, blanks)
	return d
}

// readyBlanks waits until n blank sentries are ready.
func readyBlanks(t testing.TB, d *gvisor.Driver, n int) {
	t.Helper()
	d.BeginBlanks()
	testenv.EventuallyNil(t, fmt.Sprintf("%d are ready", n), func() error {
		if b := d.Blanks(); b.Ready != n {
			return fmt.Errorf("%+v", b)
		}
		return nil
	})
}

// shortDir is a temporary directory whose path leaves room for a socket's name.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// limits are small and enough.
var limits = carrel.Limits{CPUs: 2, MemoryMB: 256, DiskMB: 64, Pids: 128}

// newSpec describes a sandbox with a directory of its own.
func newSpec(t testing.TB) driver.Spec {
	t.Helper()
	return driver.Spec{ID: carrel.NewID(), Root: driver.Root{Image: images.root}, Guest: images.guest, Dir: t.TempDir(), Limits: limits}
}

// create makes a sandbox that the test's end destroys.
func create(t testing.TB, d driver.Driver, spec driver.Spec) driver.Instance {
	t.Helper()
	in, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err, carrel.HintOf(err))
	}
	t.Cleanup(func() { destroy(t, in) })
	return in
}

// destroy ends a sandbox.
func destroy(t testing.TB, in driver.Instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := in.Destroy(ctx); err != nil {
		t.Error(err)
	}
}

// client is an HTTP client whose every request goes to the guest.
func client(in driver.Instance) *http.Client {
	return &http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, in) },
	}}
}

// dial connects to the guest once it listens.
func dial(ctx context.Context, in driver.Instance) (c net.Conn, err error) {
	err = testenv.Within(ctx, time.Minute, func() error { c, err = in.Dial(ctx, carrel.GuestPort); return err })
	return c, err
}

// get sends a request to the guest. It returns the answer and whether the request succeeded.
func get(t testing.TB, in driver.Instance, path string) (string, bool) {
	t.Helper()
	text, ok, err := tryGet(in, path)
	if err != nil {
		t.Fatal(err)
	}
	return text, ok
}

// tryGet is get for requests that may end the sandbox.
func tryGet(in driver.Instance, path string) (string, bool, error) {
	c := client(in)
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://guest" + path)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), resp.StatusCode == http.StatusOK, err
}

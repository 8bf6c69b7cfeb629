// Package upgrade runs real daemons of several builds, one after the other, on one data directory.
package upgrade

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel/internal/testenv"
)

const module = "github.com/carrel-dev/carrel/"

// build is one build of the program.
type build struct {
	name   string // also its version
	carrel string // its file
	sentry string // SHA-256 of the sentry that it carries
}

// made holds the builds that this test binary compiled, in a directory of its own.
var made struct {
	dir string
	mu  sync.Mutex
	by  map[string]build
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "carrel-upgrade-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	made.dir, made.by = dir, map[string]build{}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// repository is the absolute path of the sources.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ours is the build that "make build" made.
func ours(t *testing.T) build {
	t.Helper()
	root := repository(t)
	b := build{name: "a", carrel: filepath.Join(root, "bin/carrel"),
		sentry: fileSum(t, filepath.Join(root, "bin/carrel-sentry"))}
	if _, err := os.Stat(b.carrel); err != nil {
		t.Fatalf("%v (build it with: make build)", err)
	}
	return b
}

// another compiles a build whose sentry is another, and whose snapshots no other build can restore
// by itself.
func another(t *testing.T, name string) build {
	t.Helper()
	made.mu.Lock()
	b, ok := made.by[name]
	made.mu.Unlock()
	if ok {
		return b
	}
	root, dir := repository(t), filepath.Join(made.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	in := func(file string) string { return filepath.Join(dir, file) }
	flags := "-s -w -X " + module + "internal/version.Version=" + name + " -X " + module +
		"internal/driver/gvisor.mark=" + name
	compile := func(command string, more ...string) {
		args := append([]string{"build", "-trimpath", "-ldflags", flags, "-o", in(command)}, more...)
		cmd := exec.Command("go", append(args, "./cmd/"+command)...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", command, err, out)
		}
	}
	compile("carrel-sentry")
	sum := fileSum(t, in("carrel-sentry"))
	pack(t, in("carrel-sentry"), in("carrel-sentry.zst"))
	assets := filepath.Join(root, "internal/driver/gvisor/sentrybin/assets")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(assets, "carrel-sentry.zst"): in("carrel-sentry.zst"),
		filepath.Join(assets, "carrel-sentry.sum"): in("carrel-sentry.sum"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"carrel-sentry.sum": sum + "\n",
		"overlay.json": string(overlay)} {
		if err := os.WriteFile(in(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compile("carrel", "-overlay", in("overlay.json"))
	b = build{name: name, carrel: in("carrel"), sentry: sum}
	made.mu.Lock()
	defer made.mu.Unlock()
	made.by[name] = b
	return b
}

// pack compresses a file, quickly.
func pack(t *testing.T, from, to string) {
	t.Helper()
	r, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(z, r); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// fileSum is the SHA-256 of a file.
func fileSum(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// others compiles two more builds, both at once.
func others(t *testing.T, names ...string) []build {
	t.Helper()
	out := make([]build, len(names))
	var wg sync.WaitGroup
	for i, n := range names {
		wg.Go(func() { out[i] = another(t, n) })
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return out
}

// kernelOf returns the hash of the program that is a sandbox's kernel.
func kernelOf(t *testing.T, id string) string {
	t.Helper()
	pid := sentryOf(t, id)
	if pid == "" {
		t.Fatalf("sandbox %s has no kernel", id)
	}
	return fileSum(t, "/proc/"+pid+"/exe")
}

// sentryOf finds the process that is a sandbox's kernel; "" is none.
func sentryOf(t *testing.T, id string) string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		line, _ := os.ReadFile(p) // it may just have ended
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if args[0] == "carrel-sentry" && args[len(args)-1] == id {
			return filepath.Base(filepath.Dir(p))
		}
	}
	return ""
}

// needGVisor skips the test where the tier does not work.
func needGVisor(t *testing.T, b build) {
	t.Helper()
	out, err := exec.Command(b.carrel, "--json", "--data-dir", t.TempDir(), "doctor").Output()
	var rows []struct {
		Driver, Problem string
		OK              bool
	}
	if err == nil {
		err = json.Unmarshal(out, &rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Driver == "gvisor" && !r.OK {
			testenv.Need(t, "gvisor", errors.New(r.Problem))
		}
	}
}

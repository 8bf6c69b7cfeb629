// Package daemontest starts real daemons (bin/carrel serve) for tests that need the whole machine:
// real walls, real sockets, real crashes.
package daemontest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// Daemon is a carrel serve that belongs to one test.
type Daemon struct {
	URL, Key string
	Domain   string // of --domain, with the port
	Dir      string // its data directory
	Bin      string // absolute path of the binary

	t    testing.TB
	args []string
	env  []string                    // for its processes; nil: the test's own
	sys  func() *syscall.SysProcAttr // its processes' user; nil: the test's own user
	at   *Place
	cmd  *exec.Cmd
	log  *lockedBuffer
}

// Place is where a daemon runs, if not on this machine's own network.
type Place struct {
	Listen string                // address for clients
	Start  func(*exec.Cmd) error // starts the daemon there
	Bin    string                // the binary, if not bin/carrel
}

// StartAt is [StartSim] at another place. With an archive, it is [StartOn].
func StartAt(t testing.TB, at Place, archive string, extra ...string) *Daemon {
	t.Helper()
	bin, err := filepath.Abs(cmp.Or(at.Bin, "../../bin/carrel"))
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, Bin: bin, Dir: t.TempDir(), at: &at}
	if archive == "" {
		d.prepare(append(extra, "--default-tier", "sim", "--default-template", "sim"))
	} else {
		d.prepareWith(archive, extra)
	}
	return d
}

// Port stands for the daemon's port in the extra arguments of Start.
const Port = "PORT"

// lockedBuffer collects a process's output.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was collected.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Start starts a daemon in its own directory with these extra arguments of carrel serve, and waits
// for its base template. After the test it kills the daemon's sandboxes and stops the daemon.
func Start(t testing.TB, extra ...string) *Daemon {
	t.Helper()
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v (build it with: make build)", err)
	}
	d := &Daemon{t: t, Bin: bin, Dir: t.TempDir()}
	d.begin(extra)
	return d
}

// StartSim is Start for a daemon whose sandboxes are simulated unless a request says otherwise. It
// makes no base template, so it is there in a moment.
func StartSim(t testing.TB, extra ...string) *Daemon {
	t.Helper()
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v (build it with: make build)", err)
	}
	d := &Daemon{t: t, Bin: bin, Dir: t.TempDir()}
	d.prepare(append(extra, "--default-tier", "sim", "--default-template", "sim"))
	return d
}

// StartIn is Start on an existing data directory, such as a copy of another daemon's.
func StartIn(t testing.TB, dir string, extra ...string) *Daemon {
	t.Helper()
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(dir, "daemon.json")) // the original's
	d := &Daemon{t: t, Bin: bin, Dir: dir}
	d.begin(extra)
	return d
}

// RestartIn starts the daemon again, on the directory to which its own was moved, with additional
// arguments of carrel serve.
func (d *Daemon) RestartIn(dir string, extra ...string) {
	d.t.Helper()
	d.Dir, d.args[1] = dir, dir
	args := d.args
	d.args = append(slices.Clone(args), extra...)
	_ = os.Remove(filepath.Join(dir, "daemon.json"))
	d.launch()
	d.args = args
}

// StartBin is Start with another binary, and with additional environment variables.
func StartBin(t testing.TB, bin string, env []string, extra ...string) *Daemon {
	t.Helper()
	d := &Daemon{t: t, Bin: bin, Dir: t.TempDir(), env: append(os.Environ(), env...)}
	d.begin(extra)
	return d
}

// StartAs is Start for a daemon that another user runs, with its own home and a base template that
// this user packed. Only root can become another user.
func StartAs(t testing.TB, uid int, extra ...string) *Daemon {
	t.Helper()
	home, err := os.MkdirTemp("", "carrel-user-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	bin := filepath.Join(home, "carrel") // other users may have no access to the checkout
	if out, err := exec.Command("cp", "../../bin/carrel", bin).CombinedOutput(); err != nil {
		t.Fatalf("%s (build it with: make build)", out)
	}
	for _, err := range []error{os.Chmod(home, 0o755), os.Chmod(bin, 0o755), os.Chown(home, uid, uid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d := &Daemon{t: t, Bin: bin, Dir: filepath.Join(home, "data"),
		env: []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")},
		sys: func() *syscall.SysProcAttr {
			return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		}}
	d.begin(extra)
	return d
}

// StartOn is Start in a directory that the test made, perhaps on a filesystem of its own. The
// daemon does not make the base template. It imports this archive as the template "mini", which is
// its default.
func StartOn(t testing.TB, dir, archive string, extra ...string) *Daemon {
	t.Helper()
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, Bin: bin, Dir: dir}
	d.prepareWith(archive, extra)
	return d
}

// prepareWith starts the daemon for the first time, with its default template from an archive.
func (d *Daemon) prepareWith(archive string, extra []string) {
	d.t.Helper()
	d.prepare(append(extra, "--default-template", "mini", "--cache-dir", d.t.TempDir()))
	if out, err := d.CLI("template", "import", "mini", archive).CombinedOutput(); err != nil {
		d.t.Fatalf("import: %v\n%s\n%s", err, out, d.log)
	}
}

// begin starts the daemon for the first time, and waits for its base template.
func (d *Daemon) begin(extra []string) {
	d.t.Helper()
	d.prepare(extra)
	if out, err := d.CLI("template", "inspect", "base").CombinedOutput(); err != nil {
		d.t.Fatalf("base template: %v\n%s\n%s", err, out, d.log)
	}
}

// prepare starts the daemon for the first time.
func (d *Daemon) prepare(extra []string) {
	d.t.Helper()
	listen := ""
	if d.at != nil {
		listen = d.at.Listen
	} else {
		port := freePort(d.t)
		for i, a := range extra {
			extra[i] = strings.ReplaceAll(a, Port, port)
		}
		listen = "127.0.0.1:" + port
	}
	d.Domain, d.log = argAfter(extra, "--domain"), &lockedBuffer{}
	d.args = append([]string{"--data-dir", d.Dir, "serve", "--listen", listen}, warmless(extra)...)
	d.launch()
	d.t.Cleanup(d.stop)
}

// command returns a run of the binary by the daemon's user.
func (d *Daemon) command(args ...string) *exec.Cmd {
	cmd := exec.Command(d.Bin, args...)
	cmd.Env = d.env
	if d.sys != nil {
		cmd.SysProcAttr = d.sys()
		cmd.Dir = "/"
	}
	return cmd
}

// CLI returns a run of the command line against this daemon.
func (d *Daemon) CLI(args ...string) *exec.Cmd {
	cmd := d.command(append([]string{"--data-dir", d.Dir}, args...)...)
	if cert := argAfter(d.args, "--tls-cert"); cert != "" {
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+filepath.Join(filepath.Dir(cert), "ca.pem"))
	}
	return cmd
}

// Kill9 ends the daemon without warning.
func (d *Daemon) Kill9() {
	d.t.Helper()
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	_ = d.cmd.Wait()
	_ = os.Remove(filepath.Join(d.Dir, "daemon.json")) // so that the next one's is not mistaken for it
}

// Terminate ends the daemon in the way of a service manager.
func (d *Daemon) Terminate() {
	d.t.Helper()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
	_ = os.Remove(filepath.Join(d.Dir, "daemon.json"))
}

// Restart starts the daemon again on the same data and port.
func (d *Daemon) Restart() {
	d.t.Helper()
	d.launch()
}

// Setenv sets an environment variable of the daemon's next processes.
func (d *Daemon) Setenv(name, value string) {
	if d.env == nil {
		d.env = os.Environ()
	}
	d.env = append(d.env, name+"="+value)
}

// PID returns the daemon's process ID.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Eventually is [testenv.Eventually] with another limit: it does not wait longer than most.
func Eventually(t testing.TB, most time.Duration, what string, cond func() bool) {
	t.Helper()
	err := testenv.Within(context.Background(), most, func() error {
		if !cond() {
			return errors.New(what)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("waited in vain for %v for: %v", most, err)
	}
}

// Kernels counts the processes that are kernels of this daemon's sandboxes. It leaves out kernels
// that were started ahead and wait for a sandbox.
func (d *Daemon) Kernels() (n int) {
	d.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range all {
		line, _ := os.ReadFile(p) // it may just have ended
		if strings.Contains(string(line), "sentry") && strings.Contains(string(line), d.Dir) && !strings.Contains(string(line), "\x00____") {
			n++
		}
	}
	return n
}

func (d *Daemon) launch() {
	d.t.Helper()
	d.cmd = d.command(d.args...)
	// Tests want this machine's tools, even if its user has had base made.
	d.cmd.Env = slices.Concat([]string{"CARREL_BASE=host"}, d.cmd.Environ())
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	start := (*exec.Cmd).Start
	if d.at != nil {
		start = func(cmd *exec.Cmd) error { return d.at.Start(cmd) }
	}
	if err := start(d.cmd); err != nil {
		d.t.Fatal(err)
	}
	testenv.EventuallyNil(d.t, "the daemon starts", func() error {
		raw, err := os.ReadFile(filepath.Join(d.Dir, "daemon.json"))
		key, keyErr := os.ReadFile(filepath.Join(d.Dir, "api-key"))
		var info struct {
			URL string `json:"url"`
		}
		if err := cmp.Or(err, keyErr, json.Unmarshal(raw, &info)); err != nil {
			return fmt.Errorf("%w\n%s", err, d.log)
		}
		d.URL, d.Key = info.URL, strings.TrimSpace(string(key))
		return nil
	})
}

// stop kills the sandboxes and the daemon.
func (d *Daemon) stop() {
	_ = d.CLI("kill", "--all").Run()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
	if d.t.Failed() {
		lines := strings.Split(strings.TrimSpace(d.log.String()), "\n")
		d.t.Logf("the daemon's log:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// argAfter returns the argument that follows flag.
func argAfter(args []string, flag string) string {
	for i, a := range args {
		if a == flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// warmless turns the pool off, unless the test sets it: tests count processes.
func warmless(extra []string) []string {
	if argAfter(extra, "--warm") != "" {
		return extra
	}
	return append([]string{"--warm", "0"}, extra...)
}

package gvisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// pidOf reads the sentry's pid out of a handle.
func pidOf(t testing.TB, in driver.Instance) int {
	t.Helper()
	var rec struct{ PID int }
	if err := json.Unmarshal(in.Handle(), &rec); err != nil || rec.PID <= 1 {
		t.Fatal(rec, err)
	}
	return rec.PID
}

func TestCrashReasons(t *testing.T) {
	d, _ := newDriver(t)
	t.Run("sentry killed", func(t *testing.T) {
		spec := newSpec(t)
		in := create(t, d, spec)
		if err := syscall.Kill(pidOf(t, in), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		e := waitEnd(t, in)
		t.Logf("%+v", e)
		if e.Reason != carrel.EndCrashed || !strings.Contains(e.Message, "killed") {
			t.Errorf("%+v", e)
		}
		destroy(t, in)
		nothingLeft(t, spec)
	})
	t.Run("sentry's last words", func(t *testing.T) {
		spec := newSpec(t)
		in := create(t, d, spec)
		// The test can't make gVisor panic by a signal, because gVisor forwards signals to the
		// guest. So the test writes the text of a panic into gVisor's log.
		const words = "panic: something impossible happened"
		if err := os.WriteFile(filepath.Join(spec.Dir, "sentry.log"), []byte(words), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pidOf(t, in), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := waitEnd(t, in); e.Reason != carrel.EndCrashed || !strings.Contains(e.Message, words) {
			t.Errorf("%+v", e)
		}
	})
	t.Run("guest exits", func(t *testing.T) {
		in := create(t, d, newSpec(t))
		if _, _, err := tryGet(in, "/exit"); err == nil {
			t.Error("an answer from a guest that ended")
		}
		e := waitEnd(t, in)
		t.Logf("%+v", e)
		if e.Reason != carrel.EndCrashed || !strings.Contains(e.Message, "exit status 3") || !strings.Contains(e.Message, "guest gives up") {
			t.Errorf("%+v", e)
		}
	})
}

// dirKeeper keeps files in another process that outlives the test's child: the parent test. They
// talk over a socket whose path is in the state directory.
type dirKeeper struct{ path string }

// serveKeeper answers the requests of a dirKeeper with k.
func serveKeeper(t *testing.T, path string, k *drivertest.Keeper) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			serveKept(c, k)
		}
	}()
}

// serveKept answers one request.
func serveKept(c *net.UnixConn, k *drivertest.Keeper) {
	defer c.Close()
	buf, oob := make([]byte, 256), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return
	}
	verb, name, _ := strings.Cut(string(buf[:n]), " ")
	switch verb {
	case "put":
		msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
		fds, _ := unix.ParseUnixRights(&msgs[0])
		f := os.NewFile(uintptr(fds[0]), name)
		defer f.Close()
		_ = k.Put(context.Background(), name, f)
		c.Write([]byte("ok"))
	case "get":
		f, err := k.Get(context.Background(), name)
		if err != nil {
			return
		}
		defer f.Close()
		c.WriteMsgUnix([]byte("ok"), unix.UnixRights(int(f.Fd())), nil)
	case "delete":
		_ = k.Delete(context.Background(), name)
		c.Write([]byte("ok"))
	}
}

func (k dirKeeper) ask(verb, name string, f *os.File) (*os.File, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: k.path})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	if _, _, err := c.WriteMsgUnix([]byte(verb+" "+name), rights, nil); err != nil {
		return nil, err
	}
	buf, oob := make([]byte, 16), make([]byte, unix.CmsgSpace(4))
	_, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil || verb != "get" {
		return nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) == 0 {
		return nil, &carrel.Error{Kind: carrel.NotFound}
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), name), nil
}

func (k dirKeeper) Put(_ context.Context, name string, f *os.File) error {
	_, err := k.ask("put", name, f)
	return err
}
func (k dirKeeper) Get(_ context.Context, name string) (*os.File, error) {
	return k.ask("get", name, nil)
}
func (k dirKeeper) Delete(_ context.Context, name string) error {
	_, err := k.ask("delete", name, nil)
	return err
}

// TestRecoverInANewProcess creates a sandbox in another process, kills that process, and adopts the
// sandbox here.
func TestRecoverInANewProcess(t *testing.T) {
	root, dir := shortDir(t), t.TempDir()
	k := &drivertest.Keeper{}
	serveKeeper(t, filepath.Join(root, "keeper"), k)
	d := openDriver(t, root, dirKeeper{filepath.Join(root, "keeper")})

	handle, kill := createElsewhere(t, "TestRoleCreate", "create", root, dir)
	kill()

	in, err := d.Recover(t.Context(), handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, in) })
	if got, ok := get(t, in, "/read?path=/tmp/before"); !ok {
		t.Errorf("a file written before the crash: %q", got)
	}
	if !bytes.Equal(in.Handle(), handle) {
		t.Errorf("the handle changed:\n%s\n%s", handle, in.Handle())
	}
	if s, err := in.Stats(t.Context()); err != nil || s.Memory == 0 {
		t.Errorf("stats %+v %v", s, err)
	}
	pid := pidOf(t, in)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := waitEnd(t, in); e.Reason != carrel.EndCrashed {
		t.Errorf("%+v", e)
	}
	destroy(t, in)
	if _, err := d.Recover(t.Context(), handle); !errors.Is(err, carrel.NotFound) {
		t.Errorf("recovering a dead sandbox: %v", err)
	}
	if k.Len() != 0 {
		t.Error("its link is still kept")
	}
}

// createElsewhere creates a sandbox in another process, which runs a test in a role. It returns the
// sandbox's handle and a function that kills the process.
func createElsewhere(t *testing.T, test, role, root, dir string) (h driver.Handle, kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), envRole+"="+role, envState+"="+images.dir, "CARREL_TEST_ROOT="+root, "CARREL_TEST_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return readHandle(t, out), func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// readHandle reads the line "handle …" of the other process.
func readHandle(t *testing.T, r io.Reader) driver.Handle {
	t.Helper()
	var all bytes.Buffer
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		all.Write(buf[:n])
		if _, rest, ok := strings.Cut(all.String(), "handle "); ok {
			if line, _, ok := strings.Cut(rest, "\n"); ok {
				return driver.Handle(line)
			}
		}
		if err != nil {
			t.Fatalf("no handle (%v): %s", err, all.String())
		}
	}
}

// TestRoleCreate is the other process of TestRecoverInANewProcess.
func TestRoleCreate(t *testing.T) {
	if os.Getenv(envRole) != "create" {
		testenv.Inapplicable(t, "a part of another test")
	}
	root := os.Getenv("CARREL_TEST_ROOT")
	d, err := gvisor.New(gvisor.Options{Options: hosted.Options{Root: root, Network: testNetwork{}, Keeper: dirKeeper{filepath.Join(root, "keeper")}, Executable: images.exe, Log: slog.Default()}})
	if err != nil {
		t.Fatal(err)
	}
	spec := newSpec(t)
	spec.Dir = os.Getenv("CARREL_TEST_DIR")
	in, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := get(t, in, "/write?path=/tmp/before"); !ok {
		t.Fatal(got)
	}
	fmt.Printf("handle %s\n", in.Handle())
	select {} // until killed
}

// TestRecoverRefuses shows which handles are not adopted, and that a process which took over an old
// pid is left alone.
func TestRecoverRefuses(t *testing.T) {
	d, _ := newDriver(t)
	for name, h := range map[string]string{
		"no JSON":        "x",
		"no id":          `{"v":1,"pid":5}`,
		"path for an id": `{"v":1,"id":"../../etc","pid":5}`,
		"other version":  `{"v":99,"id":"iaaaaaaaaaaaaaaaaaaaa","pid":5}`,
		"other process":  fmt.Sprintf(`{"v":1,"id":"iaaaaaaaaaaaaaaaaaaaa","pid":%d,"started":1,"boot":%q}`, os.Getpid(), bootID(t)),
	} {
		if _, err := d.Recover(t.Context(), driver.Handle(h)); err == nil {
			t.Errorf("%s was adopted", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

func bootID(t *testing.T) string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestSweep forgets a sandbox, and Sweep must end it as a leftover. A sandbox of another driver
// must stay.
func TestSweep(t *testing.T) {
	d, _ := newDriver(t)
	kept := create(t, d, newSpec(t))
	spec := newSpec(t)
	lost := create(t, d, spec)
	other, _ := newDriver(t)
	foreign := create(t, other, newSpec(t))

	var rec struct{ ID carrel.ID }
	if err := json.Unmarshal(kept.Handle(), &rec); err != nil {
		t.Fatal(err)
	}
	if err := d.Sweep(t.Context(), []carrel.ID{rec.ID}); err != nil {
		t.Fatal(err)
	}
	if e := waitEnd(t, lost); e.Reason == "" {
		t.Error("the leftover lives")
	}
	if pids := sentries(string(spec.ID)); len(pids) > 0 {
		t.Error("the leftover's processes:", pids)
	}
	if dirs := groupsOf(string(spec.ID)); len(dirs) > 0 {
		t.Error("the leftover's groups:", dirs)
	}
	for _, in := range []driver.Instance{kept, foreign} {
		if got, ok := get(t, in, "/hello"); !ok {
			t.Errorf("a sandbox that was to stay: %q", got)
		}
	}
}

// statusField reads one line of /proc/PID/status.
func statusField(t *testing.T, pid int, key string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && k == key {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return ""
}

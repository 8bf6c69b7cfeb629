package tap_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// deviceVariable names the TAP device for a test that runs as another user.
const deviceVariable = "CARREL_TEST_TAP"

func TestMain(m *testing.M) {
	if reexec.Run(tap.Parts(), reexec.Parts{"tap-test look": look, "tap-test wait": wait, "tap-test lend": lent}) {
		return
	}
	os.Exit(m.Run())
}

func config() tap.Config { return tap.Config{Device: os.Getenv(deviceVariable)} }

// part returns a command that runs this binary in one of the parts above.
func part(name string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", name)
	cmd.Args[0] = "tap-test"
	cmd.Stderr = os.Stderr
	return cmd
}

// look prints what a program sees of the namespace.
func look() {
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		addresses, _ := i.Addrs()
		fmt.Println(i.Name, i.MTU, i.HardwareAddr, i.Flags&net.FlagUp != 0, addresses)
	}
	resolv, _ := os.ReadFile("/etc/resolv.conf")
	fmt.Printf("%s", resolv)
	fmt.Println("pid", os.Getpid(), "uid", os.Getuid())
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		name, _ := os.Readlink("/proc/self/fd/" + f.Name())
		fmt.Println("fd", name)
	}
}

// wait runs until its input ends.
func wait() {
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func spawn(t *testing.T, cmd *exec.Cmd, c tap.Config) *os.File {
	t.Helper()
	link, err := tap.Spawn(cmd, c)
	if carrel.KindOf(err) == carrel.Unsupported {
		testenv.Need(t, "ns", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	return link
}

func TestSpawn(t *testing.T) {
	for _, pair := range []bool{false, true} {
		c := config()
		c.Pair = pair
		seen(t, c)
	}
}

// seen looks at what a program sees behind a link.
func seen(t *testing.T, c tap.Config) {
	t.Helper()
	cmd := part("look")
	var out bytes.Buffer
	cmd.Stdout = &out
	spawn(t, cmd, c)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("eth0 %d %s true [%s/%d", tap.DefaultMTU, driver.GuestMAC, driver.GuestIPv4, driver.PrefixIPv4),
		"lo 65536  true [127.0.0.1/8 ::1/128]",
		fmt.Sprintf("%s/%d", driver.GuestIPv6, driver.PrefixIPv6),
		"nameserver " + driver.GatewayIPv4 + "\n",
		"pid 1 uid 0\n",
	}
	for _, w := range want {
		if !strings.Contains(out.String(), w) {
			t.Errorf("%q is missing in what it sees:\n%s", w, out.String())
		}
	}
	if strings.Contains(out.String(), "tun") || strings.Contains(out.String(), "socket:") {
		t.Errorf("it has a file of the stage:\n%s", out.String())
	}
	if strings.Count(out.String(), " true [") != 2 {
		t.Errorf("it has other interfaces than two:\n%s", out.String())
	}
}

func TestPlain(t *testing.T) {
	c := config()
	c.Plain, c.MTU = true, 1500
	cmd := part("look")
	var out bytes.Buffer
	cmd.Stdout = &out
	spawn(t, cmd, c)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "eth0 1500 ") {
		t.Errorf("its MTU is another:\n%s", out.String())
	}
}

// TestEnd checks that the file reports its kind, and that it reports the end of the namespace's
// last process.
func TestEnd(t *testing.T) {
	for _, plain := range []bool{false, true} {
		c := config()
		c.Plain = plain
		cmd := part("wait")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		link := spawn(t, cmd, c)
		fd := int(link.Fd())
		if err := unix.SetNonblock(fd, true); err != nil { // Fd may have changed it
			t.Fatal(err)
		}
		if _, err := unix.Read(fd, make([]byte, 1<<17)); err != nil && err != unix.EAGAIN {
			t.Fatalf("read gave %v while it lives", err)
		}
		if header, ok := tap.Header(fd); header == plain || !ok {
			t.Errorf("Header gave %v, %v", header, ok)
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, fd)
		if _, ok := tap.Header(fd); ok {
			t.Error("the file of a device that is gone is taken for one")
		}
	}
}

// TestPairEnds: the packet socket says what it is, and reports that the last process of the
// namespace has ended.
func TestPairEnds(t *testing.T) {
	cmd := part("wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	link := spawn(t, cmd, tap.Config{Pair: true})
	fd := int(link.Fd())
	if header, ok := tap.Packets(fd); !header || !ok || tap.Way(link) != "a pair of virtual Ethernet devices" {
		t.Errorf("Packets gave %v, %v: %s", header, ok, tap.Way(link))
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for { // what is still to be read comes first
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 30_000); n != 1 || err != nil && err != unix.EINTR {
			t.Fatalf("poll gave %d, %v", n, err)
		}
		if _, err := unix.Read(fd, make([]byte, 1<<17)); err == unix.ENETDOWN {
			return
		} else if err != nil && err != unix.EAGAIN {
			t.Fatalf("read gave %v", err)
		}
	}
}

// awaitEnd reads until the device is gone.
func awaitEnd(t *testing.T, fd int) {
	t.Helper()
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 30_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("poll gave %d, %v", n, err)
		}
		if _, err := unix.Read(fd, make([]byte, 1<<17)); err == unix.EBADFD {
			return
		} else if err != nil && err != unix.EAGAIN {
			t.Fatalf("read gave %v", err)
		}
	}
}

func TestRefusals(t *testing.T) {
	c := config()
	c.Device = filepath.Join(t.TempDir(), "none")
	_, err := tap.Spawn(part("look"), c)
	var e *carrel.Error
	if !errors.As(err, &e) || e.Kind != carrel.Unsupported || e.Hint == "" || !strings.Contains(err.Error(), c.Device) {
		t.Errorf("no device: %v", err)
	}
	if _, err := tap.Spawn(exec.Command("carrel-no-such-program"), config()); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("no program: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if header, ok := tap.Header(int(r.Fd())); header || ok {
		t.Errorf("Header of a pipe gave %v, %v", header, ok)
	}
}

// stranger is a uid that no account has.
const stranger = 54321

// TestUnprivileged runs the tests above as a user without any right.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // the tests above already ran as such a user
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^(TestSpawn|TestPlain|TestEnd|TestPairEnds|TestRefusals)$", "-test.count=1", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOCOVERDIR=") }),
		deviceVariable+"="+openDevice(t), "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "--- SKIP") && strings.Contains(os.Getenv("CARREL_REQUIRE"), "ns") {
		t.Errorf("as uid %d: %v\n%s", stranger, err, out)
	}
}

// openDevice makes a TAP device node that everybody may open, as on most hosts.
func openDevice(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "carrel-tap-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	name := filepath.Join(dir, "tun")
	if err := errors.Join(os.Chmod(dir, 0o755), unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))), os.Chmod(name, 0o666)); err != nil {
		t.Fatal(err)
	}
	return name
}

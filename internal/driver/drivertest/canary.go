package drivertest

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// canaries are objects on the host that a sandbox must not touch.
type canaries struct {
	token    string
	paths    []string // files that hold the token
	sockets  []string // unix sockets, "@" for abstract ones
	tcp      string   // host:port of a loopback listener
	touched  atomic.Int64
	process  *exec.Cmd
	terminal *os.File // slave of a host terminal
	key      string   // description of a key
}

// plant puts canaries on the host. They are removed when the test ends.
func plant(t testing.TB) *canaries {
	t.Helper()
	c := &canaries{token: "canary" + rand.Text()}
	c.key = c.token
	t.Setenv("CANARY_TOKEN", c.token)
	for _, dir := range []string{"/root", "/home", "/var", "/var/lib", "/tmp", "/run", "/opt", "/srv", "/etc", t.TempDir()} {
		name := filepath.Join(dir, ".carrel-"+c.token)
		if os.WriteFile(name, []byte("secret "+c.token+"\n"), 0o644) != nil {
			continue // we may not write here; the other canaries are enough
		}
		t.Cleanup(func() { _ = os.Remove(name) })
		c.paths = append(c.paths, name)
	}
	if len(c.paths) < 2 {
		t.Fatal("could not plant canaries")
	}
	short, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	for _, a := range []string{filepath.Join(short, "sock"), "@" + c.token} {
		c.listen(t, "unix", a)
		c.sockets = append(c.sockets, a)
	}
	c.tcp = c.listen(t, "tcp", "127.0.0.1:0")
	c.process = exec.Command("sleep", "1000")
	c.process.Args = []string{"host-" + c.token, "1000"}
	c.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.process.Process.Kill(); _ = c.process.Wait() })
	master, slave, err := pty.Open()
	if err == nil {
		t.Cleanup(func() { master.Close(); slave.Close() })
		c.terminal = slave
	}
	if id, err := unix.AddKey("user", c.key, []byte("secret"), unix.KEY_SPEC_USER_KEYRING); err == nil {
		t.Cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0) })
	}
	return c
}

// listen starts a listener on the host and counts its connections. It first shows that the counting
// works.
func (c *canaries) listen(t testing.TB, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.touched.Add(1)
			_, _ = fmt.Fprintln(conn, c.token)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-seen })
	conn, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Read(make([]byte, 1))
	conn.Close()
	if c.touched.Swap(0) == 0 {
		t.Fatalf("the canary %s %s does not count", network, address)
	}
	return l.Addr().String()
}

// wantUntouched checks all canaries.
func (c *canaries) wantUntouched(t testing.TB) {
	t.Helper()
	if n := c.touched.Load(); n != 0 {
		t.Errorf("%d connections reached the host's listeners", n)
	}
	if err := c.process.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the host's process: %v", err)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.process.Process.Pid)); err != nil || len(b) == 0 {
		t.Errorf("the host's process is gone: %v", err)
	}
	if c.terminal != nil {
		fd := int(c.terminal.Fd())
		if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil && n > 0 {
			t.Errorf("%d characters were typed into the host's terminal", n)
		}
	}
	for _, p := range c.paths {
		if b, err := os.ReadFile(p); err != nil || string(b) != "secret "+c.token+"\n" {
			t.Errorf("the canary %s changed: %q, %v", p, b, err)
		}
	}
}

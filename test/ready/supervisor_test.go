package ready

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// supervised is a daemon that was started in the way of systemd: with open sockets, and with a
// socket for its state.
type supervised struct {
	cmd    *exec.Cmd
	states *net.UnixConn
	stderr *bytes.Buffer
}

// supervise starts a daemon with these sockets.
func supervise(t *testing.T, sockets ...*os.File) *supervised {
	t.Helper()
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), "notify")
	states, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = states.Close() })
	s := &supervised{states: states, stderr: &bytes.Buffer{}}
	// LISTEN_PID must be the daemon's process ID. The shell has that ID, because it becomes the
	// daemon.
	s.cmd = exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", bin, "--data-dir", t.TempDir(), "serve", "--listen", "127.0.0.1:1", "--default-tier", "sim", "--warm", "0")
	s.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+at, "LISTEN_FDS="+strconv.Itoa(len(sockets)))
	s.cmd.ExtraFiles, s.cmd.Stderr = sockets, s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	return s
}

// hear waits for the next state that the daemon reports.
func (s *supervised) hear(t *testing.T) string {
	t.Helper()
	if err := s.states.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := s.states.Read(buf)
	if err != nil {
		t.Fatalf("the daemon told nothing: %v\n%s", err, s.stderr)
	}
	return string(buf[:n])
}

// socket opens a port and returns its file.
func socket(t *testing.T) (*os.File, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	addr := l.Addr().String()
	_ = l.Close()
	return f, addr
}

// TestSupervisor shows that the daemon serves the port that it got, although its own setting names
// another, and reports when it is ready and when it stops. A request that came before it was ready
// must be answered.
func TestSupervisor(t *testing.T) {
	f, addr := socket(t)
	answer := make(chan error, 1)
	go func() {
		res, err := http.Get("http://" + addr + "/health")
		if err == nil {
			_ = res.Body.Close()
		}
		answer <- err
	}()
	s := supervise(t, f)
	if got := s.hear(t); !strings.Contains(got, "READY=1") || !strings.Contains(got, "http://"+addr) {
		t.Errorf("the first that it tells is %q", got)
	}
	if err := <-answer; err != nil {
		t.Errorf("who asked before it was ready got %v", err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := s.hear(t); !strings.Contains(got, "STOPPING=1") {
		t.Errorf("when it stops it tells %q", got)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, s.stderr)
	}
}

// TestTwoSockets shows that a second socket is refused. The daemon has one port, so nobody would
// serve the second.
func TestTwoSockets(t *testing.T) {
	one, _ := socket(t)
	two, _ := socket(t)
	s := supervise(t, one, two)
	err := s.cmd.Wait()
	if s.cmd.ProcessState.ExitCode() != 2 || !strings.Contains(s.stderr.String(), "passed 2 sockets") || !strings.Contains(s.stderr.String(), "hint: ") {
		t.Errorf("it ended with %v and said %s", err, s.stderr)
	}
}

// TestTightUmask shows that a daemon with a strict umask can make sandboxes, although these run as
// other users.
func TestTightUmask(t *testing.T) {
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		t.Fatal(err)
	}
	tight := filepath.Join(t.TempDir(), "carrel")
	if err := os.WriteFile(tight, []byte("#!/bin/sh\numask 077\nexec "+bin+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := daemontest.StartBin(t, tight, nil)
	for _, tier := range []string{"sim", "ns", "gvisor"} {
		t.Run(tier, func(t *testing.T) {
			id, err := d.CLI("create", "--tier", tier).Output()
			testenv.Need(t, tier, err)
			out, err := d.CLI("exec", strings.TrimSpace(string(id)), "--", "sh", "-c", "echo work >file && cat file").CombinedOutput()
			if err != nil || string(out) != "work\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

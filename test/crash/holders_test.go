package crash

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// keeperPID finds a daemon's keeper by the name of its socket.
func keeperPID(t *testing.T, dir, name string) int {
	t.Helper()
	return pidOf(t, append([]byte("carrel-keeper\x00serve\x00"),
		filepath.Join(dir, "run", name)+"\x00"...))
}

// kill kills a process and waits for its end.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it dies", func() bool { return syscall.Kill(pid, 0) != nil })
}

// TestDaemonAndKeeperDie kills the daemon and a keeper together, and one shortly after the other.
// The sandboxes and their network go on. When every holder is killed, the sandboxes end, and say
// why.
func TestDaemonAndKeeperDie(t *testing.T) {
	t.Parallel()
	d := daemontest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	svc := connect(t, d)
	b, err := furnish(ctx, svc, "word")
	if err != nil {
		t.Fatal(err)
	}
	again := func(when string) {
		t.Helper()
		_ = svc.Close()
		d.Restart()
		svc = connect(t, d)
		if err := b.check(ctx, svc); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	one := keeperPID(t, d.Dir, "keeper.sock")
	d.Kill9()
	kill(t, one)
	again("both at once")

	two := keeperPID(t, d.Dir, "keeper2.sock")
	kill(t, two)
	d.Kill9() // the daemon may or may not have started another keeper by now
	again("the keeper and then the daemon")

	d.Kill9()
	time.Sleep(500 * time.Millisecond)
	kill(t, keeperPID(t, d.Dir, "keeper.sock"))
	again("within a second")

	one, two = keeperPID(t, d.Dir, "keeper.sock"), keeperPID(t, d.Dir, "keeper2.sock")
	d.Kill9()
	kill(t, one)
	kill(t, two)
	_ = svc.Close()
	d.Restart()
	svc = connect(t, d)
	if _, err := svc.Get(ctx, b.id); carrel.KindOf(err) != carrel.NotFound ||
		!strings.Contains(err.Error(), "its network link was lost") {
		t.Errorf("a sandbox whose link is lost: %v", err)
	}
	if n := d.Kernels(); n != 0 {
		t.Errorf("%d kernels run on without a network", n)
	}
}

// systemd plays the part of systemd: it starts the daemon, and stores the files that the daemon
// gives it, by their names.
type systemd struct {
	t    *testing.T
	dir  string // the daemon's
	at   string
	conn *net.UnixConn
	cmd  *exec.Cmd

	mu    sync.Mutex
	ready int // how often a daemon said so
	files map[string]*os.File
}

// newSystemd opens the socket for the daemon's messages.
func newSystemd(t *testing.T) *systemd {
	t.Helper()
	s := &systemd{t: t, dir: t.TempDir(), at: filepath.Join(t.TempDir(), "notify"),
		files: map[string]*os.File{}}
	var err error
	if s.conn, err = net.ListenUnixgram("unixgram",
		&net.UnixAddr{Name: s.at, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	go s.hear()
	t.Cleanup(func() {
		cmd := exec.Command(s.bin(), "--data-dir", s.dir, "kill", "--all")
		_ = cmd.Run()
		s.kill()
		_ = s.conn.Close()
	})
	return s
}

func (s *systemd) bin() string {
	bin, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		s.t.Fatal(err)
	}
	return bin
}

// hear reads messages until the socket closes.
func (s *systemd) hear() {
	for {
		buf, oob := make([]byte, 4096), make([]byte, 1024)
		n, m, _, _, err := s.conn.ReadMsgUnix(buf, oob)
		if err != nil {
			return
		}
		s.took(string(buf[:n]), oob[:m])
	}
}

func (s *systemd) took(text string, oob []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, name, _ := strings.Cut(text, "FDNAME=")
	switch {
	case strings.Contains(text, "READY=1"):
		s.ready++
	case strings.HasPrefix(text, "FDSTOREREMOVE=1"):
		if f := s.files[name]; f != nil {
			_ = f.Close()
			delete(s.files, name)
		}
	case strings.HasPrefix(text, "FDSTORE=1"):
		msgs, err := unix.ParseSocketControlMessage(oob)
		if err != nil || len(msgs) != 1 {
			return
		}
		if fds, err := unix.ParseUnixRights(&msgs[0]); err == nil {
			s.files[name] = os.NewFile(uintptr(fds[0]), name)
		}
	}
}

// start starts a daemon with the stored files, and returns a client of it.
func (s *systemd) start() carrel.Service {
	s.t.Helper()
	s.mu.Lock()
	var names []string
	var files []*os.File
	for name, f := range s.files {
		names, files = append(names, name), append(files, f)
	}
	before := s.ready
	s.mu.Unlock()
	// LISTEN_PID must be the daemon's process ID. The shell has that ID, because it becomes the
	// daemon.
	s.cmd = exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", s.bin(), "--data-dir", s.dir,
		"serve", "--listen", "127.0.0.1:0", "--warm", "0")
	s.cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+s.at, "FDSTORE=100",
		"LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	s.cmd.ExtraFiles = files
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	testenv.Eventually(s.t, "the daemon is ready", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ready > before
	})
	out, err := exec.Command(s.bin(), "--data-dir", s.dir, "template", "inspect",
		"base").CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	key, err := os.ReadFile(filepath.Join(s.dir, "api-key"))
	if err != nil {
		s.t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(s.dir, "daemon.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), `"url":"`)
	url, _, _ := strings.Cut(rest, `"`)
	svc, err := client.New(url, strings.TrimSpace(string(key)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = svc.Close() })
	return svc
}

// kill ends the daemon without warning.
func (s *systemd) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// stored counts the files in the store.
func (s *systemd) stored() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files)
}

// TestSupervisorHolds kills the daemon and its keeper at once, where a service manager has a store
// for open files. The next daemon gets the links from there.
func TestSupervisorHolds(t *testing.T) {
	t.Parallel()
	s := newSystemd(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	svc := s.start()
	b, err := furnish(ctx, svc, "word")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the link is stored", func() bool { return s.stored() == 1 })
	for range 2 {
		_ = svc.Close()
		one := keeperPID(t, s.dir, "keeper.sock")
		s.kill()
		kill(t, one)
		svc = s.start()
		if err := b.check(ctx, svc); err != nil {
			t.Fatal(err)
		}
	}
	if err := svc.Kill(ctx, b.id); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the store is empty", func() bool { return s.stored() == 0 })
}

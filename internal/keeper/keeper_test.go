package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/keeper"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) {
	if reexec.Run(keeper.Parts()) {
		return
	}
	os.Exit(m.Run())
}

// start runs a keeper of this test's own and returns its socket and a client.
func start(t *testing.T) (string, *keeper.Client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "keeper")
	if err := keeper.Start(t.Context(), "", path); err != nil {
		t.Fatal(err)
	}
	c, err := keeper.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if p := pid(t, path); p > 0 {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		os.RemoveAll(dir)
	})
	return path, c
}

// pid returns the process ID of the keeper at a socket.
func pid(t *testing.T, path string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if b, err := os.ReadFile(f); err == nil && string(b) == strings.Join([]string{keeper.Part, "serve", path, ""}, "\x00") {
			n, _ := strconv.Atoi(strings.Split(f, "/")[2])
			return n
		}
	}
	return 0
}

func TestPutGetDelete(t *testing.T) {
	path, c := start(t)
	ctx := t.Context()
	if _, err := c.Get(ctx, "a"); carrel.KindOf(err) != carrel.NotFound {
		t.Fatalf("get of nothing gave %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := c.Put(ctx, "a", w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	c.Close()
	// This client stands for another daemon: the pipe is still open and works.
	c, err = keeper.Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	again, err := c.Get(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(again, "still here"); err != nil {
		t.Fatal(err)
	}
	again.Close()
	if names, err := c.List(ctx); err != nil || len(names) != 1 || names[0] != "a" {
		t.Fatalf("list gave %v, %v", names, err)
	}
	for range 2 {
		if err := c.Delete(ctx, "a"); err != nil {
			t.Fatal(err)
		}
	}
	// The keeper was the last holder. After the deletion, the reader sees the end.
	if b, err := io.ReadAll(r); err != nil || string(b) != "still here" {
		t.Fatalf("read %q, %v", b, err)
	}
	for _, bad := range []string{"", "a\nb", strings.Repeat("x", 256)} {
		if err := c.Delete(ctx, bad); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("name %.10q gave %v", bad, err)
		}
	}
}

// TestProcess shows that the keeper is detached and tiny, and that all who start it share one.
func TestProcess(t *testing.T) {
	path, _ := start(t)
	p := pid(t, path)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := keeper.Start(t.Context(), "", path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if now := pid(t, path); now != p || p == 0 {
		t.Fatalf("the keeper was %d and is %d", p, now)
	}
	if sid, err := unix.Getsid(p); err != nil || sid != p {
		t.Errorf("its session is %d (%v), want its own", sid, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v, %v", st.Mode(), err)
	}
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p)); err != nil || len(env) != 0 {
		t.Errorf("its environment is %q, %v", env, err)
	}
	for fd := range 3 {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p, fd)); err != nil || to != "/dev/null" {
			t.Errorf("file %d is %q, %v", fd, to, err)
		}
	}
	st, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(st), "\n") {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") || strings.HasPrefix(line, "PPid") {
			t.Log(line)
		}
	}
}

func TestConcurrent(t *testing.T) {
	_, c := start(t)
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			name := fmt.Sprint("n", i)
			if err := c.Put(t.Context(), name, f); err != nil {
				t.Error(err)
				return
			}
			g, err := c.Get(t.Context(), name)
			if err != nil {
				t.Error(err)
				return
			}
			g.Close()
			if err := c.Delete(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if names, err := c.List(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

func TestTenThousandFiles(t *testing.T) {
	testenv.Long(t, "10,000 files in short mode")
	_, c := start(t)
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const n = 10000
	for i := range n {
		if err := c.Put(t.Context(), fmt.Sprintf("link-%05d-with-the-length-of-a-sandbox-id", i), f); err != nil {
			t.Fatalf("file %d: %v", i, err)
		}
	}
	names, err := c.List(t.Context())
	if err != nil || len(names) != n || names[0] >= names[n-1] {
		t.Fatalf("list has %d names, %v", len(names), err)
	}
}

func TestGarbageIsRefused(t *testing.T) {
	path, c := start(t)
	for _, msg := range [][]byte{{0}, []byte("X"), []byte("P"), []byte("Pname-without-file"), []byte("G"), []byte("Ga\nb"), make([]byte, 5000)} {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(msg); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 4096)
		for n := 1; n > 0 && err == nil; { // an error answer, then the end
			n, err = conn.Read(b)
			if n > 0 && b[0] == 0 {
				t.Errorf("%.20q was accepted", msg)
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q left the connection open", msg)
		}
		conn.Close()
	}
	if _, err := c.List(t.Context()); err != nil {
		t.Errorf("after garbage: %v", err)
	}
}

// TestEndsByItself shows that a keeper without files and clients ends and leaves no socket, and
// that Start makes a new one.
func TestEndsByItself(t *testing.T) {
	testenv.Long(t, "waits several seconds")
	path, c := start(t)
	p := pid(t, path)
	c.Close()
	testenv.Eventually(t, "the keeper ends", func() bool { return syscall.Kill(p, 0) != nil })
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its socket is still there: %v", err)
	}
	if _, err := keeper.Dial(t.Context(), path); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("dial gave %v", err)
	}
	if err := keeper.Start(t.Context(), "", path); err != nil {
		t.Fatal(err)
	}
	if now := pid(t, path); now == p || now == 0 {
		t.Errorf("the new keeper is %d", now)
	}
}

// TestForgotten renames a keeper's directory. Its files must be reachable under the new name. When
// the directory is removed, the keeper ends, even if it holds files.
func TestForgotten(t *testing.T) {
	testenv.Long(t, "waits several seconds")
	path, c := start(t)
	p := pid(t, path)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := c.Put(t.Context(), "a", w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	moved := filepath.Dir(path) + ".moved"
	t.Cleanup(func() { os.RemoveAll(moved) })
	if err := os.Rename(filepath.Dir(path), moved); err != nil {
		t.Fatal(err)
	}
	c.Close()
	time.Sleep(3 * time.Second) // two of its looks
	if c, err = keeper.Dial(t.Context(), filepath.Join(moved, filepath.Base(path))); err != nil {
		t.Fatal(err)
	}
	if names, err := c.List(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("it holds %v, %v", names, err)
	}
	if err := os.RemoveAll(moved); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if err := syscall.Kill(p, 0); err != nil {
		t.Errorf("it ended while it had a client: %v", err)
	}
	c.Close()
	testenv.Eventually(t, "the keeper ends", func() bool { return syscall.Kill(p, 0) != nil })
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF { //nolint:errorlint // a pipe's own
		t.Errorf("what it held is still open: %v", err)
	}
}

// TestRevive kills a keeper. If its client was told how to start it, a new one with all the files
// is started at once.
func TestRevive(t *testing.T) {
	path, c := start(t)
	ctx := t.Context()
	type report struct {
		files int
		err   error
	}
	told := make(chan report, 9)
	c.Revive(func(ctx context.Context) error { return keeper.Start(ctx, "", path) }, func(files int, err error) { told <- report{files, err} })
	var wants []string
	for i := range 5 {
		name := strconv.Itoa(i)
		f := fileWith(t, name)
		if err := c.Put(ctx, name, f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		wants = append(wants, name)
	}
	if err := c.Put(ctx, "4", fileWith(t, "anew")); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, "0"); err != nil {
		t.Fatal(err)
	}
	wants = wants[1:]
	for range 2 {
		p := pid(t, path)
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select { // no request comes in this time
		case r := <-told:
			if r.err != nil || r.files != len(wants) {
				t.Fatalf("%d files, %v", r.files, r.err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a minute later there is no new keeper")
		}
		if pid(t, path) == p {
			t.Fatal("the old one lives")
		}
		other, err := keeper.Dial(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if names, err := other.List(ctx); err != nil || !slices.Equal(names, wants) {
			t.Fatalf("it keeps %v, %v; want %v", names, err, wants)
		}
		for _, name := range wants {
			f, err := other.Get(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			said := make([]byte, 9)
			n, err := f.ReadAt(said, 0)
			if want := map[bool]string{true: "anew", false: name}[name == "4"]; string(said[:n]) != want {
				t.Errorf("%s holds %q, %v; want %q", name, said[:n], err, want)
			}
			f.Close()
		}
	}
	// The client must keep no descriptor of it.
	before := openFiles(t)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "its copies are closed", func() bool { return openFiles(t) <= before-len(wants)-1 })
	select {
	case r := <-told:
		t.Errorf("once more: %+v", r)
	default:
	}
}

// TestKeeperGone shows that a request fails with a clear error if the client was not told how to
// start a keeper.
func TestKeeperGone(t *testing.T) {
	path, c := start(t)
	p := pid(t, path)
	if err := syscall.Kill(p, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it is dead", func() bool { return pid(t, path) != p })
	if err := c.Put(t.Context(), "now", fileWith(t, "x")); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("it gave %v", err)
	}
}

// TestReviveFails shows that a failed start is tried again, and that each failure is reported.
func TestReviveFails(t *testing.T) {
	path, c := start(t)
	told := make(chan error, 99)
	refuse := make(chan struct{})
	c.Revive(func(ctx context.Context) error {
		select {
		case <-refuse:
			return keeper.Start(ctx, "", path)
		default:
			return errors.New("not now")
		}
	}, func(_ int, err error) { told <- err })
	if err := c.Put(t.Context(), "a", fileWith(t, "a")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid(t, path), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err == nil || !strings.Contains(err.Error(), "not now") {
		t.Fatalf("told of %v", err)
	}
	if err := c.Put(t.Context(), "b", fileWith(t, "b")); err == nil {
		t.Error("a request did not fail")
	}
	close(refuse)
	testenv.Eventually(t, "it keeps both", func() bool {
		if err := c.Put(t.Context(), "b", fileWith(t, "b")); err != nil {
			return false
		}
		names, err := c.List(t.Context())
		return err == nil && slices.Equal(names, []string{"a", "b"})
	})
}

// fileWith returns an unnamed file that contains a text.
func fileWith(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

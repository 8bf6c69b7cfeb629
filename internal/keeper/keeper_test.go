package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
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

// pid finds the keeper of a socket.
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
	// Another daemon: the pipe is still open and works.
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
	// Deleted was the last holder: the reader sees the end.
	if b, err := io.ReadAll(r); err != nil || string(b) != "still here" {
		t.Fatalf("read %q, %v", b, err)
	}
	for _, bad := range []string{"", "a\nb", strings.Repeat("x", 256)} {
		if err := c.Delete(ctx, bad); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("name %.10q gave %v", bad, err)
		}
	}
}

// The keeper is detached, tiny, and one for all who start it.
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
	if testing.Short() {
		t.Skip("10,000 files in short mode")
	}
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

// Without files and clients it ends and leaves no socket; Start makes a new one.
func TestEndsByItself(t *testing.T) {
	if testing.Short() {
		t.Skip("waits several seconds")
	}
	path, c := start(t)
	p := pid(t, path)
	c.Close()
	for end := time.Now().Add(time.Minute); syscall.Kill(p, 0) == nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the keeper is still there")
		}
	}
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

// A keeper that somebody killed is started anew for the next request, if whoever asks said how.
func TestRevive(t *testing.T) {
	path, c := start(t)
	kept, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := c.Put(t.Context(), "before", kept); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		t.Helper()
		p := pid(t, path)
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); pid(t, path) == p && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	kill()
	if err := c.Put(t.Context(), "now", kept); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("without a word on that: %v", err)
	}
	revived := 0
	c.Revive(func(ctx context.Context) error {
		revived++
		return keeper.Start(ctx, "", path)
	})
	if err := c.Put(t.Context(), "now", kept); err != nil || revived != 1 {
		t.Fatalf("revived %d times: %v", revived, err)
	}
	if names, err := c.List(t.Context()); err != nil || len(names) != 1 || names[0] != "now" {
		t.Errorf("it keeps %v, %v", names, err)
	}
	if err := c.Delete(t.Context(), "before"); err != nil {
		t.Errorf("what the old one kept: %v", err)
	}
}

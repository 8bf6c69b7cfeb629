package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "secret"

// world is a real guest on this machine, reached over loopback.
type world struct {
	*guest.Conn
	dials atomic.Int64
	addr  string
}

// dial reaches the guest's port and refuses every other port. A sandbox behaves like this if its
// programs listen on loopback only.
func (w *world) dial(ctx context.Context, port uint16) (net.Conn, error) {
	if port != carrel.GuestPort {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	w.dials.Add(1)
	var d net.Dialer
	return d.DialContext(ctx, "tcp", w.addr)
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	me, err := user.Current()
	if err != nil {
		tb.Fatal(err)
	}
	sys := oshost.New(oshost.Options{})
	a := agent.New(agent.Config{System: sys, DefaultUser: me.Username, DefaultWorkdir: tb.TempDir(),
		Trusted: func(net.Addr) bool { return true }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{Handler: a.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	w := &world{addr: l.Addr().String()}
	w.Conn = guest.NewConn(w.dial, guest.ConnOptions{ID: carrel.NewID(), Token: token})
	tb.Cleanup(func() {
		_ = w.Close()
		a.Close()
		_ = srv.Close()
		<-served
		_ = sys.Close()
	})
	if err := w.Init(tb.Context(), guest.InitRequest{AccessToken: token, Timestamp: time.Now(),
		EnvVars:     map[string]string{"FROM_INIT": "yes", "HOME": tb.TempDir()}, // not the login scripts of this machine's user
		DefaultUser: me.Username}); err != nil {
		tb.Fatal(err)
	}
	return w
}

func run(t *testing.T, w *world, cmd carrel.Command) *carrel.Result {
	t.Helper()
	res, err := w.Run(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestRun(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name     string
		cmd      carrel.Command
		out, err string
		code     int
	}{
		{"shell", carrel.Command{Shell: "echo out; echo err >&2; exit 3"}, "out\n", "err\n", 3},
		{"arguments", carrel.Command{Args: []string{"printf", "%s|", "a b", "$HOME"}}, "a b|$HOME|", "", 0},
		{"environment", carrel.Command{Shell: "echo $FROM_INIT $MINE", Env: map[string]string{"MINE": "too"}}, "yes too\n", "", 0},
		{"directory", carrel.Command{Args: []string{"pwd"}, Dir: "/"}, "/\n", "", 0},
		{"input", carrel.Command{Args: []string{"cat"}, Stdin: strings.NewReader("fed")}, "fed", "", 0},
		{"no input", carrel.Command{Args: []string{"cat"}}, "", "", 0},
		{"killed", carrel.Command{Shell: "kill -9 $$"}, "", "", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := run(t, w, c.cmd)
			if string(res.Stdout) != c.out || string(res.Stderr) != c.err || res.ExitCode != c.code || res.PID <= 0 {
				t.Errorf("got %q, %q, %+v", res.Stdout, res.Stderr, res)
			}
		})
	}
}

func TestRunBadInput(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name string
		cmd  carrel.Command
		kind carrel.Kind
	}{
		{"nothing to run", carrel.Command{}, carrel.Invalid},
		{"both", carrel.Command{Shell: "true", Args: []string{"true"}}, carrel.Invalid},
		{"negative timeout", carrel.Command{Shell: "true", Timeout: -1}, carrel.Invalid},
		{"no such directory", carrel.Command{Shell: "true", Dir: "/no/such"}, carrel.Invalid},
		{"no such user", carrel.Command{Shell: "true", User: "nobody-at-all"}, carrel.Unauthenticated},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := w.Run(t.Context(), c.cmd)
			var ce *carrel.Error
			if !errors.As(err, &ce) || ce.Kind != c.kind || ce.ID == "" || ce.Op == "" {
				t.Errorf("got %v (%v), want kind %v, an ID and an op", err, carrel.KindOf(err), c.kind)
			}
		})
	}
}

// TestOutputIsWhole sends much output both ways and compares every byte's count.
func TestOutputIsWhole(t *testing.T) {
	w := newWorld(t)
	const size = 32 << 20
	var got counter
	res := run(t, w, carrel.Command{Args: []string{"cat"}, Stdin: io.LimitReader(zeros{}, size), Stdout: &got})
	if res.ExitCode != 0 || got.n != size {
		t.Errorf("%d of %d bytes came back, exit %d", got.n, size, res.ExitCode)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

// TestStreams shows that output arrives while the process runs.
func TestStreams(t *testing.T) {
	w := newWorld(t)
	r, out := io.Pipe()
	p, err := w.Start(t.Context(), carrel.Command{Shell: "echo one; read x; echo $x", OpenStdin: true, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4)
	if _, err := io.ReadFull(r, line); err != nil || string(line) != "one\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := p.Write([]byte("two\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, line); err != nil || string(line) != "two\n" {
		t.Fatalf("%q, %v", line, err)
	}
	for range 2 { // Wait may be called more than once
		if res, err := p.Wait(t.Context()); err != nil || res.ExitCode != 0 {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if _, err := p.Write([]byte("late")); err == nil {
		t.Error("writing to a process that ended is no error")
	}
}

func TestCloseStdin(t *testing.T) {
	w := newWorld(t)
	p, err := w.Start(t.Context(), carrel.Command{Args: []string{"cat"}, OpenStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(t.Context()); err != nil || res.ExitCode != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestLastInput writes input that ends the process. The write must succeed, whether its answer or
// the process's end arrives first.
func TestLastInput(t *testing.T) {
	w := newWorld(t)
	for range 30 {
		p, err := w.Start(t.Context(), carrel.Command{Args: []string{"head", "-c", "3"}, OpenStdin: true})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := p.Write([]byte("abc")); n != 3 || err != nil {
			t.Fatalf("wrote %d: %v", n, err)
		}
		if err := p.CloseStdin(); err != nil {
			t.Fatalf("close while it ends: %v", err)
		}
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.CloseStdin(); err != nil {
			t.Fatalf("close after the end: %v", err)
		}
		if _, err := p.Write([]byte("late")); carrel.KindOf(err) != carrel.NotFound {
			t.Fatalf("write after the end: %v", err)
		}
	}
}

// TestInputEndsWithClose disconnects while a write waits for a process that reads
// nothing.
func TestInputEndsWithClose(t *testing.T) {
	w := newWorld(t)
	p, err := w.Start(t.Context(), carrel.Command{Args: []string{"sleep", "60"}, OpenStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Signal(context.WithoutCancel(t.Context()), 9)
	wrote := make(chan error, 1)
	go func() {
		_, err := p.Write(make([]byte, 1<<20))
		wrote <- err
	}()
	time.Sleep(100 * time.Millisecond)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-wrote:
		if err == nil {
			t.Error("a write into a full pipe succeeded")
		}
	case <-time.After(time.Minute):
		t.Error("the write still waits after Close")
	}
}

func TestTerminal(t *testing.T) {
	w := newWorld(t)
	var out safeBuffer
	p, err := w.Start(t.Context(), carrel.Command{Shell: "stty size; read x; stty size; echo $TERM", TTY: &carrel.Size{Cols: 100, Rows: 30}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the terminal has its size", func() bool { return strings.Contains(out.String(), "30 100") })
	if err := p.Resize(t.Context(), carrel.Size{Cols: 77, Rows: 22}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(t.Context()); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := out.String(); !strings.Contains(got, "22 77") || !strings.Contains(got, "xterm-256color") {
		t.Errorf("terminal wrote %q", got)
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestDisconnect shows that neither Close nor the end of ctx kills the process, and that a later
// Attach can use it.
func TestDisconnect(t *testing.T) {
	w := newWorld(t)
	for name, leave := range map[string]func(carrel.Process, context.CancelFunc){
		"close":   func(p carrel.Process, _ context.CancelFunc) { _ = p.Close() },
		"context": func(_ carrel.Process, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // a deadline must not reach the guest
			defer cancel()
			p, err := w.Start(ctx, carrel.Command{Shell: "read x; echo got $x; exit 7", OpenStdin: true, Tag: "t-" + name})
			if err != nil {
				t.Fatal(err)
			}
			leave(p, cancel)
			if _, err := p.Wait(t.Context()); err == nil {
				t.Error("Wait on a disconnected process gave no error")
			}
			all, err := w.Processes(t.Context())
			if err != nil || len(all) != 1 || all[0].PID != p.PID() || all[0].Tag != "t-"+name || all[0].Args[0] != "/bin/bash" {
				t.Fatalf("processes: %+v, %v", all, err)
			}
			var out bytes.Buffer
			again, err := w.Attach(t.Context(), p.PID(), &out, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := again.Write([]byte("it\n")); err != nil {
				t.Fatal(err)
			}
			if res, err := again.Wait(t.Context()); err != nil || res.ExitCode != 7 || out.String() != "got it\n" {
				t.Errorf("%+v, %v, %q", res, err, out.String())
			}
		})
	}
}

func TestAttachTerminal(t *testing.T) {
	w := newWorld(t)
	p, err := w.Start(t.Context(), carrel.Command{Shell: "read x; exit $x", TTY: &carrel.Size{Cols: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	again, err := w.Attach(t.Context(), p.PID(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Write([]byte("5\n")); err != nil {
		t.Fatal(err)
	}
	if res, err := again.Wait(t.Context()); err != nil || res.ExitCode != 5 {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := w.Attach(t.Context(), p.PID(), nil, nil); !errors.Is(err, carrel.NotFound) {
		t.Errorf("attaching to a process that ended: %v, want NotFound", err)
	}
}

func TestTimeout(t *testing.T) {
	w := newWorld(t)
	var res *carrel.Result
	var err error
	for _, limit := range []time.Duration{time.Second, time.Minute} { // the second is for a machine that starts too slowly
		res, err = w.Run(t.Context(), carrel.Command{Args: []string{"sh", "-c", "echo begun; sleep 3000"}, Timeout: limit})
		if res != nil && len(res.Stdout) > 0 {
			break
		}
	}
	if !errors.Is(err, carrel.TimedOut) || res == nil || string(res.Stdout) != "begun\n" {
		t.Errorf("%+v, %v, want TimedOut and the output so far", res, err)
	}
	testenv.Eventually(t, "no process is left", func() bool { all, err := w.Processes(t.Context()); return err == nil && len(all) == 0 })
}

// TestRunCancelled shows that Run leaves no process when its context ends.
func TestRunCancelled(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := w.Run(ctx, carrel.Command{Shell: "sleep 60"}); !errors.Is(err, carrel.TimedOut) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want TimedOut", err)
	}
	testenv.Eventually(t, "no process is left", func() bool { all, err := w.Processes(t.Context()); return err == nil && len(all) == 0 })
}

func TestSignal(t *testing.T) {
	w := newWorld(t)
	p, err := w.Start(t.Context(), carrel.Command{Shell: "sleep 60"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(t.Context(), 2); !errors.Is(err, carrel.Unsupported) {
		t.Errorf("signal 2: %v, want Unsupported", err)
	}
	if err := p.Signal(t.Context(), 15); err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(t.Context()); err != nil || res.ExitCode != -1 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestBadWriter shows that a failing writer does not block the process, and that its error is
// returned.
func TestBadWriter(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("no more")
	res, err := w.Run(t.Context(), carrel.Command{Shell: "head -c 1000000 /dev/zero; exit 4", Stdout: writerFunc(func([]byte) (int, error) { return 0, broken })})
	if !errors.Is(err, broken) || res == nil || res.ExitCode != 4 {
		t.Errorf("%+v, %v", res, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestFiles(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	dir := t.TempDir()
	f := w.Files("")
	name := filepath.Join(dir, "new dir", "a?b&c=ü.txt")
	content := strings.Repeat("line\n", 100_000)
	info, err := f.Write(ctx, name, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if info.Path != name || info.Size != int64(len(content)) || !info.Mode.IsRegular() || time.Since(info.Modified) > time.Minute {
		t.Errorf("written: %+v", info)
	}
	r, err := f.Read(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || string(got) != content {
		t.Errorf("read back %d bytes, %v", len(got), err)
	}
	if err := f.MakeDir(ctx, filepath.Join(dir, "d")); err != nil {
		t.Error(err)
	}
	if err := f.MakeDir(ctx, filepath.Join(dir, "d")); !errors.Is(err, carrel.AlreadyExists) {
		t.Errorf("making a directory twice: %v", err)
	}
	if err := f.Move(ctx, name, filepath.Join(dir, "d", "moved")); err != nil {
		t.Error(err)
	}
	if err := os.Symlink("d", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	list, err := f.List(ctx, dir, 1)
	if err != nil || len(list) != 3 {
		t.Fatalf("list: %+v, %v", list, err)
	}
	for _, e := range list {
		switch {
		case e.Name == "link" && (e.Mode&fs.ModeSymlink == 0 || e.Target == ""):
			t.Errorf("link: %+v", e)
		case e.Name == "d" && !e.Mode.IsDir():
			t.Errorf("directory: %+v", e)
		}
	}
	if deep, err := f.List(ctx, dir, 2); err != nil || len(deep) <= len(list) {
		t.Errorf("deep list: %+v, %v", deep, err)
	}
	for range 2 { // a missing one is no error
		if err := f.Remove(ctx, filepath.Join(dir, "d")); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Stat(ctx, filepath.Join(dir, "d")); !errors.Is(err, carrel.NotFound) {
		t.Errorf("stat of what was removed: %v", err)
	}
	if _, err := f.Read(ctx, filepath.Join(dir, "d")); !errors.Is(err, carrel.NotFound) {
		t.Errorf("read of what was removed: %v", err)
	}
	if _, err := f.Read(ctx, dir); !errors.Is(err, carrel.Invalid) {
		t.Errorf("read of a directory: %v", err)
	}
	if _, err := f.List(ctx, dir, -1); !errors.Is(err, carrel.Invalid) {
		t.Errorf("list with a negative depth: %v", err)
	}
	broken := errors.New("source broke")
	if _, err := f.Write(ctx, filepath.Join(dir, "half"), io.MultiReader(strings.NewReader("x"), readerFunc(func([]byte) (int, error) { return 0, broken }))); !errors.Is(err, broken) {
		t.Errorf("write from a broken reader: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestWatch(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan carrel.FileEvent, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- w.Files("").Watch(ctx, dir, true, func(e carrel.FileEvent) {
			select {
			case seen <- e:
			default:
			}
		})
	}()
	target := filepath.Join(dir, "f")
	tick := time.NewTicker(20 * time.Millisecond) // until the watch stands
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := os.WriteFile(target, []byte(strconv.Itoa(n)), 0o600); err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-seen:
			if e.Path != target || (e.Op != "create" && e.Op != "write") {
				t.Errorf("event %+v", e)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Watch ended with %v", err)
			}
			return
		case err := <-ended:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func TestTunnel(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, "hello ") // sends first, so its bytes may come with the answer
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for range 3 {
		c, err := w.Dial(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "world"); err != nil {
			t.Fatal(err)
		}
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if err != nil || string(got) != "hello world" {
			t.Errorf("%q, %v", got, err)
		}
		_ = c.Close()
	}
	_ = l.Close()
	if _, err := w.Dial(t.Context(), port); !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, carrel.Unavailable) {
		t.Errorf("a closed port: %v, want Unavailable and ECONNREFUSED", err)
	}
	if _, err := w.Dial(t.Context(), 0); !errors.Is(err, carrel.Invalid) {
		t.Errorf("port 0: %v", err)
	}
}

func TestWrongToken(t *testing.T) {
	w := newWorld(t)
	c := guest.NewConn(w.dial, guest.ConnOptions{Token: "wrong"})
	defer c.Close()
	if _, err := c.Processes(t.Context()); !errors.Is(err, carrel.Unauthenticated) {
		t.Errorf("Processes: %v", err)
	}
	if _, err := c.Files("").Read(t.Context(), "/etc/hostname"); !errors.Is(err, carrel.Unauthenticated) {
		t.Errorf("Read: %v", err)
	}
	if err := c.Health(t.Context()); err != nil {
		t.Errorf("Health needs no token: %v", err)
	}
}

func TestGuestMetrics(t *testing.T) {
	w := newWorld(t)
	m, err := w.GuestMetrics(t.Context())
	if err != nil || m.CPUCount < 1 || m.MemTotal <= 0 || m.Time.IsZero() {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestUnreachable(t *testing.T) {
	c := guest.NewConn(func(context.Context, uint16) (net.Conn, error) {
		return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	}, guest.ConnOptions{ID: carrel.NewID()})
	defer c.Close()
	for name, call := range map[string]func() error{
		"health": func() error { return c.Health(t.Context()) },
		"run":    func() error { _, err := c.Run(t.Context(), carrel.Command{Shell: "true"}); return err },
		"read":   func() error { _, err := c.Files("").Read(t.Context(), "x"); return err },
		"dial":   func() error { _, err := c.Dial(t.Context(), 80); return err },
	} {
		if err := call(); !errors.Is(err, carrel.Unavailable) || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v, want Unavailable that is ECONNREFUSED", name, err)
		}
	}
}

// TestConnectionsAreKept shows that consecutive calls share a connection.
func TestConnectionsAreKept(t *testing.T) {
	w := newWorld(t)
	for range 20 {
		run(t, w, carrel.Command{Args: []string{"true"}})
		if _, err := w.Files("").Stat(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.dials.Load(); n > 2 {
		t.Errorf("40 calls dialled %d times", n)
	}
}

// TestManyAtOnce runs calls of all kinds at once, for -race.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			text := strconv.Itoa(i)
			if res, err := w.Run(t.Context(), carrel.Command{Shell: "cat; echo " + text, Stdin: strings.NewReader(text)}); err != nil || string(res.Stdout) != text+text+"\n" {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
			if _, err := w.Files("").Write(t.Context(), filepath.Join(dir, text), strings.NewReader(text)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func BenchmarkExec(b *testing.B) {
	w := newWorld(b)
	for b.Loop() {
		if _, err := w.Run(b.Context(), carrel.Command{Args: []string{"true"}}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestStartMissing shows that the caller can tell a missing or broken program from other refusals.
func TestStartMissing(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		cmd  carrel.Command
		want error
	}{
		{carrel.Command{Args: []string{"no-such-program"}}, fs.ErrNotExist},
		{carrel.Command{Args: []string{"/no/such/program"}}, fs.ErrNotExist},
		{carrel.Command{Args: []string{"/etc/hostname"}}, fs.ErrPermission},
		{carrel.Command{Args: []string{"no-such-program"}, TTY: &carrel.Size{Cols: 80, Rows: 24}}, fs.ErrNotExist},
		{carrel.Command{Args: []string{"true"}, Dir: "/no/such/directory"}, nil},
	} {
		_, err := w.Start(t.Context(), c.cmd)
		if carrel.KindOf(err) != carrel.Invalid || errors.Is(err, fs.ErrNotExist) != (c.want == fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) != (c.want == fs.ErrPermission) {
			t.Errorf("%q in %q: %v, want %v", c.cmd.Args, c.cmd.Dir, err, c.want)
		}
	}
}

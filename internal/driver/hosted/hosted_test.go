//go:build linux

package hosted_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/testenv"
)

var bounds = hosted.Bounds{MinMemoryMB: 32, MemoryFor: "the guest", MinPids: 16, MaxDiskMB: 1024}

// spec is a valid Spec.
func spec() driver.Spec {
	return driver.Spec{ID: carrel.NewID(), Root: driver.Root{Image: "/root.erofs"}, Guest: "/guest.erofs", Dir: "/dir",
		Limits: carrel.Limits{CPUs: 1, MemoryMB: 64, DiskMB: 64, Pids: 64}}
}

func TestBoundsNameTheField(t *testing.T) {
	if err := bounds.Check(spec()); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*driver.Spec){
		"root.image": func(s *driver.Spec) { s.Root.Image = "root.erofs" },
		"guest":      func(s *driver.Spec) { s.Guest = "" },
		"dir":        func(s *driver.Spec) { s.Dir = "./x" },
		"memoryMB":   func(s *driver.Spec) { s.Limits.MemoryMB = 31 },
		"diskMB":     func(s *driver.Spec) { s.Limits.DiskMB = 1025 },
		"cpus":       func(s *driver.Spec) { s.Limits.CPUs = math.NaN() },
		"pids":       func(s *driver.Spec) { s.Limits.Pids = 15 },
	} {
		s := spec()
		spoil(&s)
		var e *carrel.Error
		if err := bounds.Check(s); !errors.As(err, &e) || e.Kind != carrel.Invalid || e.Field != field || e.ID != s.ID {
			t.Errorf("%s: %+v", field, err)
		}
	}
	s := spec()
	s.ID = "../etc"
	if err := bounds.Check(s); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("an ID that is a path: %v", err)
	}
	s = spec()
	s.Limits.DiskMB = 1 << 30
	if err := (hosted.Bounds{}).Check(s); err != nil {
		t.Errorf("no bound on the disk: %v", err)
	}
}

func TestRemediesKeepWhatIsKnown(t *testing.T) {
	r := hosted.Remedies{NoSpace: "make room", Forbidden: "ask root"}
	inner := &carrel.Error{Kind: carrel.Conflict, Field: "dir", Err: errors.New("in use"), Hint: "another one"}
	for _, c := range []struct {
		err  error
		kind carrel.Kind
		hint string
		text string
	}{
		{inner, carrel.Conflict, "another one", "make: dir: in use"},
		{fmt.Errorf("disk: %w", inner), carrel.Conflict, "another one", ""},
		{fmt.Errorf("write: %w", syscall.ENOSPC), carrel.Exhausted, "make room", ""},
		{os.NewSyscallError("clone", syscall.EPERM), carrel.Unsupported, "ask root", ""},
		{fmt.Errorf("pipe: %w", syscall.EMFILE), carrel.Exhausted, "raise the limit of open files (ulimit -n)", ""},
		{fmt.Errorf("fork: %w", syscall.EAGAIN), carrel.Exhausted, "the host is out of processes or memory", ""},
		{context.DeadlineExceeded, carrel.TimedOut, "", ""},
		{context.Canceled, carrel.Unavailable, "", ""},
		{os.ErrNotExist, carrel.NotFound, "", ""},
		{os.ErrExist, carrel.AlreadyExists, "", ""},
		{errors.New("who knows"), carrel.Internal, "", ""},
	} {
		var e *carrel.Error
		err := r.Explain("make", "i1", c.err)
		if !errors.As(err, &e) || e.Op != "make" || e.ID != "i1" || e.Kind != c.kind || e.Hint != c.hint {
			t.Errorf("%v: %+v", c.err, e)
		}
		if c.err != error(inner) && !errors.Is(err, c.err) {
			t.Errorf("%v is not within %v", c.err, err)
		}
	}
	if err := r.Explain("make", "i1", nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

func TestBooks(t *testing.T) {
	var b hosted.Books[int]
	b.Strike(1)
	if n := len(b.All()); n != 0 {
		t.Errorf("%d in empty books", n)
	}
	b.Enter(1)
	b.Enter(2)
	b.Enter(2)
	b.Strike(1)
	if all := b.All(); len(all) != 1 || all[0] != 2 {
		t.Errorf("the books hold %v", all)
	}
}

// TestMemoryGuard checks that the guard ends a sandbox that passes its limit, once, and no other.
func TestMemoryGuard(t *testing.T) {
	var used, ends atomic.Int64
	var g hosted.MemoryGuard
	ended := make(chan struct{}, 2)
	stop := g.Watch(1000, used.Load, func() { ends.Add(1); ended <- struct{}{} })
	time.Sleep(60 * time.Millisecond)
	if g.Passed() || ends.Load() != 0 {
		t.Fatal("ended within its limit")
	}
	used.Store(1001)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("not ended")
	}
	stop()
	if !g.Passed() || ends.Load() != 1 {
		t.Errorf("passed: %v, ended %d times", g.Passed(), ends.Load())
	}
	var quiet hosted.MemoryGuard
	quiet.Watch(1000, used.Load, func() { t.Error("ended after stop") })() // stopped at its first check
}

func TestStatusBytesAreThisProcess(t *testing.T) {
	n := hosted.StatusBytes(os.Getpid(), "RssAnon")
	both := hosted.StatusBytes(os.Getpid(), "RssAnon", "RssFile")
	if n < 1<<20 || both <= n {
		t.Errorf("this process has %d bytes of its own, %d with files", n, both)
	}
	if n := hosted.StatusBytes(1<<30, "RssAnon"); n != 0 {
		t.Errorf("nobody has %d bytes", n)
	}
}

func TestFileUseLeavesHolesOut(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 64<<10), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if n := hosted.FileUse(f.Name()); n < 64<<10 || n > 1<<20 {
		t.Errorf("it takes %d bytes", n)
	}
	if n := hosted.FileUse(f.Name() + "-not"); n != 0 {
		t.Errorf("nothing takes %d bytes", n)
	}
}

// TestGuestLogIsBounded checks that no process can make the log longer, and that a message shows
// its end.
func TestGuestLogIsBounded(t *testing.T) {
	f, err := hosted.NewGuestLog()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text := hosted.GuestWords(f); text != "" {
		t.Errorf("an empty log says %q", text)
	}
	if err := f.Truncate(1 << 20); err == nil {
		t.Error("it could be made longer")
	}
	long := strings.Repeat("a line of the log\n", 200) + "the last\n"
	if _, err := f.WriteAt([]byte(long), 0); err != nil {
		t.Fatal(err)
	}
	text := hosted.GuestWords(f)
	if !strings.HasSuffix(text, "the last") || !strings.HasPrefix(text, "a line") || len(text) > hosted.MaxWords {
		t.Errorf("%d bytes: %.40q", len(text), text)
	}
	if text := hosted.GuestWords(nil); text != "" {
		t.Errorf("no log says %q", text)
	}
}

func TestEnding(t *testing.T) {
	words := func() string { return "panic: no" }
	for _, c := range []struct {
		hosted.Ending
		reason carrel.EndReason
		text   string
	}{
		{hosted.Ending{Killed: true, OverMemory: true}, carrel.EndKilled, "destroyed"},
		{hosted.Ending{OverMemory: true, MemoryMB: 64}, carrel.EndOutOfMemory, "the memory limit of 64 MiB was reached: give the sandbox more memory"},
		{hosted.Ending{Events: cgroup.Events{OOMKills: 1}, MemoryMB: 32}, carrel.EndOutOfMemory, "the memory limit of 32 MiB was reached: give the sandbox more memory"},
		{hosted.Ending{First: "its kernel", Status: "exit 2", Events: cgroup.Events{PidsMax: 1}, PidsReached: "full", Words: words},
			carrel.EndCrashed, "its kernel ended (exit 2): full: panic: no"},
		{hosted.Ending{First: "its kernel", Words: func() string { return "" }}, carrel.EndCrashed, "its kernel ended"},
	} {
		if x := c.Exit(); x.Reason != c.reason || x.Message != c.text || time.Since(x.Time) > time.Minute {
			t.Errorf("%+v, want %s", x, c.text)
		}
	}
}

// record is a driver's own.
type record struct {
	hosted.Record
	More string `json:"more"`
}

func TestHandleComesBack(t *testing.T) {
	s := spec()
	r := record{(&hosted.Options{}).NewRecord(3, s, "x/"+string(s.ID), os.Getpid(),
		cgroup.Load(cgroup.Paths{})), "yes"}
	back, err := hosted.Decode[record](hosted.Encode(r), 3)
	if err != nil || back.More != "yes" || back.ID != s.ID || back.PID != os.Getpid() || back.MemoryMB != 64 || back.Dir != "/dir" {
		t.Fatalf("%+v, %v", back, err)
	}
	if _, err := hosted.Decode[record](hosted.Encode(r), 4); carrel.KindOf(err) != carrel.Unsupported {
		t.Errorf("another version: %v", err)
	}
	for _, h := range []string{"", "x", `{"v":3}`, `{"v":3,"id":"../x","pid":7}`, `{"v":3,"id":"` + string(s.ID) + `","pid":1}`} {
		if _, err := hosted.Decode[record](driver.Handle(h), 3); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%q: %v", h, err)
		}
	}
}

// network records the files that were attached.
type network struct{ fail error }

func (n network) Attach(_ context.Context, _ driver.LinkSpec, fd *os.File) (driver.Link, error) {
	if err := fd.Close(); n.fail != nil || err != nil {
		return nil, errors.Join(n.fail, err)
	}
	return nowhere{}, nil
}

type nowhere struct{}

func (nowhere) Dial(context.Context, uint16) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
func (nowhere) Close() error                                   { return nil }

// child starts a process that waits. It returns the process and its record.
func child(t *testing.T) (*exec.Cmd, hosted.Record) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s := spec()
	return cmd, (&hosted.Options{}).NewRecord(1, s, "test/"+string(s.ID), cmd.Process.Pid,
		cgroup.Load(cgroup.Paths{}))
}

// keep puts a file into the keeper under the name of the record's link.
func keep(t *testing.T, k *drivertest.Keeper, r *hosted.Record) {
	t.Helper()
	fd, err := unix.MemfdCreate("link", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "link")
	defer f.Close()
	if err := k.Put(t.Context(), r.Link, f); err != nil {
		t.Fatal(err)
	}
}

// TestAdopt finds a living sandbox, does not touch one that can't be reached, and removes one that
// is lost.
func TestAdopt(t *testing.T) {
	for name, c := range map[string]struct {
		kept, dead bool
		network    network
		want       error
		removed    bool
	}{
		"alive":                {kept: true},
		"no link":              {want: carrel.NotFound, removed: true},
		"dead":                 {kept: true, dead: true, want: carrel.NotFound, removed: true},
		"no stack for a while": {kept: true, network: network{errors.New("busy")}, want: carrel.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, r := child(t)
			var k drivertest.Keeper
			o := hosted.Options{Network: c.network, Keeper: &k}
			links := o.Links("test")
			if c.kept {
				keep(t, &k, &r)
			}
			if c.dead {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			removed := false
			var l hosted.Life
			params := func(pidfd *os.File) hosted.Params {
				return hosted.Params{ID: r.ID, PID: r.PID, Pidfd: pidfd, Kill: func() { proc.Kill(pidfd) },
					Remove: func(ctx context.Context) error { removed = true; return links.Drop(ctx, r.Link) }}
			}
			pidfd, err := l.Adopt(t.Context(), &r, func(ctx context.Context) error { return links.Reopen(ctx, &l, &r, 1500) }, params)
			if !errors.Is(err, c.want) || removed != c.removed {
				t.Fatalf("%v, removed: %v", err, removed)
			}
			if err == nil {
				pidfd.Close()
			}
			if c.removed && k.Len() != 0 {
				t.Error("its link is still kept")
			}
			if alive := cmd.ProcessState == nil && cmd.Process.Signal(syscall.Signal(0)) == nil; alive == c.removed && !c.dead {
				t.Errorf("alive: %v", alive)
			}
		})
	}
}

// TestStrays finds a process by its arguments and ends it.
func TestStrays(t *testing.T) {
	mark := "--root=" + t.TempDir()
	cmd := exec.Command("sh", "-c", "read line", mark) // a fork has these arguments, too
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var found []int
	testenv.Eventually(t, "the process is found", func() bool {
		hosted.Strays(func(pid int, args []string) {
			if args[len(args)-1] == mark {
				found = append(found, pid)
			}
		})
		return len(found) > 0
	})
	if len(found) != 1 || found[0] != cmd.Process.Pid {
		t.Fatalf("found %v, want %d", found, cmd.Process.Pid)
	}
	if err := hosted.KillStray(t.Context(), found[0]); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("it ended by itself")
	}
	if err := hosted.KillStray(t.Context(), 1<<22+1); err != nil {
		t.Errorf("a process that is not there: %v", err)
	}
}

func TestMapsIDs(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":        true,
		"0 1000 1\n1 100000 65536\n":                false,
		"0 0 1000\n1900000000 5 100000000\n":        true,
		"1900000000 5 99999999\n":                   false,
		"":                                          false,
		"nonsense\n0 0 4294967295 and more words\n": true,
	} {
		if got := hosted.MapsIDs(text, 1_900_000_000, 100_000_000); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestTrialExplains checks that a trial's error explains what failed in the namespaces.
func TestTrialExplains(t *testing.T) {
	err := hosted.Trial{Op: "probe x", Cmd: exec.Command("sh", "-c", "echo the cause >&2; exit 1")}.Run(t.Context())
	if carrel.KindOf(err) != carrel.Unsupported || !strings.Contains(err.Error(), "the cause") || carrel.HintOf(err) != hosted.HintNamespaces {
		t.Errorf("%v, hint %q", err, carrel.HintOf(err))
	}
	err = hosted.Trial{Op: "probe x", Cmd: exec.Command("sh", "-c", "echo the cause >&2; exit 1"),
		Said: func(text string) (string, string) { return "because " + text, "do this" }}.Run(t.Context())
	if !strings.HasSuffix(err.Error(), "because the cause") || carrel.HintOf(err) != "do this" {
		t.Errorf("%v, hint %q", err, carrel.HintOf(err))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (hosted.Trial{Op: "probe x", Cmd: exec.CommandContext(ctx, "true")}).Run(ctx); carrel.KindOf(err) != carrel.TimedOut {
		t.Errorf("an ended context gives %v", err)
	}
	if err := (hosted.Trial{Op: "probe x", Cmd: exec.Command("true")}).Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStreamIsConnectedAgain gives a listener to the keeper. The next daemon must get the
// connection that is open, not one that was given up.
func TestStreamIsConnectedAgain(t *testing.T) {
	_, r := child(t)
	path := filepath.Join(t.TempDir(), "link")
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	u.SetUnlinkOnClose(false)
	listener, err := u.File()
	u.Close()
	if err != nil {
		t.Fatal(err)
	}
	connect := func() *net.UnixConn {
		t.Helper()
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var k drivertest.Keeper
	got := make(chan *os.File, 1)
	o := hosted.Options{Network: taking(got), Keeper: &k}
	links := o.Links("test")

	first := connect()
	var l hosted.Life
	if err := links.OpenStream(t.Context(), &l, &r, 1500, listener); err != nil {
		t.Fatal(err)
	}
	(<-got).Close() // the daemon dies
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the sandbox's side does not see it")
	}
	connect().Close() // given up
	second := connect()
	defer second.Close()
	var again hosted.Life
	if err := links.ReopenStream(t.Context(), &again, &r, 1500); err != nil {
		t.Fatal(err)
	}
	f := <-got
	defer f.Close()
	if _, err := second.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.Read(b); err != nil || b[0] != 'x' {
		t.Errorf("read %q, %v", b, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := links.ReopenStream(ctx, &again, &r, 1500); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody connects: %v", err)
	}
	if err := links.Drop(t.Context(), r.Link); err != nil || k.Len() != 0 {
		t.Errorf("%v, %d files are kept", err, k.Len())
	}
}

// taking is a network that hands on the attached files.
type taking chan *os.File

func (n taking) Attach(_ context.Context, _ driver.LinkSpec, fd *os.File) (driver.Link, error) {
	n <- fd
	return nowhere{}, nil
}

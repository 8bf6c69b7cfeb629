// Package drivertest is the conformance suite of package driver: a driver is done
// when it passes.
//
// # Use
//
// A driver's own test calls [Run] with a [Harness]:
//
//	func TestDriver(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{New: …, Root: root, Guest: image, Limits: limits})
//	}
//
// # What is checked
//
// The contract: what Info promises, the life of an instance, dialling, statistics,
// how it ends, Destroy in any state, recovery, the sweep after a daemon died, and that nothing is left
// behind. And
// the wall: the suite plants canaries on the host (files, sockets, listeners, keys,
// processes, a terminal), then a program inside, running as root, does what it can
// to reach them; see package attack. A case passes when no canary was touched, and
// only when its control worked too: a search that would not even find what lies
// inside proves nothing.
//
// A driver that says Snapshot is held to that contract, too: what a snapshot keeps,
// with memory where Info says so, what restored sandboxes share (nothing), what
// damaged and hostile ones do (nothing), and what a failure leaves (the sandbox, as
// it was).
//
// A driver without RealProcesses can't run that program. There the suite checks
// that the honest refusal comes: native code does not run. Cases that load the
// machine are left out with -short.
package drivertest

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// Harness is a driver under test.
type Harness struct {
	// New returns a driver, which the suite closes. All that it returns within one
	// test share their durable state (and their keeper), as the daemons before and
	// after a restart do.
	New func(t testing.TB) driver.Driver
	// Root and Guest go into every Spec. The root has /bin/sh and a writable /tmp.
	Root  driver.Root
	Guest string
	// Limits are those of the sandboxes; zero fields are small defaults.
	Limits carrel.Limits
	// Exec runs a shell script inside and returns its standard output and exit code.
	// Nil goes through the guest, which is what drivers want.
	Exec func(ctx context.Context, in driver.Instance, script, user string) (stdout string, exit int, err error)
	// Attack is the attack program, built static by [BuildAttack]; "" builds it,
	// which needs Go and the module's sources.
	Attack string
	// OneOwner says that there is one id inside, so that no file can be given to another.
	OneOwner bool
	// Settle, unless nil, waits until a driver has made what it makes ahead for sandboxes to come, so that it isn't taken for
	// something that was left.
	Settle func(t testing.TB, d driver.Driver)
	// Skip names cases that do not apply, with the reason: "escape/disk".
	Skip map[string]string
}

// suite is one run.
type suite struct {
	Harness
	info   driver.Info
	attack string // the attack program, on the host
}

// Run runs every case against the driver.
func Run(t *testing.T, h Harness) {
	if h.New == nil {
		t.Fatal("drivertest: the harness has no New")
	}
	s := &suite{Harness: h}
	l := &s.Limits
	l.CPUs, l.MemoryMB, l.DiskMB, l.Pids = or(l.CPUs, 1), or(l.MemoryMB, 256), or(l.DiskMB, 64), or(l.Pids, 128)
	d := s.open(t)
	s.info = d.Info()
	testenv.Need(t, s.info.Name, d.Probe(t.Context()))
	if s.info.Capabilities.RealProcesses {
		if s.attack = s.Attack; s.attack == "" {
			s.attack = filepath.Join(t.TempDir(), "attack")
			BuildAttack(t, s.attack)
		}
	}
	s.group(t, "info", s.testInfo)
	s.group(t, "life", s.testLife)
	s.group(t, "output", s.testOutput)
	s.group(t, "ports", s.testPorts)
	s.group(t, "end", s.testEnd)
	s.group(t, "destroy", s.testDestroy)
	s.group(t, "many", s.testMany)
	s.group(t, "recover", s.testRecover)
	s.group(t, "sweep", s.testSweep)
	s.group(t, "snapshot", s.testSnapshot)
	s.group(t, "neighbours", s.testNeighbours)
	s.group(t, "escape", s.testEscape)
	s.group(t, "bombs", s.testBombs)
}

func or[T int | float64](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// group runs a set of cases.
func (s *suite) group(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		if why := s.Skip[name]; why != "" {
			testenv.Inapplicable(t, why)
		}
		f(t)
	})
}

// open returns a driver that is closed with the test.
func (s *suite) open(t testing.TB) driver.Driver {
	t.Helper()
	d := s.New(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close driver: %v", err)
		}
	})
	return d
}

// box is a sandbox under test.
type box struct {
	s    *suite
	spec driver.Spec
	in   driver.Instance
	conn *guest.Conn
}

func (s *suite) spec(t testing.TB) driver.Spec {
	t.Helper()
	return driver.Spec{ID: carrel.NewID(), Root: s.Root, Guest: s.Guest, Dir: t.TempDir(), Limits: s.Limits}
}

// box makes a sandbox whose guest answers; the test's end destroys it.
func (s *suite) box(t testing.TB, d driver.Driver) *box {
	t.Helper()
	b, err := s.tryBox(t.Context(), d, s.spec(t))
	if b != nil {
		t.Cleanup(func() { b.destroy(t) })
	}
	if err != nil {
		t.Fatalf("create: %v (hint: %s)", err, carrel.HintOf(err))
	}
	return b
}

func (s *suite) tryBox(ctx context.Context, d driver.Driver, spec driver.Spec) (*box, error) {
	in, err := d.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	b := s.adopt(spec, in)
	return b, b.ready(ctx)
}

func (s *suite) adopt(spec driver.Spec, in driver.Instance) *box {
	return &box{s: s, spec: spec, in: in, conn: guest.NewConn(in.Dial, guest.ConnOptions{ID: spec.ID})}
}

// ready waits until the guest answers, and makes it this sandbox's.
func (b *box) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := testenv.Within(ctx, time.Minute, func() error { return b.conn.Health(ctx) }); err != nil {
		return err
	}
	return b.conn.Init(ctx, guest.InitRequest{Timestamp: time.Now(), SandboxID: string(b.spec.ID),
		Hostname: string(b.spec.ID), DefaultUser: "root"})
}

// destroy ends the sandbox, whatever its state.
func (b *box) destroy(t testing.TB) {
	t.Helper()
	_ = b.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.in.Destroy(ctx); err != nil {
		t.Errorf("destroy: %v", err)
	}
}

// exec runs a shell script inside, as root.
func (b *box) exec(ctx context.Context, script string) (string, int, error) {
	if b.s.Exec != nil {
		return b.s.Exec(ctx, b.in, script, "root")
	}
	res, err := b.conn.Run(ctx, carrel.Command{Args: []string{"/bin/sh", "-c", script}, User: "root", Dir: "/"})
	if err != nil {
		return "", 0, err
	}
	return string(res.Stdout), res.ExitCode, nil
}

// must runs a script that has to succeed within a time, and returns its output.
func (b *box) must(t testing.TB, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	out, code, err := b.exec(ctx, script)
	if err != nil || code != 0 {
		t.Fatalf("%s: exit %d, %v, output %q", script, code, err, out)
	}
	return strings.TrimRight(out, "\n")
}

// wait waits for the sandbox's end.
func (b *box) wait(t testing.TB, limit time.Duration) driver.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	e, err := b.in.Wait(ctx)
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return e
}

// wantError checks that an error is one of ours.
func wantError(t testing.TB, err error) {
	t.Helper()
	var ce *carrel.Error
	if err != nil && !errors.As(err, &ce) {
		t.Errorf("%v (%T) is not a *carrel.Error", err, err)
	}
}

// Package drivertest is the conformance suite of package driver: a driver is done when it passes.
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
// The contract: the claims of Info, the life of an instance, dialling, statistics, its end, Destroy
// in any state, recovery, the sweep after a daemon died, and that nothing is left behind.
//
// The wall: the suite plants canaries on the host (files, sockets, listeners, keys, processes, a
// terminal). Then a program inside, running as root, tries everything to reach them; see package
// attack. A case passes only when no canary was touched and its control worked. A search that does
// not even find a file inside proves nothing.
//
// Snapshots, if the driver claims Snapshot: a snapshot keeps the state (with memory if Info says
// so), restored sandboxes share nothing, damaged and hostile snapshots harm nothing, and a failure
// leaves the sandbox as it was.
//
// A driver without RealProcesses can't run that program. There the suite checks that the driver
// refuses honestly: native code does not run. With -short the suite leaves out cases that load the
// machine.
package drivertest

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
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
	// New returns a driver; the suite closes it. All drivers that New returns within one test share
	// their durable state and their keeper, like the daemons before and after a restart.
	New func(t testing.TB) driver.Driver
	// Root and Guest go into every Spec. The root has /bin/sh and a writable /tmp.
	Root  driver.Root
	Guest string
	// Limits are the limits of the sandboxes; zero fields get small defaults.
	Limits carrel.Limits
	// Exec runs a shell script inside and returns its standard output and exit code. Nil runs it
	// through the guest, as drivers normally want.
	Exec func(ctx context.Context, in driver.Instance, script, user string) (stdout string, exit int, err error)
	// Attack is the path of the attack program, which [BuildAttack] built. If it is "", the suite
	// builds the program, which needs Go and the module's sources.
	Attack string
	// OneOwner says that only one uid exists inside, so that a file can't be given to another.
	OneOwner bool
	// Settle waits until a driver has prepared its objects for future sandboxes, so that the suite
	// does not take them for leftovers. It may be nil.
	Settle func(t testing.TB, d driver.Driver)
	// OwnKernel says that a sandbox has a kernel of its own, which its root may control. The suite
	// then asks only whether the host is untouched, and not whether that kernel refuses.
	OwnKernel bool
	// Many is the number of sandboxes that the case "many" makes; 0 is 50.
	Many int
	// Slow says that the processor inside is emulated. Cases that only move much data move less.
	Slow bool
	// Skip names cases that do not apply, with the reason: "escape/disk".
	Skip map[string]string
	// Long names cases that -short leaves out, because another run of the suite has them.
	Long []string
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
	s.Many = or(s.Many, 50)
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
		s.mayRun(t, name)
		f(t)
	})
}

// mayRun skips a case that the harness leaves out.
func (s *suite) mayRun(t *testing.T, name string) {
	if why := s.Skip[name]; why != "" {
		testenv.Inapplicable(t, why)
	}
	if slices.Contains(s.Long, name) {
		testenv.Long(t, "another run of the suite has this case")
	}
}

// open returns a driver that is closed when the test ends.
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

// box makes a sandbox and waits until its guest answers. The sandbox is destroyed when the test
// ends.
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

// ready waits until the guest answers, and gives it this sandbox's identity.
func (b *box) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := testenv.Within(ctx, time.Minute, func() error { return b.conn.Health(ctx) }); err != nil {
		return err
	}
	return b.conn.Init(ctx, guest.InitRequest{Timestamp: time.Now(), SandboxID: string(b.spec.ID),
		Hostname: string(b.spec.ID), DefaultUser: "root"})
}

// destroy ends the sandbox in any state.
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

// must runs a script that has to succeed within a time limit, and returns its output.
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

// wantError checks that an error is a *carrel.Error.
func wantError(t testing.TB, err error) {
	t.Helper()
	var ce *carrel.Error
	if err != nil && !errors.As(err, &ce) {
		t.Errorf("%v (%T) is not a *carrel.Error", err, err)
	}
}

package drivertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestHostProcess runs the suite against a driver without any wall: its guest is an ordinary
// process of this machine. It shows that the suite's own cases work.
func TestHostProcess(t *testing.T) {
	run(t, map[string]string{"neighbours": "one machine: its files are shared"})
}

// envFault makes the driver faulty in a copy of this test. The copy has to fail.
const envFault = "DRIVERTEST_FAULT"

// TestFaulty is that copy. Without envFault it does nothing.
func TestFaulty(t *testing.T) {
	if os.Getenv(envFault) == "" {
		testenv.Inapplicable(t, "only as a child of TestSuiteCanFail")
	}
	run(t, nil)
}

// A suite that can't fail proves nothing.
func TestSuiteCanFail(t *testing.T) {
	testenv.Long(t, "runs the suite several times")
	for fault, c := range map[string]struct{ group, text string }{
		"shared files": {"neighbours", "a file of one is read in the other"},
		"leaves files": {"destroy$/^twice", "left behind: file"},
		"wrong reason": {"end$/^killed", "the reason is"},
		"hangs around": {"destroy$/^twice", "left behind: process"},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.short", "-test.run", "^TestFaulty$/^"+c.group)
			cmd.Env = append(os.Environ(), envFault+"="+fault)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.text) {
				t.Errorf("the suite did not find the fault: %v\n%s", err, out)
			}
		})
	}
}

// run runs the suite on the driver without a wall.
func run(t *testing.T, skip map[string]string) {
	bin := filepath.Join(t.TempDir(), "guest")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/carrel-dev/carrel/cmd/carrel-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, out)
	}
	drivertest.Run(t, drivertest.Harness{
		New:  func(testing.TB) driver.Driver { return &hostDriver{guest: bin, fault: os.Getenv(envFault)} },
		Skip: skip,
	})
}

// hostDriver runs the guest on the host. Its sandboxes' "own address" is 127.0.0.2.
type hostDriver struct{ guest, fault string }

var _ driver.Driver = (*hostDriver)(nil)

func (d *hostDriver) Info() driver.Info {
	return driver.Info{Name: "hostproc", Tier: "none", Capabilities: driver.Capabilities{RealProcesses: true}}
}
func (d *hostDriver) Probe(context.Context) error { return nil }
func (d *hostDriver) Close() error                { return nil }

func (d *hostDriver) Recover(context.Context, driver.Handle) (driver.Instance, error) {
	return nil, &carrel.Error{Op: "recover", Kind: carrel.NotFound}
}

func (d *hostDriver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, &carrel.Error{Op: "create", Kind: carrel.TimedOut, ID: spec.ID, Err: err}
	}
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		return nil, &carrel.Error{Op: "create", Kind: carrel.Internal, ID: spec.ID, Err: err}
	}
	addr := l.Addr().String()
	l.Close()
	in := &hostInstance{id: spec.ID, fault: d.fault, addr: addr, ended: make(chan struct{})}
	if d.fault == "leaves files" {
		_ = os.WriteFile(filepath.Join(spec.Dir, "left"), nil, 0o600)
	}
	if d.fault == "hangs around" {
		lost := exec.Command("sleep", "6")
		lost.Args = []string{string(spec.ID), "6"}
		if err := lost.Start(); err == nil {
			defer func() { go func() { _ = lost.Wait() }() }()
		}
	}
	in.cmd = exec.Command(d.guest, "-no-setup", "-gateway", "127.0.0.1", "-listen", addr)
	in.cmd.Args[0] = "guest-" + string(spec.ID)
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := in.cmd.Start(); err != nil {
		return nil, &carrel.Error{Op: "create", Kind: carrel.Internal, ID: spec.ID, Err: err}
	}
	go func() {
		err := in.cmd.Wait()
		in.mu.Lock()
		in.exit = driver.Exit{Reason: carrel.EndCrashed, Message: fmt.Sprint(err), Time: time.Now()}
		if in.killed && in.fault != "wrong reason" {
			in.exit.Reason = carrel.EndKilled
		}
		in.mu.Unlock()
		close(in.ended)
	}()
	return in, nil
}

type hostInstance struct {
	id    carrel.ID
	fault string
	addr  string
	cmd   *exec.Cmd
	ended chan struct{}

	mu     sync.Mutex
	killed bool
	exit   driver.Exit
}

func (in *hostInstance) Handle() driver.Handle {
	b, _ := json.Marshal(map[string]string{"id": string(in.id)})
	return b
}

func (in *hostInstance) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	addr := fmt.Sprintf("127.0.0.2:%d", port)
	if port == carrel.GuestPort {
		addr = in.addr
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, &carrel.Error{Op: "dial", Kind: carrel.Unavailable, ID: in.id, Err: err}
	}
	return c, nil
}

func (in *hostInstance) Stats(context.Context) (driver.Stats, error) {
	var cpu time.Duration
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", in.cmd.Process.Pid))
	if err != nil {
		return driver.Stats{}, err
	}
	var own, ownSys, kids, kidsSys int64
	var skip string
	fields := []any{&skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &own, &ownSys, &kids, &kidsSys}
	if _, err := fmt.Sscan(string(b), fields...); err != nil {
		return driver.Stats{}, err
	}
	cpu = time.Duration(own+ownSys+kids+kidsSys+1) * 10 * time.Millisecond
	return driver.Stats{CPU: cpu, Memory: 10 << 20, Pids: 1}, nil
}

func (in *hostInstance) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-in.ended:
		in.mu.Lock()
		defer in.mu.Unlock()
		return in.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

func (in *hostInstance) Destroy(ctx context.Context) error {
	in.mu.Lock()
	in.killed = true
	in.mu.Unlock()
	if err := in.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-in.ended:
	case <-time.After(3 * time.Second):
		_ = in.cmd.Process.Kill()
		<-in.ended
	}
	return nil
}

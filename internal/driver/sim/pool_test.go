//go:build !cgo

package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/wire"
)

// makeSandbox makes a sandbox and a connection to its guest. The sandbox is destroyed when the test
// ends.
func makeSandbox(t *testing.T, d driver.Driver) (driver.Instance, *guest.Conn) {
	t.Helper()
	spec := driver.Spec{ID: carrel.NewID(), Dir: t.TempDir(), Limits: carrel.Limits{CPUs: 1, MemoryMB: 64, DiskMB: 64, Pids: 64}}
	in, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	c := guest.NewConn(in.Dial, guest.ConnOptions{ID: spec.ID})
	t.Cleanup(func() {
		_ = c.Close()
		if err := in.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := c.Init(t.Context(), guest.InitRequest{}); err != nil {
		t.Fatal(err)
	}
	return in, c
}

// shell runs a script in a sandbox.
func shell(t *testing.T, c *guest.Conn, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := c.Run(ctx, carrel.Command{Shell: script})
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Stdout) + string(res.Stderr)
}

// newPool opens a pool. It is closed when the test ends.
func newPool(t *testing.T, o sim.PoolOptions) *sim.Pool {
	t.Helper()
	p, err := sim.NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// workers returns the pids of this process's workers.
func workers(t *testing.T) (pids []int) {
	t.Helper()
	for _, pid := range proc.Children(os.Getpid()) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasPrefix(string(b), "carrel-sim\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestWayOut requests pages from sandboxes in this process and in workers. The wire's policy
// decides by name and by address, and may change. Without a network there must be no way out.
func TestWayOut(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page of "+r.Host+"\n") }))
	defer web.Close()
	table := &wire.Table{Names: map[string][]string{"good.example.com": {"192.0.2.1"}, "bad.example.com": {"192.0.2.2"}},
		Dial: map[string]string{"192.0.2.1:80": web.Listener.Addr().String(), "192.0.2.2:80": web.Listener.Addr().String()}}
	open := func(t *testing.T) *wire.Wire {
		p, err := policy.Compile(carrel.Network{AllowOut: []string{"good.example.com"}, DenyOut: []string{"0.0.0.0/0"}})
		if err != nil {
			t.Fatal(err)
		}
		w := wire.New(wire.Options{Dialer: table, Resolver: table, Egress: func(carrel.ID) *policy.Policy { return p }})
		t.Cleanup(func() { _ = w.Close() })
		return w
	}
	for name, make := range map[string]func(*testing.T, *wire.Wire) driver.Driver{
		"here": func(t *testing.T, w *wire.Wire) driver.Driver {
			if w == nil {
				return sim.New(sim.Options{})
			}
			return sim.New(sim.Options{Link: sim.LinkBy(w, inside)})
		},
		"worker": func(t *testing.T, w *wire.Wire) driver.Driver {
			o := sim.PoolOptions{Workers: 1}
			if w != nil {
				o.Network = w
			}
			return newPool(t, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			in, c := makeSandbox(t, make(t, w))
			if got := shell(t, c, "curl -sS http://good.example.com/"); got != "page of good.example.com\n" {
				t.Errorf("allowed: %q", got)
			}
			if got := shell(t, c, "wget -q -O - http://good.example.com/ | tr a-z A-Z"); got != "PAGE OF GOOD.EXAMPLE.COM\n" {
				t.Errorf("wget: %q", got)
			}
			for _, url := range []string{"http://bad.example.com/", "http://192.0.2.2/", "http://192.0.2.1/", web.URL, "http://localhost/", "http://169.254.169.254/latest/meta-data"} {
				if got := shell(t, c, "curl -sS "+url+"; echo $?"); strings.Contains(got, "page of") || got == "0\n" { // a refusal may be a page with an error
					t.Errorf("%s: %q", url, got)
				}
			}
			var h struct{ ID carrel.ID }
			if err := json.Unmarshal(in.Handle(), &h); err != nil {
				t.Fatal(err)
			}
			if err := w.SetNetwork(h.ID, nil); err != nil {
				t.Fatal(err)
			}
			if got := shell(t, c, "curl -sS http://good.example.com/; echo $?"); strings.Contains(got, "page of") {
				t.Errorf("after the rules changed: %q", got)
			}
			_, lonely := makeSandbox(t, make(t, nil))
			if got := shell(t, lonely, "curl -sS http://good.example.com/; echo $?"); strings.Contains(got, "page of") || strings.HasSuffix(got, "\n0\n") {
				t.Errorf("without a network: %q", got)
			}
		})
	}
}

// TestWorkerHasNothing looks at a worker from outside. It must have no capability, no file and no
// namespace of the host, and it must have a filter.
func TestWorkerHasNothing(t *testing.T) {
	p := newPool(t, sim.PoolOptions{Workers: 1})
	_, c := makeSandbox(t, p)
	shell(t, c, "seq 1000 | sort -rn | awk '{ n += $1 } END { print n }' > f; sqlite3 d 'create table t(x); insert into t values (1)'; tar cf a.tar f d")
	pids := workers(t)
	if len(pids) != 1 {
		t.Fatalf("workers: %v", pids)
	}
	dir := fmt.Sprintf("/proc/%d/", pids[0])
	b, err := os.ReadFile(dir + "status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("its status lacks %q", want)
		}
	}
	for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts"} {
		ours, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		if theirs, err := os.Readlink(dir + "ns/" + ns); err == nil && theirs == ours {
			t.Errorf("it is in the host's %s namespace", ns)
		}
	}
	if os.Geteuid() == 0 {
		list, err := os.ReadDir(dir + "root")
		if err != nil || len(list) > 0 {
			t.Errorf("its root holds %v, %v", list, err)
		}
		fds, err := os.ReadDir(dir + "fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			to, _ := os.Readlink(dir + "fd/" + fd.Name())
			if strings.HasPrefix(to, "/") && to != "/dev/null" && !strings.HasPrefix(to, "/cpu.") { // Go's runtime reads its control group's processor limit
				t.Errorf("it has %s open", to)
			}
		}
	}
}

// TestWorkerEnds kills one of two workers. Its sandboxes must end with a reason, those of the other
// must go on, and new sandboxes must get a new worker.
func TestWorkerEnds(t *testing.T) {
	p := newPool(t, sim.PoolOptions{Workers: 2})
	first, c1 := makeSandbox(t, p)
	before := workers(t)
	_, c2 := makeSandbox(t, p)
	if len(before) != 1 || len(workers(t)) != 2 {
		t.Fatalf("workers: %v, then %v", before, workers(t))
	}
	shell(t, c1, "echo x > f")
	shell(t, c2, "echo kept > f")
	if err := unix.Kill(before[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := first.Wait(ctx)
	if err != nil || exit.Reason != carrel.EndCrashed || !strings.Contains(exit.Message, "its worker process ended: signal: killed") {
		t.Errorf("%+v %v", exit, err)
	}
	if _, err := first.Dial(ctx, carrel.GuestPort); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("dial: %v", err)
	}
	if _, err := first.Stats(ctx); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("stats: %v", err)
	}
	if got := shell(t, c2, "cat f"); got != "kept\n" {
		t.Errorf("the other says %q", got)
	}
	_, c3 := makeSandbox(t, p)
	if got := shell(t, c3, "echo new"); got != "new\n" {
		t.Errorf("a new one says %q", got)
	}
}

// TestPoolClosed closes a pool. It must make no sandbox any more, and leave no process.
func TestPoolClosed(t *testing.T) {
	p := newPool(t, sim.PoolOptions{Workers: 2})
	in, _ := makeSandbox(t, p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if pids := workers(t); len(pids) > 0 {
		t.Errorf("left: %v", pids)
	}
	if exit, err := in.Wait(t.Context()); err != nil || exit.Reason == "" {
		t.Errorf("%+v %v", exit, err)
	}
	if _, err := p.Create(t.Context(), driver.Spec{ID: carrel.NewID()}); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("create: %v", err)
	}
}

// TestPoolConformance runs the conformance suite on sandboxes in worker processes.
func TestPoolConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: func(t testing.TB) driver.Driver {
		p, err := sim.NewPool(sim.PoolOptions{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Probe(t.Context()); err != nil { // start the worker before anything is counted
			t.Fatal(err)
		}
		return p
	}})
}

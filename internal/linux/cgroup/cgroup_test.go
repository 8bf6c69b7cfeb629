package cgroup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// open returns a hierarchy of this test alone that has all controllers.
func open(t *testing.T) *cgroup.Hierarchy {
	t.Helper()
	name := fmt.Sprintf("carrel-test-%d", os.Getpid())
	h, err := cgroup.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	var missing []error
	for _, err := range h.Missing() {
		missing = append(missing, err)
	}
	t.Cleanup(func() { h.Close() })
	testenv.Need(t, "cgroup", errors.Join(missing...))
	return h
}

// create makes a group. It is removed when the test ends.
func create(t *testing.T, h *cgroup.Hierarchy, l cgroup.Limits) *cgroup.Group {
	t.Helper()
	g, err := h.Create(strings.ReplaceAll(t.Name(), "/", "-"), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Destroy(ctx); err != nil {
			t.Error(err)
		}
	})
	return g
}

// run runs a shell line inside the group g.
func run(t *testing.T, g *cgroup.Group, line string) (string, error) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := g.Start(cmd.SysProcAttr, cmd.Start); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	return out.String(), err
}

func TestChildIsBornInside(t *testing.T) {
	g := create(t, open(t), cgroup.Limits{})
	before, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, g, "cat /proc/self/cgroup")
	if err != nil {
		t.Fatal(err, out)
	}
	for _, c := range []string{"memory", "pids"} {
		if !strings.Contains(out, "TestChildIsBornInside") {
			t.Errorf("%s: the child is not in its group:\n%s", c, out)
		}
	}
	after, _ := os.ReadFile("/proc/self/cgroup")
	if string(before) != string(after) {
		t.Errorf("the test itself moved from\n%s to\n%s", before, after)
	}
}

// TestWithoutProcessorGroup checks that a group whose processor time is not limited shares it with
// all others as its processes would without one.
func TestWithoutProcessorGroup(t *testing.T) {
	open(t) // this machine has all controllers
	h, err := cgroup.Open(fmt.Sprintf("carrel-test-some-%d", os.Getpid()), cgroup.CPU, cgroup.CPUAcct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if h.Has(cgroup.CPU) || h.Has(cgroup.CPUAcct) || !h.Has(cgroup.Memory) || !h.Has(cgroup.Pids) {
		t.Errorf("controllers: cpu %v, cpuacct %v, memory %v, pids %v", h.Has(cgroup.CPU), h.Has(cgroup.CPUAcct), h.Has(cgroup.Memory), h.Has(cgroup.Pids))
	}
	out, err := run(t, create(t, h, cgroup.Limits{Memory: 1 << 30}), "cat /proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		part := strings.SplitN(line, ":", 3)
		if in := strings.Contains(line, "carrel-test-some"); len(part) == 3 && strings.HasPrefix(part[1], "cpu") && in || len(part) == 3 && part[1] == "memory" && !in {
			t.Errorf("it is in %s", line)
		}
	}
}

func TestMemoryLimitKillsAndCounts(t *testing.T) {
	g := create(t, open(t), cgroup.Limits{Memory: 32 << 20})
	out, err := run(t, g, "head -c 200m /dev/zero | tail -c 200m >/dev/null; echo alive")
	t.Logf("%q %v", out, err)
	if n := g.Events().OOMKills; n == 0 {
		t.Error("200 MiB fitted into 32 MiB: no kill counted")
	}
}

func TestPidLimitRefusesForks(t *testing.T) {
	g := create(t, open(t), cgroup.Limits{Pids: 8})
	out, _ := run(t, g, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 >/dev/null 2>&1 & done")
	if g.Events().PidsMax == 0 {
		t.Errorf("12 forks within 8 tasks were not refused: %s", out)
	}
}

func TestStatsMeasure(t *testing.T) {
	g := create(t, open(t), cgroup.Limits{CPUs: 0.5})
	start := time.Now()
	if out, err := run(t, g, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"); err != nil {
		t.Fatal(err, out)
	}
	took := time.Since(start)
	s := g.Stats()
	if s.CPU <= 0 || s.CPU > took {
		t.Errorf("processor time %v in %v", s.CPU, took)
	}
	// A quota of half a core allows half of the time at most, plus or minus one period.
	if s.CPU > took/2+120*time.Millisecond {
		t.Errorf("used %v of %v with half a core", s.CPU, took)
	}
}

func TestKillAndDestroy(t *testing.T) {
	h := open(t)
	g, err := h.Create("victim", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "sleep 100 & sleep 100")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := g.Start(cmd.SysProcAttr, cmd.Start); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := g.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the process ended by itself")
	}
	if err := g.Destroy(ctx); err != nil {
		t.Error("second Destroy:", err)
	}
	for _, n := range h.List() {
		if n == "victim" {
			t.Error("the group is still listed")
		}
	}
}

// TestManyAtOnce starts children from many goroutines. Each must be born in its own group, on
// whatever thread the runtime starts it.
func TestManyAtOnce(t *testing.T) {
	h := open(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			name := fmt.Sprintf("many-%d-", i)
			g, err := h.Create(name, cgroup.Limits{})
			if err != nil {
				t.Error(err)
				return
			}
			cmd := exec.Command("/bin/cat", "/proc/self/cgroup")
			cmd.SysProcAttr = &syscall.SysProcAttr{}
			var out strings.Builder
			cmd.Stdout = &out
			if err := g.Start(cmd.SysProcAttr, cmd.Start); err != nil {
				t.Error(err)
				return
			}
			if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), name) {
				t.Errorf("%s: %v %s", name, err, out.String())
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := g.Destroy(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestBadNamesAreRefused(t *testing.T) {
	for _, n := range []string{"", "/", "../x", "/abs"} {
		if _, err := cgroup.Open(n); err == nil {
			t.Errorf("Open(%q) was accepted", n)
		}
	}
	h := open(t)
	for _, n := range []string{"", "a/b", ".."} {
		if _, err := h.Create(n, cgroup.Limits{}); err == nil {
			t.Errorf("Create(%q) was accepted", n)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	h, err := cgroup.Open("carrel-bench")
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	for i := range b.N {
		g, err := h.Create(fmt.Sprint("b", i), cgroup.Limits{Memory: 1 << 30, CPUs: 1, Pids: 100})
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		if err := g.Start(cmd.SysProcAttr, cmd.Start); err != nil {
			b.Fatal(err)
		}
		_ = cmd.Wait()
		_ = g.Destroy(context.Background())
	}
}

// TestOthersClose opens and closes other hierarchies of the same name, as boxes of one user do.
// Each Close removes the parent if it is empty. Making a group must work all the same.
func TestOthersClose(t *testing.T) {
	h := open(t)
	name := fmt.Sprintf("carrel-test-%d", os.Getpid())
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if other, err := cgroup.Open(name); err == nil {
					_ = other.Close()
				}
			}
		})
	}
	for i := range 300 {
		g, err := h.Create(fmt.Sprintf("closing-%d", i), cgroup.Limits{Pids: 10})
		if err != nil {
			t.Errorf("group %d: %v", i, err)
			break
		}
		if err := g.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	others.Wait()
}

package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// v2Mount returns the mount point of the unified hierarchy on this host, with or without
// controllers.
func v2Mount() (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if left, right, ok := strings.Cut(line, " - "); ok && strings.HasPrefix(right, "cgroup2 ") {
			return strings.Fields(left)[4], nil
		}
	}
	return "", errors.New("no cgroup2 mount")
}

// TestUnifiedGroup starts, finds and kills processes in a real version 2 group, and removes the
// group. That needs no controller.
func TestUnifiedGroup(t *testing.T) {
	mount, err := v2Mount()
	testenv.Need(t, "cgroup2", err)
	dir := filepath.Join(mount, fmt.Sprintf("carrel-test-%d", os.Getpid()))
	testenv.Need(t, "cgroup2", os.Mkdir(dir, 0o755))
	g := cgroup.Load(cgroup.Paths{V2: dir})
	t.Cleanup(func() { _ = g.Destroy(t.Context()); _ = os.Remove(dir) })

	// A shell and its child, so that the group has more than its first process.
	cmd := exec.Command("sh", "-c", "sleep 100 & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := g.Start(cmd.SysProcAttr, cmd.Start); err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
	if err != nil || !strings.Contains(string(own), "0::/"+filepath.Base(dir)+"\n") && !strings.Contains(string(own), "/"+filepath.Base(dir)+"\n") {
		t.Errorf("it was born in %q, %v", own, err)
	}
	testenv.EventuallyNil(t, "both are in the group", func() error {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err == nil && len(strings.Fields(string(procs))) != 2 {
			err = fmt.Errorf("in it is %q", procs)
		}
		return err
	})
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v", err)
	}
	if err := g.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
	if err := g.Destroy(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// TestUnifiedGroupDestroyKills removes a group in which processes live.
func TestUnifiedGroupDestroyKills(t *testing.T) {
	mount, err := v2Mount()
	testenv.Need(t, "cgroup2", err)
	dir := filepath.Join(mount, fmt.Sprintf("carrel-test-%d-b", os.Getpid()))
	testenv.Need(t, "cgroup2", os.Mkdir(dir, 0o755))
	g := cgroup.Load(cgroup.Paths{V2: dir})
	cmd := exec.Command("sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := g.Start(cmd.SysProcAttr, cmd.Start); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if err := g.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the process ended well")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
}

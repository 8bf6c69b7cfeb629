package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// bundleVar names the directory of the bundle.
	bundleVar = "CARREL_K8S"
	// stageVar says which part this copy of the test binary plays: [stageInit] or [stageTests].
	stageVar = "CARREL_K8S_STAGE"
	// scratchVar names the empty directory on which the namespaces' files are mounted.
	scratchVar = "CARREL_K8S_SCRATCH"
	// groupVar is the name of the control group of all pods.
	groupVar = "CARREL_K8S_GROUP"

	stageInit  = "init"
	stageTests = "tests"

	groupPrefix = "carrel-k8s-"
	cgroupDir   = "/sys/fs/cgroup"

	// NodeIP is the address of the node, on which tests may listen for pods.
	NodeIP = "192.0.2.2"
)

// Main runs the tests of a package in namespaces of their own. It is the body of TestMain. Where
// the cluster can't run, it runs the tests right here, and they skip (see [Get]).
func Main(m *testing.M) {
	switch os.Getenv(stageVar) {
	case stageInit:
		os.Exit(beInit())
	case stageTests:
		code := m.Run()
		stopShared()
		os.Exit(code)
	}
	if missing() != nil {
		os.Exit(m.Run())
	}
	code, err := enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		code = 1
	}
	os.Exit(code)
}

// missing says what this machine lacks for a cluster.
func missing() error {
	dir := os.Getenv(bundleVar)
	if dir == "" {
		return errors.New("the variable " + bundleVar + ", which \"make test-k8s\" sets")
	}
	if os.Geteuid() != 0 {
		return errors.New("root")
	}
	_, err := os.Stat(filepath.Join(dir, "bin", "kubelet"))
	return err
}

// enter runs this binary in new namespaces, and returns its exit code.
func enter() (int, error) {
	scratch, err := os.MkdirTemp("", groupPrefix)
	if err != nil {
		return 1, err
	}
	defer os.Remove(scratch) // what was mounted there went with the namespace
	dropGroups(isStale)
	group := groupPrefix + strconv.Itoa(os.Getpid())
	if err := makeGroups(group); err != nil {
		return 1, err
	}
	defer dropGroups(func(name string) bool { return name == group })

	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	// The kernel ends the child when the thread that started it ends, so this thread must stay.
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stageVar+"="+stageInit, scratchVar+"="+scratch, groupVar+"="+group)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-ended:
			_ = cmd.Process.Kill()
		case <-over:
		}
	}()
	err = cmd.Wait()
	close(over)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code > 0 {
			return code, nil
		}
		return 1, fmt.Errorf("the tests were ended: %w", err)
	}
	return 0, err
}

// beInit is the first process of the PID namespace: it sets up the other namespaces, starts the
// tests, and collects every process that ends. It returns the tests' exit code.
func beInit() int {
	if err := setUp(os.Getenv(scratchVar)); err != nil {
		fmt.Fprintln(os.Stderr, "cluster: set up namespaces:", err)
		return 1
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, stageVar+"=") })
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env: append(env, stageVar+"="+stageTests), Files: []uintptr{0, 1, 2}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster: start tests:", err)
		return 1
	}
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fmt.Fprintln(os.Stderr, "cluster: wait for tests:", err)
			return 1
		case ended == pid && status.Exited():
			return status.ExitStatus()
		case ended == pid:
			return 128 + int(status.Signal())
		}
	}
}

// hiddenSysctls are settings of the whole machine, with the values that kubelet wants. It changes
// none that has its value already.
var hiddenSysctls = map[string]string{
	"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1",
}

// setUp mounts what the parts of the cluster write to, and makes the node's network.
func setUp(scratch string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// The places that have fixed names. The log directories are links that kubelet makes.
	for _, dir := range []string{"/run", "/var/lib/kubelet", "/var/lib/cni", "/var/log", scratch} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	for name, value := range hiddenSysctls {
		file := filepath.Join(scratch, filepath.Base(name))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", name, err)
		}
	}
	// The kernel lets a pod with a user namespace mount its /proc only if some /proc here is whole.
	whole := filepath.Join(scratch, "proc")
	if err := os.Mkdir(whole, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", whole, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount a whole /proc: %w", err)
	}
	return network()
}

// network makes the node's one link. Nothing outside the namespace can be reached over it.
func network() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "node0"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(NodeIP + "/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(bridge, addr); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return err
	}
	// kubelet and the API server look for a default route when they choose addresses.
	return netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Gw: []byte{192, 0, 2, 1}})
}

// hierarchies are the directories of control groups: those of version 1, or the one of version 2.
func hierarchies() []string {
	if _, err := os.Stat(filepath.Join(cgroupDir, "cgroup.controllers")); err == nil {
		return []string{cgroupDir}
	}
	found, _ := filepath.Glob(filepath.Join(cgroupDir, "*", "cgroup.procs")) // the pattern is good
	out := make([]string, len(found))
	for i, file := range found {
		out[i] = filepath.Dir(file)
	}
	return out
}

// makeGroups makes the group of all pods in each hierarchy.
func makeGroups(name string) error {
	for _, h := range hierarchies() {
		dir := filepath.Join(h, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// A group for processors can be used only once it has some.
		for _, file := range []string{"cpuset.mems", "cpuset.cpus"} {
			value, err := os.ReadFile(filepath.Join(h, file))
			if err != nil {
				continue // another hierarchy
			}
			if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropGroups removes the groups that choose names, with all below them. Groups with processes stay.
func dropGroups(choose func(name string) bool) {
	for _, h := range hierarchies() {
		entries, _ := os.ReadDir(h)
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), groupPrefix) && choose(e.Name()) {
				dropGroup(filepath.Join(h, e.Name()))
			}
		}
	}
}

// dropGroup removes a group, the ones below it first.
func dropGroup(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			dropGroup(filepath.Join(dir, e.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}

// isStale says whether a group was left by tests that were killed.
func isStale(group string) bool {
	pid, err := strconv.Atoi(strings.TrimPrefix(group, groupPrefix))
	return err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

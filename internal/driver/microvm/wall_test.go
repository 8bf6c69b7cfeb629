//go:build linux

package microvm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/microvm"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// bootOne returns a sandbox whose guest answers, and the pid of its VMM.
func bootOne(t *testing.T, d *microvm.Driver, spec driver.Spec) (driver.Instance, *guest.Conn, int) {
	t.Helper()
	in, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	conn := guest.NewConn(in.Dial, guest.ConnOptions{ID: spec.ID})
	t.Cleanup(func() {
		_ = conn.Close()
		if err := in.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	testenv.EventuallyNil(t, "the guest answers", func() error { return conn.Health(t.Context()) })
	if err := conn.Init(t.Context(), guest.InitRequest{Timestamp: time.Now(), SandboxID: string(spec.ID), Hostname: string(spec.ID), DefaultUser: "root"}); err != nil {
		t.Fatal(err)
	}
	var rec hosted.Record
	if err := json.Unmarshal(in.Handle(), &rec); err != nil {
		t.Fatal(err)
	}
	return in, conn, rec.PID
}

// run runs a script inside.
func run(t *testing.T, conn *guest.Conn, script string) string {
	t.Helper()
	res, err := conn.Run(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", script}, User: "root", Dir: "/"})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %d, %v, %s", script, res.ExitCode, err, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// wantWalled checks that a VMM has no rights, is not the host's root, and is in namespaces of its own.
// more are further lines of its status.
func wantWalled(t *testing.T, pid int, more ...string) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append([]string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"}, more...) {
		if !strings.Contains(string(status), want+"\n") {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	if os.Geteuid() == 0 && strings.Contains(string(status), "Uid:\t0\t") {
		t.Error("the VMM is the host's root")
	}
	for _, kind := range []string{"user", "pid", "mnt", "net", "ipc", "uts"} {
		ours, err1 := os.Readlink("/proc/self/ns/" + kind)
		its, err2 := os.Readlink(filepath.Join(proc, "ns", kind))
		if err := errors.Join(err1, err2); err != nil || ours == its {
			t.Errorf("namespace %s is ours: %v", kind, err)
		}
	}
}

// TestVMM looks at the process that a sandbox could take over: its rights, its files, and what it
// sees of the host. Then the guest dies, and the reason is what the kernel said on the console.
func TestVMM(t *testing.T) {
	d := newJudged(t).open(t)
	spec := newSpec(t)
	in, conn, pid := bootOne(t, d, spec)
	proc := func(name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }
	wantWalled(t, pid, "Seccomp:\t2")
	// It may not grow a file: not even the disk that it writes.
	disk, err := os.Stat(filepath.Join(spec.Dir, "disk"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(proc("limits")); err != nil || !strings.Contains(string(text), fmt.Sprintf("Max file size             %-21d", disk.Size())) {
		t.Errorf("its limits are %v\n%s", err, text)
	}
	seen, err := os.ReadDir(proc("root"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range seen {
		if allowed := []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "gnu", "nix", "etc", "kernel", "initrd"}; !slices.Contains(allowed, e.Name()) {
			t.Errorf("the VMM sees /%s", e.Name())
		}
	}
	if list, err := os.ReadDir(proc("root/etc")); err != nil || len(list) > 1 {
		t.Errorf("the VMM sees in /etc: %v, %v", list, err)
	}
	if err := os.WriteFile(proc("root/new"), nil, 0o600); err == nil {
		t.Error("the VMM's root can be written to")
	}
	own, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	if got := run(t, conn, "cat /proc/sys/kernel/osrelease"); got == strings.TrimSpace(string(own)) || !strings.Contains(got, "cloud") {
		t.Errorf("inside runs %s, on the host %s", got, own)
	}
	// Process 1 is protected from a kill, but root inside may end its kernel in other ways.
	_, _ = conn.Run(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", "echo c > /proc/sysrq-trigger"}, User: "root", Dir: "/"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := in.Wait(ctx)
	if err != nil || e.Reason != carrel.EndCrashed || !strings.Contains(e.Message, "panic") {
		t.Errorf("after a crash of its kernel the end is %+v, %v", e, err)
	}
}

// TestVerdictIsRemembered shows that a second driver boots nothing to know the accelerator.
func TestVerdictIsRemembered(t *testing.T) {
	s := newState(t)
	s.open(t)
	file := filepath.Join(s.dir, verdictFile)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	s.open(t)
	if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
		t.Errorf("it was written again: %v", err)
	}
	if err := os.WriteFile(file, []byte(`{"for":"another host","accel":"kvm"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.open(t)
	if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), "another host") {
		t.Errorf("a verdict of another host was taken: %s, %v", b, err)
	}
}

// TestLacks shows that a host without the parts is told what is missing, and what to do.
func TestLacks(t *testing.T) {
	for name, change := range map[string]func(o *microvm.Options){
		"qemu": func(o *microvm.Options) { o.QEMU = filepath.Join(t.TempDir(), "qemu") },
		"a QEMU that is nowhere in the system": func(o *microvm.Options) {
			o.QEMU = filepath.Join(t.TempDir(), "qemu")
			if err := os.WriteFile(o.QEMU, []byte("#!/bin/sh\necho QEMU\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"kernel":      func(o *microvm.Options) { o.Kernel = t.TempDir() },
		"no kernel":   func(o *microvm.Options) { o.Kernel = "" },
		"carrel-init": func(o *microvm.Options) { o.Init = filepath.Join(t.TempDir(), "init") },
	} {
		t.Run(name, func(t *testing.T) {
			o := newState(t).options(t)
			change(&o)
			d, err := microvm.New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Probe(t.Context()); carrel.KindOf(err) != carrel.Unsupported || carrel.HintOf(err) == "" {
				t.Errorf("it says %v (hint: %q)", err, carrel.HintOf(err))
			}
			if _, err := d.Create(t.Context(), newSpec(t)); carrel.KindOf(err) != carrel.Unsupported {
				t.Errorf("a creation says %v", err)
			}
		})
	}
}

// TestBrokenVMM shows that a machine that does not boot is no machine: a program that says it is
// QEMU and ends at once.
func TestBrokenVMM(t *testing.T) {
	o := newState(t).options(t)
	true1, err := filepath.EvalSymlinks("/usr/bin/true")
	testenv.Need(t, "microvm", err)
	o.QEMU = true1
	d, err := microvm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Probe(t.Context()); carrel.KindOf(err) != carrel.Unsupported {
		t.Errorf("it says %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(o.Root, verdictFile)); len(left) > 0 {
		t.Error("a verdict about a broken VMM was written")
	}
}

// TestHostileMachine floods the console, which is bounded, and resets the machine, which ends it.
func TestHostileMachine(t *testing.T) {
	d := newJudged(t).open(t)
	in, conn, pid := bootOne(t, d, newSpec(t))
	// The kernel's driver sends a few kilobytes at a time; QEMU must not keep what nobody reads.
	run(t, conn, "i=0; while [ $i -lt 200 ]; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; i=$((i+1)); done > /x; i=0; while [ $i -lt 20 ]; do cat /x; i=$((i+1)); done > /dev/ttyS0; echo \"Kernel panic - not syncing: a lie\" > /dev/ttyS0")
	if got := run(t, conn, "echo alive"); got != "alive" {
		t.Errorf("after a flood of the console it says %q", got)
	}
	st, err := in.Stats(t.Context())
	if err != nil || st.Memory > 400<<20 {
		t.Errorf("after a flood of the console the VMM uses %d MiB, %v", st.Memory>>20, err)
	}
	if list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task")); err != nil || len(list) > 32 {
		t.Errorf("the VMM has %d threads, %v", len(list), err)
	}
	_, _ = conn.Run(t.Context(), carrel.Command{Args: []string{"/bin/sh", "-c", "echo b > /proc/sysrq-trigger"}, User: "root", Dir: "/"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if e, err := in.Wait(ctx); err != nil || e.Reason != carrel.EndCrashed || e.Message == "" {
		t.Errorf("after a reset the end is %+v, %v", e, err)
	}
}

// TestHostileDevices takes the disks and the network card from the machine's kernel and writes garbage
// to their registers and queues. The machine may live or end. Its VMM stays in its walls and within its
// memory, and nothing of it is left.
func TestHostileDevices(t *testing.T) {
	const seconds = 5
	d := newJudged(t).open(t)
	spec := newSpec(t)
	in, conn, pid := bootOne(t, d, spec)
	f, err := os.Open(need(t).Attack)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := conn.Files("root").Write(t.Context(), "/tmp/attack", f); err != nil {
		t.Fatal(err)
	}
	run(t, conn, "chmod 755 /tmp/attack")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	said, stopped := &strings.Builder{}, make(chan struct{})
	go func() { // the connection ends with the card
		defer close(stopped)
		_, _ = conn.Run(ctx, carrel.Command{Args: []string{"/tmp/attack", "virtio", strconv.Itoa(seconds)}, User: "root", Dir: "/", Stdout: said})
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = in.Wait(ctx)
	}()
	var most int64
	testenv.Eventually(t, "the machine ends", func() bool {
		most = max(most, resident(t, pid))
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if allowed := int64(limits.MemoryMB+160+128) << 20; most > allowed {
		t.Errorf("the VMM used %d MiB", most>>20)
	}
	e, err := in.Wait(ctx)
	if err != nil || e.Reason != carrel.EndCrashed {
		t.Errorf("the end is %+v, %v", e, err)
	}
	t.Logf("it used %d MiB, and said: %s", most>>20, e.Message)
	// Either the attack came to its end, or QEMU gave up before.
	if !strings.Contains(e.Message, "of 4 devices") && !strings.Contains(e.Message, "qemu-system-x86_64: ") {
		t.Error("the devices were not attacked")
	}
	cancel()
	<-stopped
	if !strings.Contains(said.String(), "virtio\tcontrol") {
		t.Errorf("the attack says %q", said)
	}
	if err := in.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if list, _ := os.ReadDir(spec.Dir); len(list) > 0 || vmmOf(string(spec.ID)) > 0 {
		t.Errorf("it left %v", list)
	}
}

// resident is the memory of a process, 0 when it has ended.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// TestKilledAtEachStep kills the VMM while a machine is restored. The restore fails, or the sandbox
// ends; nothing of it is left.
func TestKilledAtEachStep(t *testing.T) {
	testenv.Long(t, "it restores machines again and again")
	d := newJudged(t).open(t)
	in, _, _ := bootOne(t, d, newSpec(t))
	dir := t.TempDir()
	info, err := in.(driver.Snapshotter).Snapshot(t.Context(), dir, driver.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for after := range 12 {
		spec := newSpec(t)
		var killer sync.WaitGroup
		killer.Go(func() {
			err := testenv.Within(t.Context(), time.Minute, func() error {
				pid := vmmOf(string(spec.ID))
				if pid == 0 {
					return errors.New("no VMM")
				}
				time.Sleep(time.Duration(after) * 15 * time.Millisecond)
				return syscall.Kill(pid, syscall.SIGKILL)
			})
			if err != nil {
				t.Error(err)
			}
		})
		r, err := d.Restore(t.Context(), dir, info, spec, driver.RestoreOptions{})
		killer.Wait()
		if err == nil {
			if e, err := r.Wait(t.Context()); err != nil || e.Reason != carrel.EndCrashed {
				t.Errorf("the end after %d is %+v, %v", after, e, err)
			}
			if err := r.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		} else if carrel.KindOf(err) != carrel.Invalid && carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("after %d: %v (kind %s)", after, err, carrel.KindOf(err))
		}
		if list, _ := os.ReadDir(spec.Dir); len(list) > 0 || vmmOf(string(spec.ID)) > 0 {
			t.Errorf("after %d it left %v", after, list)
		}
	}
}

// vmmOf finds the VMM of a sandbox, 0 for none.
func vmmOf(id string) (found int) {
	hosted.Strays(func(pid int, args []string) {
		for _, a := range args {
			if strings.HasSuffix(a, "/"+id) && strings.HasPrefix(filepath.Base(args[0]), "qemu-system-") {
				found = pid
			}
		}
	})
	return found
}

package gvisor_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestSentryIsBare looks at the sentry from outside. Code that took over the sentry would have all
// that it holds.
func TestSentryIsBare(t *testing.T) {
	d, _ := newDriver(t)
	canary, err := os.Open("/etc/passwd") // the daemon's own descriptors must not leak
	if err != nil {
		t.Fatal(err)
	}
	defer canary.Close()
	in := create(t, d, newSpec(t))
	if got, ok := get(t, in, "/hello"); !ok {
		t.Fatal(got)
	}
	pid := pidOf(t, in)
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if got := statusField(t, pid, set); got != "0000000000000000" {
			t.Errorf("%s is %s", set, got)
		}
	}
	for key, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "Groups": ""} {
		if got := statusField(t, pid, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if runtime.GOARCH == "amd64" { // gVisor's filter, and ours for CPUID
		ours, _ := strconv.Atoi(statusField(t, os.Getpid(), "Seccomp_filters"))
		theirs, _ := strconv.Atoi(statusField(t, pid, "Seccomp_filters"))
		if theirs-ours != 2 {
			t.Errorf("%d filters beyond our own %d, want 2", theirs-ours, ours)
		}
	}
	uid, _ := strconv.Atoi(strings.Fields(statusField(t, pid, "Uid"))[0])
	if os.Geteuid() == 0 && uid < 1_900_000_000 {
		t.Errorf("uid %d is shared", uid)
	}
	for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts"} {
		ours, _ := os.Readlink("/proc/self/ns/" + ns)
		theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/" + ns)
		if err != nil || ours == theirs {
			t.Errorf("%s namespace: ours %s, the sentry's %s (%v)", ns, ours, theirs, err)
		}
	}
	if b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ"); string(b) != "GODEBUG=containermaxprocs=0\x00" {
		t.Errorf("environment %q", b)
	}
	checkRoot(t, pid)
	checkDescriptors(t, pid)
}

// TestRestoredIsBare looks at a restored sentry. It must have no more rights than a fresh one, from
// the start. When its snapshot is loaded, it must have no more descriptors either.
func TestRestoredIsBare(t *testing.T) {
	d, _ := newDriver(t)
	dir, info := snapshot(t, create(t, d, newSpec(t)), driver.SnapshotOptions{})
	in := restore(t, d, dir, info, newSpec(t), driver.RestoreOptions{})
	pid := pidOf(t, in)
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*")
	if err != nil || len(tasks) < 2 {
		t.Fatal(tasks, err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(filepath.Join(task, "status"))
		if os.IsNotExist(err) {
			continue // it has ended
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		for _, want := range []string{"CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "Seccomp:\t2\n", "NoNewPrivs:\t1\n"} {
			if err == nil && !strings.Contains(string(b), want) {
				t.Errorf("thread %s lacks %q:\n%s", filepath.Base(task), want, b)
			}
		}
	}
	loaded(t, in)
	// The sentry closes the snapshot just after it reports that it has loaded it.
	testenv.Eventually(t, "the snapshot is closed", func() bool { return !holdsSnapshot(pid) })
	checkRoot(t, pid)
	checkDescriptors(t, pid)
}

// holdsSnapshot reports whether a sentry still holds descriptors that only loading needs: the
// snapshot's files, and sockets and event descriptors to read them.
func holdsSnapshot(pid int) bool {
	fds, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	sockets := 0
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		if strings.HasSuffix(to, ".img") || strings.HasPrefix(to, "/memfd:flipcall") || to == "anon_inode:[pidfd]" {
			return true
		}
		if strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	return sockets > 2
}

// checkRoot fails when the sentry's root holds anything but its own empty tree.
func checkRoot(t *testing.T, pid int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/root/")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "etc" && e.Name() != "proc" {
			t.Errorf("its root holds %s", e.Name())
		}
	}
	if left, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/root/proc"); len(left) > 0 {
		t.Errorf("its /proc is still mounted")
	}
	if left, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/root/etc"); len(left) > 1 {
		t.Errorf("its /etc holds %v", left)
	}
}

// checkDescriptors fails for an open file that we did not give on purpose.
func checkDescriptors(t *testing.T, pid int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	if err != nil || len(fds) == 0 {
		t.Fatal(fds, err)
	}
	var all []string
	count := map[string]int{}
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		all = append(all, filepath.Base(fd)+" "+to)
		kind, _, _ := strings.Cut(to, ":[")
		count[kind]++
		ok := false
		for _, allowed := range []string{
			"/dev/null", "anon_inode:[event", "anon_inode:seccomp notify", "/memfd:runsc-memory", "/memfd:systrap-memory", "/memfd:guest-stderr", "/memfd:memory-usage",
			"socket:", "pipe:", images.root, images.guest, "/disk", "/sentry.log",
		} {
			if strings.Contains(to, allowed) {
				ok = true
			}
		}
		if strings.Contains(to, "[pidfd]") {
			// Until its first collection Go keeps the pidfd of the child that unmounted /proc. It
			// names no process any more.
			info, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/fdinfo/" + filepath.Base(fd))
			ok = strings.Contains(string(info), "Pid:\t-1\n")
		}
		if !ok {
			t.Errorf("descriptor %s is %s", filepath.Base(fd), to)
		}
	}
	// One listening control socket and the link. Any further socket could lead to another process.
	if n := count["socket"]; n > 2 {
		t.Errorf("%d sockets", n)
	}
	if n := count["anon_inode:[eventfd]"]; n > 8 {
		t.Errorf("%d event descriptors", n)
	}
	sort.Strings(all)
	t.Logf("%d descriptors:\n%s", len(all), strings.Join(all, "\n"))
}

// TestInsideSeesNothingOfTheHost asks a program inside what it sees.
func TestInsideSeesNothingOfTheHost(t *testing.T) {
	d, _ := newDriver(t)
	secret := filepath.Join(os.TempDir(), "carrel-canary-"+strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(secret, []byte("host secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(secret)
	t.Setenv("CARREL_TEST_CANARY", "host secret")
	in := create(t, d, newSpec(t))
	for _, path := range []string{secret, "/etc/passwd", "/etc/shadow", "/proc/1/root" + secret, "/proc/self/cwd/../../.." + secret} {
		if got, ok := get(t, in, "/read?path="+path); ok {
			t.Errorf("%s reads %q", path, got)
		}
	}
	if got, _ := get(t, in, "/env"); strings.Contains(got, "CANARY") {
		t.Errorf("environment inside: %s", got)
	}
	if got, ok := get(t, in, "/rawsocket"); ok {
		t.Errorf("raw socket: %s", got)
	}
	if got, _ := get(t, in, "/list?path=/"); strings.Contains(got, "home") {
		t.Errorf("/ holds %q", got)
	}
	if got, ok := get(t, in, "/write?path=/sys/x"); ok {
		t.Errorf("/sys is writable: %q", got)
	}
	if got, _ := get(t, in, "/read?path=/proc/self/limits"); !strings.Contains(got, "65536") {
		t.Errorf("limits inside:\n%s", got)
	}
}

// TestRootless runs the main tests as an unprivileged user.
func TestRootless(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv(envRole) != "" {
		testenv.Inapplicable(t, "runs from the root test only")
	}
	t.Parallel() // it waits for a process of its own
	tmp, err := os.MkdirTemp("", "cr")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	const uid = 65534
	if err := os.Chown(tmp, uid, uid); err != nil {
		t.Fatal(err)
	}
	// Other users may have no access to the directory of the test binary.
	bin := filepath.Join(images.dir, "copy.test")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", self, bin).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	makeSuiteFiles(t)
	cmd := exec.Command(bin, "-test.short="+strconv.FormatBool(testing.Short()), "-test.run=^(TestDriver|TestCreateAnswers|TestDiskQuota|TestMemoryBombEndsWithItsReason|TestStats|TestDestroyInAnyState|TestForkBombIsRefusedInside|TestInsideSeesNothingOfTheHost|TestCrashReasons|TestFailedCreateLeavesNothing|TestReport|TestSweep|TestBlankIs.*|TestBlankBadJob|TestRestoreRefusals|TestCancelledRestoreLeavesNothing)$", "-test.v")
	cmd.Env = []string{envRole + "=rootless", envState + "=" + images.dir, "TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH"), "CARREL_REQUIRE=" + os.Getenv("CARREL_REQUIRE"), envBlanks + "=" + os.Getenv(envBlanks)}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	start := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%v\n%s", time.Since(start), out)
	if err != nil {
		t.Error(err)
	}
}

func TestReport(t *testing.T) {
	d, _ := newDriver(t)
	findings := d.Report(t.Context())
	for _, f := range findings {
		t.Logf("%s\n\t%s\n\t%s", f.What, f.Why, f.Hint)
		if f.What == "" || f.Why == "" || f.Hint == "" {
			t.Errorf("incomplete finding %+v", f)
		}
	}
	if os.Geteuid() != 0 && len(findings) == 0 {
		t.Error("nothing is said to be missing without root")
	}
}

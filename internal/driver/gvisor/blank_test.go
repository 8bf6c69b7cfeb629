package gvisor_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/gvisor"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// newBlank returns a driver with n blank sentries ready, and the driver's root.
func newBlank(t *testing.T, n int) (*gvisor.Driver, string) {
	t.Helper()
	root := shortDir(t)
	return openBlank(t, root, &drivertest.Keeper{}, n), root
}

// sentriesOf lists the sentries of the driver with this root, blank ones too.
func sentriesOf(root string) (pids []int) {
	for _, p := range sentries("--root=" + root + "\x00") {
		pid, _ := strconv.Atoi(p)
		pids = append(pids, pid)
	}
	return pids
}

// holds lists the open descriptors of a process by number, with names that tell different files
// apart.
func holds(t *testing.T, pid int) []string {
	t.Helper()
	fds, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		if info, err := os.Stat(fd); err == nil && strings.HasPrefix(to, "/memfd:") {
			to += fmt.Sprint(":[", info.Sys().(*syscall.Stat_t).Ino, "]") // these have one name everywhere
		}
		all = append(all, to)
	}
	slices.Sort(all)
	return all
}

// TestBlankIsTaken creates a sandbox from a blank sentry. It then checks that nothing else is left
// of the blank and the sandbox.
func TestBlankIsTaken(t *testing.T) {
	d, root := newBlank(t, 1)
	before := sentriesOf(root)
	spec := newSpec(t)
	in := create(t, d, spec)
	if got, ok := get(t, in, "/hello"); !ok {
		t.Fatal(got)
	}
	if s := d.Blanks(); s.Taken != 1 || s.Missed != 0 {
		t.Errorf("%+v", s)
	}
	if pid := pidOf(t, in); !slices.Contains(before, pid) {
		t.Errorf("process %d is none of those that waited, %v", pid, before)
	}
	if pids := sentries(string(spec.ID)); len(pids) != 1 {
		t.Errorf("its name is on the processes %v", pids)
	}
	if s, err := in.Stats(t.Context()); err != nil || s.Memory == 0 || s.Memory > 64<<20 {
		t.Errorf("stats %+v %v", s, err)
	}
	var rec struct {
		Group struct {
			V1 map[string]string
			V2 string
		} `json:"cgroup"`
	}
	if err := json.Unmarshal(in.Handle(), &rec); err != nil {
		t.Fatal(err)
	}
	readyBlanks(t, d, 1) // the next
	destroy(t, in)
	nothingLeft(t, spec)
	for _, dir := range append([]string{rec.Group.V2}, rec.Group.V1["memory"], rec.Group.V1["cpu"], rec.Group.V1["pids"]) {
		if dir != "" && exists(dir) {
			t.Errorf("the group is left: %s", dir)
		}
	}
	if n := len(sentriesOf(root)); n != 1 {
		t.Errorf("%d sentries, one waits", n)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if pids := sentriesOf(root); len(pids) > 0 {
		t.Errorf("processes left: %v", pids)
	}
	if dir := filepath.Dir(rec.Group.V1["memory"] + rec.Group.V2); dir != "." && exists(dir) {
		t.Errorf("groups left in %s", dir)
	}
}

// TestBlankIsBare looks at a waiting blank sentry. It must hold nothing of any sandbox, and no
// rights.
func TestBlankIsBare(t *testing.T) {
	d, root := newBlank(t, 2)
	pids := sentriesOf(root)
	if len(pids) != 2 {
		t.Fatal(pids)
	}
	seen := map[string]int{}
	uids := map[string]bool{}
	for _, pid := range pids {
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
			if got := statusField(t, pid, set); got != "0000000000000000" {
				t.Errorf("%s is %s", set, got)
			}
		}
		uids[statusField(t, pid, "Uid")] = true
		for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts"} {
			to, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/" + ns)
			if seen[to]++; err != nil || seen[to] > 1 {
				t.Errorf("%s namespace %s (%v)", ns, to, err)
			}
		}
		sockets := 0
		for _, to := range holds(t, pid) {
			if to == "/dev/null" || strings.HasPrefix(to, "anon_inode:") {
				continue
			}
			if strings.HasPrefix(to, "socket:") {
				sockets++
			} else if !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "/memfd:systrap-memory") && !strings.HasPrefix(to, "/memfd:memory-usage") {
				t.Errorf("it has %s", to)
			}
			if seen[fmt.Sprint(to)] > 0 {
				t.Errorf("both have %s", to)
			}
		}
		for _, to := range holds(t, pid) {
			if !strings.HasPrefix(to, "anon_inode:") && to != "/dev/null" {
				seen[to]++
			}
		}
		if sockets != 1 {
			t.Errorf("%d sockets", sockets)
		}
	}
	if os.Geteuid() == 0 && len(uids) != 2 {
		t.Errorf("one uid for both: %v", uids)
	}
	// A sandbox must not hold the files of another one.
	in := create(t, d, newSpec(t))
	pid := pidOf(t, in)
	other := pids[0]
	if other == pid {
		other = pids[1]
	}
	theirs := holds(t, other)
	for _, to := range holds(t, pid) {
		if to != "/dev/null" && !strings.HasPrefix(to, "anon_inode:") && slices.Contains(theirs, to) {
			t.Errorf("a sandbox has %s, and so has a sentry that waits", to)
		}
	}
	if got := statusField(t, other, "Uid"); os.Geteuid() == 0 && got == statusField(t, pid, "Uid") {
		t.Errorf("the uids %s are used twice", got)
	}
}

// TestBlankIsRestored restores memory and files several times, each with a sentry that was started
// ahead. Threads that only a restore needs end while the sandbox runs, and closed files are
// collected.
func TestBlankIsRestored(t *testing.T) {
	d, _ := newBlank(t, 1)
	of := create(t, d, newSpec(t))
	if got, ok := get(t, of, "/write?path=/tmp/before"); !ok {
		t.Fatal(got)
	}
	dir, info := snapshot(t, of, driver.SnapshotOptions{})
	for _, opts := range []driver.RestoreOptions{{}, {FilesOnly: true}, {}, {FilesOnly: true}, {}} {
		readyBlanks(t, d, 1)
		taken := d.Blanks().Taken
		in := restore(t, d, dir, info, newSpec(t), opts)
		if d.Blanks().Taken != taken+1 {
			t.Errorf("%+v", d.Blanks())
		}
		loaded(t, in)
		if got, ok := get(t, in, "/read?path=/tmp/before"); !ok {
			t.Errorf("%+v: %s", opts, got)
		}
		checkRoot(t, pidOf(t, in))
	}
}

// TestBlankIsKilled kills blank sentries that wait, and one that was just given its job. Both times
// the create must succeed, with another sentry.
func TestBlankIsKilled(t *testing.T) {
	d, root := newBlank(t, 1)
	for range 3 {
		pids := sentriesOf(root)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		spec := newSpec(t)
		in := create(t, d, spec)
		if pid := pidOf(t, in); slices.Contains(pids, pid) {
			t.Errorf("process %d was killed", pid)
		}
		if got, ok := get(t, in, "/hello"); !ok {
			t.Fatal(got)
		}
		destroy(t, in)
		nothingLeft(t, spec)
		readyBlanks(t, d, 1)
	}
	if s := d.Blanks(); s.Failed+s.Taken < 3 {
		t.Errorf("%+v", s)
	}

	pid := sentriesOf(root)[0]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // so that it can't begin
		t.Fatal(err)
	}
	taken := d.Blanks().Taken
	spec := newSpec(t)
	type result struct {
		in  driver.Instance
		err error
	}
	done := make(chan result, 1)
	go func() {
		in, err := d.Create(t.Context(), spec)
		done <- result{in, err}
	}()
	testenv.Eventually(t, "a blank is taken", func() bool { return d.Blanks().Taken != taken })
	time.Sleep(20 * time.Millisecond) // it mostly has its job by now
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	if now := pidOf(t, r.in); now == pid {
		t.Error("it is the one that was killed")
	}
	if got, ok := get(t, r.in, "/hello"); !ok {
		t.Error(got)
	}
	destroy(t, r.in)
	nothingLeft(t, spec)
}

// TestBlankBadJob makes creations fail although a blank is ready. The driver must not retry an
// impossible creation with one blank after the other, and nothing may be left.
func TestBlankBadJob(t *testing.T) {
	d, root := newBlank(t, 1)
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, make([]byte, 8192), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		spec := newSpec(t)
		spec.Root.Image = garbage
		in, err := d.Create(t.Context(), spec)
		if err == nil {
			destroy(t, in)
			t.Fatal("created")
		}
		if carrel.KindOf(err) != carrel.Internal {
			t.Error(err)
		}
		nothingLeft(t, spec)
		readyBlanks(t, d, 1)
		if n := len(sentriesOf(root)); n != 1 {
			t.Errorf("%d sentries", n)
		}
	}
}

// TestBlankOfADeadDaemon kills a process that has blanks and one sandbox made from a blank. The
// blanks must end, the sandbox must live on, and Sweep must know it.
func TestBlankOfADeadDaemon(t *testing.T) {
	root, dir := shortDir(t), t.TempDir()
	k := &drivertest.Keeper{}
	serveKeeper(t, filepath.Join(root, "keeper"), k)
	handle, kill := createElsewhere(t, "TestRoleBlanks", "blanks", root, dir)
	if n := len(sentriesOf(root)); n != 3 {
		t.Errorf("%d sentries, two of them wait", n)
	}
	kill()
	testenv.EventuallyNil(t, "the blanks end", func() error {
		if all := sentriesOf(root); len(all) > 1 {
			return fmt.Errorf("sentries: %v", all)
		}
		return nil
	})

	d := openBlank(t, root, dirKeeper{filepath.Join(root, "keeper")}, 0)
	in, err := d.Recover(t.Context(), handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, in) })
	if pids := sentriesOf(root); len(pids) != 1 || pids[0] != pidOf(t, in) {
		t.Errorf("sentries %v, the sandbox's is %d", pids, pidOf(t, in))
	}
	var rec struct {
		ID    carrel.ID
		Group struct {
			V1 map[string]string
			V2 string
		} `json:"cgroup"`
	}
	if err := json.Unmarshal(handle, &rec); err != nil {
		t.Fatal(err)
	}
	if err := d.Sweep(t.Context(), []carrel.ID{rec.ID}); err != nil {
		t.Error(err)
	}
	if got, ok := get(t, in, "/hello"); !ok {
		t.Errorf("after the sweep: %s", got)
	}
	if group := rec.Group.V1["memory"] + rec.Group.V2; group != "" {
		left, _ := filepath.Glob(filepath.Dir(group) + "/[a-z]*-*")
		if len(left) != 1 || left[0] != group {
			t.Errorf("groups %v, the sandbox's is %s", left, group)
		}
	}
	if err := d.Sweep(t.Context(), nil); err != nil { // nobody knows it any more
		t.Error(err)
	}
	if pids := sentriesOf(root); len(pids) > 0 {
		t.Errorf("sentries %v", pids)
	}
}

// TestRoleBlanks is the other process of TestBlankOfADeadDaemon.
func TestRoleBlanks(t *testing.T) {
	if os.Getenv(envRole) != "blanks" {
		testenv.Inapplicable(t, "a part of another test")
	}
	root := os.Getenv("CARREL_TEST_ROOT")
	d, err := gvisor.New(gvisor.Options{Options: hosted.Options{Root: root, Network: testNetwork{}, Keeper: dirKeeper{filepath.Join(root, "keeper")}, Executable: images.exe, Log: slog.Default()}, Blanks: 2})
	if err != nil {
		t.Fatal(err)
	}
	readyBlanks(t, d, 2)
	spec := newSpec(t)
	spec.Dir = os.Getenv("CARREL_TEST_DIR")
	in, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := get(t, in, "/hello"); !ok {
		t.Fatal(got)
	}
	readyBlanks(t, d, 2)
	fmt.Printf("handle %s\n", in.Handle())
	select {} // until killed
}

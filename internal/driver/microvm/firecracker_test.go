//go:build linux

package microvm_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/microvm"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// fake is a driver whose VMM is the fake one, and what it needs.
type fake struct {
	*microvm.Driver
	options microvm.Options
	keeper  *drivertest.Keeper
	spec    driver.Spec // without ID and Dir
}

// newFake returns a driver that has probed its VMM, which behaves well.
func newFake(t *testing.T) *fake {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	true1, err := filepath.EvalSymlinks("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := os.ReadFile(true1) // any program is an ELF file
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(at("kernel/modules"), 0o755), os.WriteFile(at("kernel/vmlinux"), kernel, 0o644),
		os.WriteFile(at("init"), []byte("an init"), 0o644),
		os.WriteFile(at("root.erofs"), []byte("the root image"), 0o644), os.WriteFile(at("guest.erofs"), []byte("the guest's image"), 0o644)); err != nil {
		t.Fatal(err)
	}
	w := wire.New(wire.Options{})
	t.Cleanup(func() { w.Close() })
	f := &fake{keeper: &drivertest.Keeper{}, spec: driver.Spec{Root: driver.Root{Image: at("root.erofs")}, Guest: at("guest.erofs"),
		Limits: carrel.Limits{CPUs: 1, MemoryMB: 256, DiskMB: 64, Pids: 128}}}
	program := at("firecracker") // not a link: the driver would follow it, and the name says what it is
	if os.Link(self, program) != nil {
		if err := copyProgram("/proc/self/exe", program); err != nil {
			t.Fatal(err)
		}
	}
	f.options = microvm.Options{Options: hosted.Options{Root: at("driver"), Network: w, Keeper: f.keeper},
		Engine: microvm.EngineFirecracker, Firecracker: program, Kernel: at("kernel"), Init: at("init")}.WithKVM("/dev/null")
	f.Driver = f.open(t)
	return f
}

// copyProgram copies a program to another filesystem.
func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// open returns another driver with the same state.
func (f *fake) open(t *testing.T) *microvm.Driver {
	t.Helper()
	d, err := microvm.New(f.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	for range 3 { // on a busy machine a trial may take too long
		if err = d.Probe(t.Context()); err == nil {
			break
		}
	}
	if err == nil {
		return d
	}
	tun, missing := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	testenv.Need(t, "tun", missing)
	_ = tun.Close()
	if runtime.GOARCH != "amd64" || os.Geteuid() != 0 { // an ordinary user may have no namespaces
		testenv.Need(t, "ns", err)
	}
	t.Fatal(err)
	return nil
}

// behave has the VMMs that are started from now on behave in another way.
func (f *fake) behave(t *testing.T, b behaviour) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(f.options.Root, "initrd-*"))
	if err != nil || len(list) != 1 {
		t.Fatalf("the initrds are %v, %v", list, err)
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list[0], append([]byte(behaviourMark), text...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newSpec describes a sandbox with a directory of its own.
func (f *fake) newSpec(t *testing.T) driver.Spec {
	spec := f.spec
	spec.ID, spec.Dir = carrel.NewID(), t.TempDir()
	return spec
}

// machine is a fake machine that answers.
type machine struct {
	driver.Instance
	spec driver.Spec
	http *http.Client
	pid  int
	left bool // its driver was closed: another one destroys it
}

// running returns a machine that answers.
func running(t *testing.T, in driver.Instance, spec driver.Spec) *machine {
	t.Helper()
	var rec hosted.Record
	if err := json.Unmarshal(in.Handle(), &rec); err != nil {
		t.Fatal(err)
	}
	m := &machine{Instance: in, spec: spec, pid: rec.PID}
	m.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return in.Dial(ctx, carrel.GuestPort)
	}}}
	t.Cleanup(func() {
		m.http.CloseIdleConnections()
		if m.left {
			return
		}
		if err := in.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	testenv.EventuallyNil(t, "the machine answers", func() error { _, err := m.ask(t.Context(), "GET", "/health", ""); return err })
	return m
}

// create returns a machine that was booted.
func (f *fake) create(t *testing.T) *machine {
	t.Helper()
	spec := f.newSpec(t)
	in, err := f.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return running(t, in, spec)
}

// ask sends a request to the machine.
func (m *machine) ask(ctx context.Context, method, path, body string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://machine"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return string(b), err
}

// expect asks, and compares the answer.
func (m *machine) expect(t *testing.T, method, path, body, want string) {
	t.Helper()
	if got, err := m.ask(t.Context(), method, path, body); err != nil || got != want {
		t.Errorf("%s %s says %.200q, %v; want %q", method, path, got, err, want)
	}
}

// snapshot takes one.
func (m *machine) snapshot(t *testing.T, opts driver.SnapshotOptions) (string, driver.SnapshotInfo) {
	t.Helper()
	dir := t.TempDir()
	info, err := m.Instance.(driver.Snapshotter).Snapshot(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return dir, info
}

// restore returns a machine that was made from a snapshot.
func (f *fake) restore(t *testing.T, dir string, info driver.SnapshotInfo, opts driver.RestoreOptions) *machine {
	t.Helper()
	spec := f.newSpec(t)
	in, err := f.Restore(t.Context(), dir, info, spec, opts)
	if err != nil {
		t.Fatal(err)
	}
	return running(t, in, spec)
}

// clean checks that nothing of a sandbox is left.
func (f *fake) clean(t *testing.T, spec driver.Spec) {
	t.Helper()
	if list, err := os.ReadDir(spec.Dir); err != nil || len(list) > 0 {
		t.Errorf("files are left: %v, %v", list, err)
	}
	hosted.Strays(func(pid int, args []string) {
		for _, a := range args {
			if strings.HasSuffix(a, string(spec.ID)) {
				t.Errorf("process %d is left: %q", pid, args)
			}
		}
	})
	if _, err := f.keeper.Get(t.Context(), "microvm/"+string(spec.ID)); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("the link is left: %v", err)
	}
	groups, err := cgroup.Open("carrel/microvm-" + f.options.Mark())
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(groups.List(), string(spec.ID)) {
		t.Error("the control group is left")
	}
}

// TestFirecracker leads a sandbox through its life: it boots, its link carries bulk both ways, and it
// is saved, forked, frozen and destroyed.
func TestFirecracker(t *testing.T) {
	f := newFake(t)
	m := f.create(t)
	m.expect(t, "GET", "/images", "", "the root imagethe guest's image")
	m.expect(t, "PUT", "/memory", "one", "one")
	m.expect(t, "PUT", "/disk", "first", "first")
	if st, err := m.Stats(t.Context()); err != nil || st.Memory == 0 || st.MemoryLimit != 256<<20 || st.Pids == 0 {
		t.Errorf("its stats are %+v, %v", st, err)
	}
	dir, info := m.snapshot(t, driver.SnapshotOptions{})
	if info.Driver != "microvm" || !info.Memory || !strings.Contains(info.Build, "Firecracker v"+fakeVersion) || info.CPU == "" {
		t.Errorf("the snapshot is %+v", info)
	}
	for name, perm := range map[string]int64{"save-ram": 0, "save-state": 0} {
		if st, err := os.Stat(filepath.Join(m.spec.Dir, name)); err != nil || st.Size() != perm {
			t.Errorf("after a snapshot %s has %d bytes, %v", name, st.Size(), err)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, "ram")); err != nil || st.Size() != 256<<20 {
		t.Errorf("the memory of the snapshot is %v, %v", st, err)
	}
	m.expect(t, "PUT", "/memory", "two", "two")
	m.expect(t, "PUT", "/disk", "second", "second")
	a, b := f.restore(t, dir, info, driver.RestoreOptions{}), f.restore(t, dir, info, driver.RestoreOptions{})
	for _, fork := range []*machine{a, b} {
		fork.expect(t, "GET", "/memory", "", "one")
		fork.expect(t, "GET", "/disk", "", "first")
		// The new machine was told of its copy before anybody reached it.
		if told, err := fork.ask(t.Context(), "GET", "/told", ""); err != nil || !strings.Contains(told, `"newBoot":true`) ||
			!strings.Contains(told, `"sever":true`) || !strings.Contains(told, `"entropy":"`) {
			t.Errorf("a restored machine was told %s, %v", told, err)
		}
	}
	a.expect(t, "PUT", "/disk", "fork", "fork")
	b.expect(t, "GET", "/disk", "", "first")
	m.expect(t, "GET", "/memory", "", "two")
	// A fork of a fork.
	a.expect(t, "PUT", "/memory", "three", "three")
	dir, info = a.snapshot(t, driver.SnapshotOptions{})
	f.restore(t, dir, info, driver.RestoreOptions{}).expect(t, "GET", "/memory", "", "three")
	// The files alone boot.
	files := f.restore(t, dir, info, driver.RestoreOptions{FilesOnly: true})
	files.expect(t, "GET", "/memory", "", "booted")
	files.expect(t, "GET", "/disk", "", "fork")
	for _, x := range []*machine{m, a, b, files} {
		if err := x.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		f.clean(t, x.spec)
	}
}

// TestFirecrackerFreezes: a frozen machine does not answer; it is saved nevertheless, and stays frozen.
func TestFirecrackerFreezes(t *testing.T) {
	f := newFake(t)
	m := f.create(t)
	m.expect(t, "PUT", "/memory", "frozen", "frozen")
	ice := m.Instance.(driver.Freezer)
	if err := ice.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir, info := m.snapshot(t, driver.SnapshotOptions{})
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got, err := m.ask(short, "GET", "/memory", ""); err == nil {
		t.Errorf("after a snapshot a frozen machine says %q", got)
	}
	if err := ice.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.expect(t, "GET", "/memory", "", "frozen")
	f.restore(t, dir, info, driver.RestoreOptions{SameBoot: true}).expect(t, "GET", "/memory", "", "frozen")
}

// TestFirecrackerFiles takes a snapshot of files alone, and has a machine read one.
func TestFirecrackerFiles(t *testing.T) {
	f := newFake(t)
	m := f.create(t)
	m.expect(t, "PUT", "/disk", "kept", "kept")
	dir, info := m.snapshot(t, driver.SnapshotOptions{FilesOnly: true})
	if list, _ := os.ReadDir(dir); len(list) != 2 || info.Memory {
		t.Errorf("a snapshot of files has %v: %+v", list, info)
	}
	f.restore(t, dir, info, driver.RestoreOptions{}).expect(t, "GET", "/disk", "", "kept")
	spec := f.newSpec(t)
	files, err := f.SnapshotFiles(t.Context(), dir, info, spec)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.LimitReader(files, 100))
	if err := errors.Join(err, files.Close()); err != nil || !bytes.HasPrefix(b, []byte("tar of kept")) {
		t.Errorf("the stream begins with %q, %v", b, err)
	}
	f.clean(t, spec)
}

// TestFirecrackerForks restores one snapshot many times at once.
func TestFirecrackerForks(t *testing.T) {
	f := newFake(t)
	m := f.create(t)
	m.expect(t, "PUT", "/memory", "shared", "shared")
	dir, info := m.snapshot(t, driver.SnapshotOptions{})
	specs := make([]driver.Spec, 6)
	made := make([]driver.Instance, len(specs))
	var all sync.WaitGroup
	for i := range specs {
		specs[i] = f.newSpec(t)
		all.Go(func() {
			var err error
			if made[i], err = f.Restore(t.Context(), dir, info, specs[i], driver.RestoreOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	forks := make([]*machine, len(made))
	for i, in := range made {
		forks[i] = running(t, in, specs[i])
		forks[i].expect(t, "PUT", "/memory", fmt.Sprint("own ", i), fmt.Sprint("own ", i))
	}
	for i, fork := range forks {
		fork.expect(t, "GET", "/memory", "", fmt.Sprint("own ", i))
		if err := fork.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		f.clean(t, fork.spec)
	}
}

// TestFirecrackerUnprivileged runs the tests above as a user without any right.
func TestFirecrackerUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Inapplicable(t, "the tests above ran as such a user")
	}
	tests := testenv.Few(2, "", "Walls", "Recovers", "Files", "Freezes")
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestFirecracker("+strings.Join(tests, "|")+")$", "-test.count=1", "-test.v")
	cmd.Args[0] = strangerName
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "--- SKIP") {
		testenv.Need(t, "ns", fmt.Errorf("not here: %w\n%s", err, out))
	}
	if err != nil || strings.Count(string(out), "--- PASS") != len(tests) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestFirecrackerLink carries more than the link's buffers hold, both ways.
func TestFirecrackerLink(t *testing.T) {
	m := newFake(t).create(t)
	began := time.Now()
	got, err := m.ask(t.Context(), "GET", "/bulk", "")
	if err != nil || len(got) != bulkMB<<20 || got[len(got)-1] != bulkMB-1 {
		t.Errorf("%d bytes came out, %v", len(got), err)
	}
	out := time.Since(began)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(got)))
	began = time.Now()
	m.expect(t, "POST", "/bulk", got, sum)
	t.Logf("%d MiB came out in %v and went in in %v", bulkMB, out, time.Since(began))
}

// TestFirecrackerRecovers: another driver adopts a machine, and ends one that nobody knows.
func TestFirecrackerRecovers(t *testing.T) {
	f := newFake(t)
	m, lost := f.create(t), f.create(t)
	m.expect(t, "PUT", "/memory", "before", "before")
	m.left, lost.left = true, true
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f.Driver = f.open(t)
	in, err := f.Recover(t.Context(), m.Handle())
	if err != nil {
		t.Fatal(err)
	}
	again := running(t, in, m.spec)
	again.expect(t, "GET", "/memory", "", "before")
	dir, info := again.snapshot(t, driver.SnapshotOptions{})
	f.restore(t, dir, info, driver.RestoreOptions{}).expect(t, "GET", "/memory", "", "before")
	if err := f.Sweep(t.Context(), []carrel.ID{m.spec.ID}); err != nil {
		t.Fatal(err)
	}
	again.expect(t, "GET", "/memory", "", "before")
	testenv.Eventually(t, "the lost machine is gone", func() bool { return !lives(lost.pid) })
	if err := os.RemoveAll(lost.spec.Dir); err != nil { // which is the service's
		t.Fatal(err)
	}
	if err := os.Mkdir(lost.spec.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f.clean(t, lost.spec)
	if err := again.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.clean(t, m.spec)
}

// TestFirecrackerGoesOn: a daemon that died during a snapshot leaves no machine that stands still.
func TestFirecrackerGoesOn(t *testing.T) {
	f := newFake(t)
	m := f.create(t)
	m.left = true
	c, err := net.Dial("unix", filepath.Join("/proc", strconv.Itoa(m.pid), "root/run/api"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"state":"Paused"}`
	_, err = fmt.Fprintf(c, "PATCH /vm HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	answer := make([]byte, 12)
	_, rerr := io.ReadFull(c, answer)
	if err := errors.Join(err, rerr, c.Close()); err != nil || string(answer) != "HTTP/1.1 204" {
		t.Fatalf("%q, %v", answer, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f.Driver = f.open(t)
	in, err := f.Recover(t.Context(), m.Handle())
	if err != nil {
		t.Fatal(err)
	}
	running(t, in, m.spec).expect(t, "GET", "/memory", "", "booted")
}

// lives reports whether a process runs. One that has ended stays as long as nobody asks for its status:
// it is a child of this test, whose driver was closed.
func lives(pid int) bool {
	st, err := proc.ReadStat(pid)
	return err == nil && st.State != 'Z'
}

// TestFirecrackerWalls looks at the process that a sandbox could take over, from outside and from
// within.
func TestFirecrackerWalls(t *testing.T) {
	m := newFake(t).create(t)
	of := func(name string) string { return filepath.Join("/proc", strconv.Itoa(m.pid), name) }
	wantWalled(t, m.pid)
	files, err := os.ReadDir(of("fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range files {
		name, _ := os.Readlink(of("fd/" + fd.Name()))
		if strings.Contains(name, m.spec.Dir) && !strings.HasSuffix(name, "/disk") {
			t.Errorf("the VMM holds %s", name)
		}
	}
	got, err := m.ask(t.Context(), "GET", "/escapes", "")
	if cgo { // a program that needs libraries sees those of the host
		got = strings.Replace(got, `["see /usr"]`, "null", 1)
	}
	if err != nil || strings.TrimSpace(got) != "null" {
		t.Errorf("from within it can: %s, %v", got, err)
	}
}

// TestFirecrackerEnds: the machine's end is the sandbox's, and its last words are the reason.
func TestFirecrackerEnds(t *testing.T) {
	f := newFake(t)
	f.behave(t, behaviour{Talk: true})
	m := f.create(t)
	_, _ = m.ask(t.Context(), "POST", "/crash", "")
	e, err := m.Wait(t.Context())
	if err != nil || e.Reason != carrel.EndCrashed || e.Message == "" {
		t.Errorf("the end of a machine that floods its console is %+v, %v", e, err)
	}
	f.behave(t, behaviour{})
	m = f.create(t)
	_, _ = m.ask(t.Context(), "POST", "/crash", "")
	if e, err := m.Wait(t.Context()); err != nil || e.Reason != carrel.EndCrashed || !strings.Contains(e.Message, "not syncing: it was asked to") {
		t.Errorf("the end is %+v, %v", e, err)
	}
}

// TestFirecrackerIsApart: memory of another engine, version or processor is refused before a VMM is
// started; doctor says what the machines run in.
func TestFirecrackerIsApart(t *testing.T) {
	f := newFake(t)
	m := f.create(t)
	dir, info := m.snapshot(t, driver.SnapshotOptions{})
	for name, change := range map[string]func(i *driver.SnapshotInfo){
		"QEMU":              func(i *driver.SnapshotInfo) { i.Build = "vm1 kvm QEMU emulator version 9.2.0" },
		"another version":   func(i *driver.SnapshotInfo) { i.Build = strings.Replace(i.Build, fakeVersion, "1.98.0", 1) },
		"another processor": func(i *driver.SnapshotInfo) { i.CPU = "kvm 0" },
	} {
		other := info
		change(&other)
		spec := f.newSpec(t)
		if _, err := f.Restore(t.Context(), dir, other, spec, driver.RestoreOptions{}); carrel.KindOf(err) != carrel.Unsupported || carrel.HintOf(err) == "" {
			t.Errorf("memory of %s: %v", name, err)
		}
		if err := f.CanRestore(other, driver.RestoreOptions{FilesOnly: true}); err != nil {
			t.Errorf("files of %s: %v", name, err)
		}
		f.clean(t, spec)
	}
	if list := f.Report(t.Context()); !slices.ContainsFunc(list, func(x driver.Finding) bool { return strings.Contains(x.What, "Firecracker v"+fakeVersion) }) {
		t.Errorf("the report is %+v", list)
	}
}

// cgo reports whether this binary needs libraries.
var cgo = func() bool {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		return false
	}
	defer self.Close()
	return slices.ContainsFunc(self.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}()

// TestFirecrackerIsFound: where QEMU is missing, Firecracker is taken; a host that lacks something is
// told what.
func TestFirecrackerIsFound(t *testing.T) {
	f := newFake(t)
	t.Setenv("PATH", filepath.Dir(f.options.Firecracker))
	f.options.Engine, f.options.Firecracker = "", ""
	if list := f.open(t).Report(t.Context()); !slices.ContainsFunc(list, func(x driver.Finding) bool { return strings.Contains(x.What, "Firecracker") }) {
		t.Errorf("the report is %+v", list)
	}
	for name, change := range map[string]func(t *testing.T, o *microvm.Options){
		"no KVM":    func(_ *testing.T, o *microvm.Options) { o.NoKVM = true },
		"no device": func(t *testing.T, o *microvm.Options) { *o = o.WithKVM(filepath.Join(t.TempDir(), "kvm")) },
		"a missing program": func(_ *testing.T, o *microvm.Options) {
			o.Engine, o.Firecracker = microvm.EngineFirecracker, "/nowhere/firecracker"
		},
		"no program":     func(t *testing.T, _ *microvm.Options) { t.Setenv("PATH", t.TempDir()) },
		"another engine": func(_ *testing.T, o *microvm.Options) { o.Engine = "bochs" },
		"a packed kernel": func(t *testing.T, o *microvm.Options) {
			o.Kernel = t.TempDir()
			if err := os.WriteFile(filepath.Join(o.Kernel, "vmlinuz"), make([]byte, 4096), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"a VMM that does not boot": func(t *testing.T, o *microvm.Options) {
			o.Root = t.TempDir()
			if err := os.WriteFile(o.Init, []byte(behaviourMark+`{"DieAt":"PUT /actions"}`), 0o644); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := f.options
			change(t, &o)
			d, err := microvm.New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Probe(t.Context()); carrel.KindOf(err) != carrel.Unsupported || carrel.HintOf(err) == "" && name != "another engine" {
				t.Errorf("it says %v (hint: %q)", err, carrel.HintOf(err))
			}
			if _, err := os.Stat(filepath.Join(o.Root, verdictFile)); name == "a VMM that does not boot" && err == nil {
				t.Error("a verdict about a broken VMM was written")
			}
		})
	}
}

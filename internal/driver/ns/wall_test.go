package ns_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/ns"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// box is a sandbox and the way to its guest.
type box struct {
	t    testing.TB
	spec driver.Spec
	in   driver.Instance
	conn *guest.Conn
}

// newBox makes a sandbox. It is destroyed when the test ends.
func newBox(t testing.TB, d driver.Driver, spec driver.Spec) *box {
	t.Helper()
	in, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err, carrel.HintOf(err))
	}
	b := adopt(t, spec, in)
	t.Cleanup(func() { b.destroy() })
	return b
}

// destroy ends the sandbox.
func (b *box) destroy() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := b.in.Destroy(ctx); err != nil {
		b.t.Error(err)
	}
}

// adopt waits for a guest and gives it the sandbox's identity.
func adopt(t testing.TB, spec driver.Spec, in driver.Instance) *box {
	t.Helper()
	b := &box{t: t, spec: spec, in: in, conn: guest.NewConn(in.Dial, guest.ConnOptions{ID: spec.ID})}
	t.Cleanup(func() { _ = b.conn.Close() })
	testenv.EventuallyNil(t, "the guest answers", func() error { return b.conn.Health(t.Context()) })
	if err := b.conn.Init(t.Context(), guest.InitRequest{Timestamp: time.Now(), SandboxID: string(spec.ID), Hostname: string(spec.ID), DefaultUser: "root"}); err != nil {
		t.Fatal(err)
	}
	return b
}

// sh runs a shell line. It returns the output, with standard error, and the exit code.
func (b *box) sh(user, line string) (string, int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	res, err := b.conn.Run(ctx, carrel.Command{Args: []string{"/bin/sh", "-c", line}, User: user, Dir: "/"})
	if err != nil {
		b.t.Fatalf("%s: %v", line, err)
	}
	return strings.TrimRight(string(res.Stdout)+string(res.Stderr), "\n"), res.ExitCode
}

// must runs a shell line that has to succeed.
func (b *box) must(line string) string {
	b.t.Helper()
	out, code := b.sh("root", line)
	if code != 0 {
		b.t.Fatalf("%s: exit %d, %s", line, code, out)
	}
	return out
}

// full reports whether the tests run as root of the host.
func full() bool { return os.Geteuid() == 0 }

// TestRights checks root's rights inside, as the kernel reports them.
func TestRights(t *testing.T) {
	b := newBox(t, newState(t).open(t), newSpec(t))
	const kept = "00000000a00405fb" // those of the list in order.go
	want := map[string]string{"CapInh": "0000000000000000", "CapPrm": kept, "CapEff": kept, "CapBnd": kept, "CapAmb": "0000000000000000", "Seccomp": "2", "NoNewPrivs": "0"}
	if !full() {
		want["NoNewPrivs"] = "1"
	}
	for _, who := range []string{"1", "self"} {
		for line := range strings.Lines(b.must("cat /proc/" + who + "/status")) {
			key, value, _ := strings.Cut(line, ":")
			if w, ok := want[key]; ok && strings.TrimSpace(value) != w {
				t.Errorf("process %s has %s %s, want %s", who, key, strings.TrimSpace(value), w)
			}
		}
	}
	for _, line := range []string{
		"echo x > /proc/sys/kernel/hostname", "echo x > /proc/sys/kernel/core_pattern", "echo h > /proc/sysrq-trigger", "echo 1 > /proc/sys/vm/drop_caches",
		"mknod /tmp/sda b 8 0", "mknod /tmp/mem c 1 1", "echo x > /sys/x", "echo x >> /.carrel/guest", "chmod 777 /.carrel/guest", "hostname other; test $(hostname) = other",
		"cat /proc/kcore", "cat /proc/kmsg", ": > /proc/1/exe", "echo x > /proc/self/uid_map",
	} {
		if out, code := b.sh("root", line); code == 0 && out != "" || code == 0 && !strings.HasPrefix(line, "cat ") {
			t.Errorf("%s worked: %q", line, out)
		}
	}
	if out := b.must("cd /sys; echo * class/* devices/* devices/*/*; ls class/net"); out != "class devices class/net devices/system devices/virtual devices/system/cpu devices/system/node devices/virtual/net\neth0\nlo" {
		t.Errorf("/sys: %s", out)
	}
	for _, c := range hostLinks(t) {
		if out, _ := b.sh("root", "cat /sys/class/net/*/address"); strings.Contains(out, c) {
			t.Errorf("/sys has the host's link with the address %s", c)
		}
	}
	if out := b.must("cat /sys/devices/system/cpu/online /sys/class/net/lo/address"); !strings.HasPrefix(out, "0") || !strings.HasSuffix(out, "\n00:00:00:00:00:00") {
		t.Errorf("processors and the network's first link: %q", out)
	}
	if out := b.must("ls /dev"); out != "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero" {
		t.Errorf("/dev: %s", out)
	}
	if out := b.must("cat /proc/self/cgroup"); strings.Contains(out, "carrel") {
		t.Errorf("the host's groups are named: %s", out)
	}
}

// hostLinks returns the hardware addresses of this host.
func hostLinks(t *testing.T) []string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, i := range all {
		if a := i.HardwareAddr.String(); a != "" && i.Flags&net.FlagLoopback == 0 {
			out = append(out, a)
		}
	}
	return out
}

// TestUsers checks the users inside. With many ids they work as on any machine. With one id
// everything belongs to root.
func TestUsers(t *testing.T) {
	b := newBox(t, newState(t).open(t), newSpec(t))
	out, code := b.sh("user", "id -u; cd; touch mine && stat -c %u mine; cat /etc/shadow 2>&1; touch /etc/no 2>&1; echo $HOME")
	if code != 0 || !strings.HasSuffix(out, "/home/user") {
		t.Errorf("as user: %d %q", code, out)
	}
	if !full() {
		if !strings.HasPrefix(out, "0\n0\n") {
			t.Errorf("as user, where there is one id: %q", out)
		}
		if out, code := b.sh("user", "/.carrel/sudo id -u"); code != 0 || out != "0" {
			t.Errorf("sudo: %d %q", code, out)
		}
		return
	}
	if !strings.HasPrefix(out, "1000\n1000\n") || !strings.Contains(out, "/etc/no") {
		t.Errorf("as user: %q", out)
	}
	if out := b.must("touch /tmp/f && chown 12345:23456 /tmp/f && stat -c %u:%g /tmp/f && stat -c %u:%g /bin/sh /.carrel/guest"); out != "12345:23456\n0:0\n0:0" {
		t.Errorf("owners: %q", out)
	}
	if out, code := b.sh("user", "/.carrel/sudo id -u"); code != 0 || out != "0" {
		t.Errorf("sudo: %d %q", code, out)
	}
	if out, code := b.sh("root", "touch /tmp/g && chown 70000 /tmp/g"); code == 0 {
		t.Errorf("an id beyond the range: %q", out)
	}
}

// TestOutside looks at a sandbox from the host. None of its processes may be root, and the host's
// tables must not show it.
func TestOutside(t *testing.T) {
	d := newState(t).open(t)
	a, b := newBox(t, d, newSpec(t)), newBox(t, d, newSpec(t))
	var uids []string
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	const read = "cat /proc/sys/kernel/random/boot_id"
	if one, two := a.must(read), b.must(read); len(one) != 36 || one == two || one == strings.TrimSpace(string(host)) {
		t.Errorf("boots: %q, %q, the host's %q", one, two, host)
	}
	for _, x := range []*box{a, b} {
		x.must("sleep 1000 >/dev/null 2>&1 & touch /root/of-root")
		entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range entries {
			line, _ := os.ReadFile(name)
			if !strings.Contains(string(line), string(x.spec.ID)) {
				continue
			}
			status, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "status"))
			for l := range strings.Lines(string(status)) {
				if f := strings.Fields(l); len(f) == 5 && f[0] == "Uid:" {
					uids = append(uids, f[1])
				}
			}
		}
	}
	if len(uids) != 2 || uids[0] == "0" || full() == (uids[0] == uids[1]) {
		t.Errorf("host uids of two sandboxes: %v", uids)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), a.spec.Dir) || strings.Contains(string(mounts), "carrel-ns") {
		t.Errorf("the host's mounts: %v\n%s", err, mounts)
	}
}

// TestDiskIsBounded fills the disk from several places, and frees it again.
func TestDiskIsBounded(t *testing.T) {
	d := newState(t).open(t)
	if !d.Info().Capabilities.DiskLimit {
		testenv.Inapplicable(t, "nothing bounds the disk for this user")
	}
	spec := newSpec(t)
	spec.Limits.DiskMB = 8
	b := newBox(t, d, spec)
	for _, dir := range []string{"/", "/tmp", "/root", "/run", "/var", "/usr"} {
		if out, code := b.sh("root", fmt.Sprintf("i=0; while [ $i -lt 40 ]; do cat /bin/sh /bin/sh /bin/sh >> %s/fill || exit 3; i=$((i+1)); done", dir)); code != 3 || !strings.Contains(out, "No space left") {
			t.Errorf("%s: %d %q", dir, code, out)
		}
		b.must("rm " + dir + "/fill")
	}
	st, err := b.in.Stats(t.Context())
	if err != nil || st.DiskLimit != 8<<20 || st.Disk > 12<<20 {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestFreeze checks that nothing runs between Freeze and Thaw, that both may be repeated, and that
// a frozen sandbox can be destroyed.
func TestFreeze(t *testing.T) {
	st := newState(t)
	d := st.openOnly(t)
	spec := newSpec(t)
	first, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	b := adopt(t, spec, first)
	b.must("(while :; do echo x >> /tmp/ticks; sleep 0.02; done) >/dev/null 2>&1 &")
	f, ok := driver.As[driver.Freezer](b.in)
	if !ok {
		t.Fatal("no freezer")
	}
	for range 2 {
		if err := f.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before, err := b.in.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if after, _ := b.in.Stats(t.Context()); after.CPU != before.CPU {
		t.Errorf("used %v while frozen", after.CPU-before.CPU)
	}
	// Under a new daemon it is still frozen, and Thaw works.
	handle := b.in.Handle()
	_ = b.conn.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = st.open(t)
	in, err := d.Recover(t.Context(), handle)
	if err != nil {
		t.Fatal(err)
	}
	f, _ = driver.As[driver.Freezer](in)
	for range 2 {
		if err := f.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	again := adopt(t, spec, in)
	defer again.destroy()
	n := again.must("wc -l < /tmp/ticks")
	testenv.Eventually(t, "it goes on after the thaw", func() bool { return again.must("wc -l < /tmp/ticks") != n })
	if err := f.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestSweep ends sandboxes that nobody knows, and leaves the others.
func TestSweep(t *testing.T) {
	st := newState(t)
	d := st.openOnly(t)
	lost, kept := newSpec(t), newSpec(t)
	handles := map[carrel.ID]driver.Handle{}
	for _, spec := range []driver.Spec{lost, kept} {
		in, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		handles[spec.ID] = in.Handle()
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = st.open(t)
	if err := d.Sweep(t.Context(), []carrel.ID{kept.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Recover(t.Context(), handles[lost.ID]); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("a swept sandbox is adopted: %v", err)
	}
	in, err := d.Recover(t.Context(), handles[kept.ID])
	if err != nil {
		t.Fatal(err)
	}
	defer adopt(t, kept, in).destroy()
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	found := map[carrel.ID]bool{}
	for _, name := range entries {
		line, _ := os.ReadFile(name)
		for _, s := range []driver.Spec{lost, kept} {
			if strings.Contains(string(line), "/"+string(s.ID)) {
				found[s.ID] = true
			}
		}
	}
	if found[lost.ID] || !found[kept.ID] {
		t.Errorf("after the sweep: %v", found)
	}
}

// TestReport checks that every finding says what, why, and the remedy.
func TestReport(t *testing.T) {
	d := newState(t).open(t)
	var _ *ns.Driver = d
	for _, f := range d.Report(t.Context()) {
		if f.What == "" || f.Why == "" || f.Hint == "" {
			t.Errorf("incomplete finding %+v", f)
		}
	}
}

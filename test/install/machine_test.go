package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// debian is a minimal Debian with systemd and rpm's own tools, made once for all tests.
var debian = sync.OnceValues(func() (string, error) {
	// Not below /tmp, because the kernels of sandboxes treat /tmp specially.
	dir, err := os.MkdirTemp("/var/tmp", "carrel-install.")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("../../internal/tools/debianroot.sh", dir, "systemd", "systemd-sysv", "procps", "iproute2", "rpm", "python3").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// TestMain removes the files of the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := debian(); made.Load() && err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// made is true once a test has called debian.
var made atomic.Bool

// newRoot returns a minimal Debian for one test, with a script to enter it.
func newRoot(t *testing.T) string {
	t.Helper()
	needRoot(t)
	_, err := exec.LookPath("unshare")
	testenv.Need(t, "namespaces", err)
	made.Store(true)
	base, err := debian()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("/var/tmp", "carrel-machine.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	command(t, "cp", "-a", base+"/.", root)
	for _, name := range []string{"dist", "dist-before"} {
		r := theRelease(t, name)
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"deb", "rpm"} {
			command(t, "cp", r.file("amd64."+kind), filepath.Join(root, name, "carrel."+kind))
		}
	}
	return root
}

// enter makes a root the root of new namespaces and executes the rest of its arguments there. It
// makes a control group for the machine: systemd makes its groups below that.
const enter = `set -e
root=$1 group=$2
shift 2
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mkdir -p old
mount -t cgroup2 cgroup2 old
mkdir "old$group"
echo $$ >"old$group/cgroup.procs"
umount old
exec unshare --cgroup sh -ec '
	umount --lazy sys
	mount -t sysfs sysfs sys
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount --rbind /dev dev
	mount -t tmpfs tmpfs run
	mount -t tmpfs tmpfs tmp
	pivot_root . old
	cd /
	umount --lazy old
	exec env -i container=carrel-test PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"' sh "$@"
`

// machine is a root that runs.
type machine struct {
	t     *testing.T
	root  string
	group string // its control group, a path in version 2's hierarchy
	cmd   *exec.Cmd
	said  *bytes.Buffer
	first int // its process 1, by this machine's number
	ended chan struct{}
}

// start runs a program as process 1 of a machine.
func start(t *testing.T, root string, program ...string) *machine {
	t.Helper()
	m := &machine{t: t, root: root, said: &bytes.Buffer{}, ended: make(chan struct{})}
	m.group = filepath.Join(ownGroup(t), fmt.Sprintf("carrel-install-%d-%d", os.Getpid(), time.Now().UnixNano()))
	args := append([]string{"--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child", "--propagation", "private",
		"sh", "-c", enter, "enter", root, m.group}, program...)
	m.cmd = exec.Command("unshare", args...)
	m.cmd.Stdout, m.cmd.Stderr = m.said, m.said
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(m.ended); _ = m.cmd.Wait() }()
	t.Cleanup(m.off)
	return m
}

// boot starts a machine with systemd and waits until it is up.
func boot(t *testing.T, root string) *machine {
	t.Helper()
	_ = os.Remove(filepath.Join(root, "etc/systemd/system/getty.target"))
	if err := os.Symlink("/dev/null", filepath.Join(root, "etc/systemd/system/getty.target")); err != nil {
		t.Fatal(err) // there are no terminals for a login
	}
	m := start(t, root, "/lib/systemd/systemd", "--system", "--log-target=console")
	testenv.EventuallyNil(t, "the machine is up", func() error {
		if m.over() {
			return nil
		}
		if m.first == 0 {
			m.first = childOf(m.cmd.Process.Pid)
		}
		out, err := m.try("systemctl is-system-running")
		if s := strings.TrimSpace(out); s != "running" && s != "degraded" {
			return fmt.Errorf("it is %q: %w", s, err)
		}
		return nil
	})
	if m.over() {
		t.Fatalf("the machine ended: %s", m.said)
	}
	return m
}

func (m *machine) over() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// off ends a running machine, and removes its control groups.
func (m *machine) off() {
	if !m.over() {
		_ = m.cmd.Process.Kill() // the kill also reaches its child, and with it the namespace
		<-m.ended
	}
	script := `d=$(mktemp -d) && mount -t cgroup2 cgroup2 "$d" && [ ! -d "$d$1" ] || find "$d$1" -depth -type d -exec rmdir {} +; umount "$d"; rmdir "$d"`
	testenv.EventuallyNil(m.t, "its control groups are removed", func() error {
		out, err := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", m.group).CombinedOutput()
		if err != nil || len(out) > 0 {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// powerOff asks systemd to stop the machine, as its power button would, and waits.
func (m *machine) powerOff() {
	m.t.Helper()
	_, _ = m.try("systemctl poweroff")
	testenv.Eventually(m.t, "the machine is off", m.over)
	m.off()
}

// try runs a shell script in the machine.
func (m *machine) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 3*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(m.first), "-a", "env", "-i",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "sh", "-ec", script).CombinedOutput()
	return string(out), err
}

// run is try for a script that must succeed.
func (m *machine) run(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	if err != nil {
		log, _ := m.try("journalctl --no-pager -n 60 -u carrel -u carrel-drain")
		m.t.Fatalf("%s: %v\n%s\n%s", script, err, out, log)
	}
	return strings.TrimSpace(out)
}

// want fails unless a script prints text.
func (m *machine) want(script, text string) {
	m.t.Helper()
	if got := m.run(script); !strings.Contains(got, text) {
		m.t.Errorf("%s\nprints %q, want %q", script, got, text)
	}
}

// ownGroup returns this process's group in version 2's hierarchy.
func ownGroup(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(readFile(t, "/proc/self/cgroup")) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return group
		}
	}
	testenv.Need(t, "cgroup2", fmt.Errorf("the kernel has no control groups of version 2"))
	return ""
}

// childOf returns the only child of a process, or 0.
func childOf(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	child, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	return child
}

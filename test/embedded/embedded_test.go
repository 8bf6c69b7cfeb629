package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// stranger is the uid of an ordinary user. No account has it.
const stranger = 54321

// become replaces this process's program.
func become(args ...string) error { return syscall.Exec(args[0], args, os.Environ()) }

// running is a program that embeds Carrel.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Writer
	said  []string          // the lines for its sandboxes
	tmp   string            // its TMPDIR, used by no other program
	marks []string          // names of its control groups
	tree  map[int]uint64    // its processes, with their start times
	nets  map[string]string // their network namespaces, without this process's
}

// start runs a program with a sandbox of each tier, and records what it has on the host. With
// asStranger an ordinary user runs it.
func start(t *testing.T, asStranger bool, how string, tiers ...string) *running {
	t.Helper()
	r := &running{t: t, tmp: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), playVar+"="+how, "TMPDIR="+r.tmp)
	if asStranger {
		r.cmd, env = strangers(t, false, self, tiers, env)
		if err := os.Chown(r.tmp, stranger, stranger); err != nil {
			t.Fatal(err)
		}
	} else {
		r.cmd = exec.Command(self, tiers...)
	}
	r.cmd.Env, r.cmd.Stderr = env, os.Stderr
	if how == endPanic {
		r.cmd.Stderr = nil // it is meant
	}
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill(); _ = r.cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != lineReady {
		if strings.HasPrefix(lines.Text(), lineError) {
			kind := strings.Fields(lines.Text())[1]
			if kind == "unsupported" {
				testenv.Need(t, tiers[0], errors.New(lines.Text()))
			}
			t.Fatal(lines.Text())
		}
		r.said = append(r.said, lines.Text())
	}
	if len(r.said) != len(tiers) {
		t.Fatalf("the program said %q of sandboxes of %v", r.said, tiers)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	r.look()
	return r
}

// strangers returns the program of an ordinary user, with a cache that belongs to the test. With
// lacks, the user may not make user namespaces.
func strangers(t *testing.T, lacks bool, self string, tiers, env []string) (*exec.Cmd, []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		testenv.Need(t, "rootless", errors.New("root, to become another user"))
	}
	home := t.TempDir()
	bin := filepath.Join(home, "program")
	if err := errors.Join(copyFile(bin, self), os.Chown(home, stranger, stranger), os.Chmod(filepath.Dir(home), 0o755)); err != nil {
		t.Fatal(err)
	}
	prepare := "mount -t tmpfs tun /dev/net && mknod -m 666 /dev/net/tun c 10 200"
	// Only the program sees this device.
	attr := &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if lacks {
		// The limit holds in a user namespace of the test's own.
		prepare = "echo 0 >/proc/sys/user/max_user_namespaces"
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1 << 16}}
		attr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true}
	}
	line := prepare + ` && exec setpriv --reuid=$0 --regid=$0 --clear-groups "$@"`
	cmd := exec.Command("/bin/sh", append([]string{"-c", line, strconv.Itoa(stranger), bin}, tiers...)...)
	cmd.SysProcAttr = attr
	return cmd, append(env, "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"))
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// look records what the program has on the host.
func (r *running) look() {
	r.t.Helper()
	r.tree, r.nets = map[int]uint64{}, map[string]string{}
	own, _ := os.Readlink("/proc/self/ns/net")
	for _, pid := range proc.Tree(r.cmd.Process.Pid) {
		st, err := proc.ReadStat(pid)
		if err != nil {
			continue // it was short
		}
		r.tree[pid] = st.Started
		if net, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && net != own {
			r.nets[net] = strconv.Itoa(pid)
		}
	}
	for _, name := range []string{"gvisor", "ns"} {
		roots, _ := filepath.Glob(filepath.Join(r.tmp, "carrel-local-*", "run", name))
		for _, root := range roots {
			o := hosted.Options{Root: root}
			r.marks = append(r.marks, o.Mark(), "ns-"+o.Mark())
		}
	}
}

// end makes the program end and waits for that.
func (r *running) end(how string) {
	r.t.Helper()
	if how == endKill {
		_ = r.cmd.Process.Kill()
	} else if _, err := io.WriteString(r.stdin, "go\n"); err != nil {
		r.t.Fatal(err)
	}
	if how == endExec {
		return
	}
	if err := r.cmd.Wait(); (err == nil) != (how == endClose) {
		r.t.Errorf("%s: the program ended with %v", how, err)
	}
	delete(r.tree, r.cmd.Process.Pid)
}

// left returns an error with the recorded things that are still on the host, nil if there are none.
func (r *running) left() error {
	var errs []error
	there := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for pid, started := range r.tree {
		if st, err := proc.ReadStat(pid); err == nil && st.Started == started && st.State != 'Z' {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			there("process %d: %q", pid, line)
		}
	}
	entries, err := os.ReadDir(r.tmp)
	if err != nil {
		there("%w", err)
	}
	for _, e := range entries {
		there("file %s", e.Name())
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		there("%w", err)
	}
	if strings.Contains(string(mounts), r.tmp) {
		there("a mount below %s", r.tmp)
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		if file, _ := os.ReadFile(l); strings.HasPrefix(string(file), r.tmp) {
			there("loop device %s", l)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && slices.Contains(r.marks, e.Name()) {
			there("control group %s", path)
		}
		return nil // groups of others come and go
	})
	all, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, p := range all {
		if net, err := os.Readlink(p); err == nil && r.nets[net] != "" {
			there("network namespace %s of process %s, in %s", net, r.nets[net], p)
		}
	}
	return errors.Join(errs...)
}

// TestNothingStays ends programs with sandboxes of all tiers, in every way.
func TestNothingStays(t *testing.T) {
	testenv.Long(t, "makes the base template")
	for _, how := range []string{endClose, endExit, endPanic, endKill, endExec} {
		t.Run(how, func(t *testing.T) {
			r := start(t, false, how, "gvisor", "ns", "sim")
			if len(r.marks) == 0 || len(r.nets) < 2 || len(r.tree) < 4 {
				t.Fatalf("there is less to look for than there must be: %+v", r)
			}
			if r.left() == nil {
				t.Fatal("of a program that runs nothing is found")
			}
			r.end(how)
			if how == endExec {
				delete(r.tree, r.cmd.Process.Pid) // what it became
			}
			if how == endClose { // nothing to wait for
				if err := r.left(); err != nil {
					t.Error(err)
				}
				return
			}
			testenv.EventuallyNil(t, "nothing is left", r.left)
		})
	}
}

// TestNothingOfAStrangerStays does the same with the program of an ordinary user.
func TestNothingOfAStrangerStays(t *testing.T) {
	testenv.Long(t, "makes the base template")
	for _, tier := range []string{"gvisor", "ns"} {
		t.Run(tier, func(t *testing.T) {
			r := start(t, true, endKill, tier)
			r.end(endKill)
			testenv.EventuallyNil(t, "nothing is left", r.left)
		})
	}
}

// TestLacks asks for a tier that this user may not have. The error must say what is missing and
// what to do.
func TestLacks(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	cmd, env := strangers(t, true, self, []string{"ns"}, append(os.Environ(), playVar+"="+endClose, "TMPDIR="+tmp))
	if err := os.Chown(tmp, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), lineError+" unsupported ") {
		t.Fatalf("%v: %s", err, out)
	}
	if _, hint, _ := strings.Cut(strings.TrimSpace(string(out)), "hint:"); len(hint) < 10 {
		t.Errorf("it does not say what to do: %s", out)
	}
	// The program ended without Close, as a program does after an error.
	testenv.EventuallyNil(t, "nothing is left", (&running{tmp: tmp}).left)
}

// TestReaperIsKilled kills a program together with its reaper. The next service must remove what
// they left.
func TestReaperIsKilled(t *testing.T) {
	testenv.Long(t, "makes the base template")
	r := start(t, false, endKill, "gvisor", "ns")
	killed := false
	for pid := range r.tree {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(line), "carrel-reaper\x00") {
			killed = unix.Kill(pid, unix.SIGKILL) == nil
		}
	}
	if !killed {
		t.Fatal("there is no reaper")
	}
	r.end(endKill)
	if r.left() == nil {
		t.Error("without a reaper there is nothing left to clear")
	}
	r.next()
	testenv.EventuallyNil(t, "nothing is left", r.left)
}

// TestKilledWhileItStarts kills programs at different moments of their first seconds, between any
// two steps of a sandbox's creation.
func TestKilledWhileItStarts(t *testing.T) {
	testenv.Long(t, "makes the base template")
	const step = 70 * time.Millisecond
	for _, tier := range []string{"gvisor", "ns"} {
		start(t, false, endClose, tier).end(endClose) // makes the template, and checks the tier
		for i := range 10 {
			r := &running{t: t, tmp: t.TempDir(), cmd: exec.Command("/proc/self/exe", tier)}
			r.cmd.Env = append(os.Environ(), playVar+"="+endKill, "TMPDIR="+r.tmp)
			if _, err := r.cmd.StdinPipe(); err != nil { // when it is ready it waits for input
				t.Fatal(err)
			}
			if err := r.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Duration(i+1) * step)
			r.look()
			if err := r.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = r.cmd.Wait()
			r.next() // where there was no reaper yet
			testenv.EventuallyNil(t, fmt.Sprintf("nothing is left of %s after %s", tier, time.Duration(i+1)*step), func() error {
				return errors.Join(r.left(), naming(r.tmp))
			})
		}
	}
}

// naming returns an error with the processes that have dir in their arguments.
func naming(dir string) error {
	var errs []error
	hosted.Strays(func(pid int, args []string) {
		if line := strings.Join(args, " "); strings.Contains(line, dir) {
			errs = append(errs, fmt.Errorf("process %d: %s", pid, line))
		}
	})
	return errors.Join(errs...)
}

// next runs another program to its end with the same temporary directory.
func (r *running) next() {
	r.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), playVar+"="+endClose, "TMPDIR="+r.tmp)
	cmd.Stdin = strings.NewReader("go\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("the next program: %v %s", err, out)
	}
}

// TestSimulatedLeavesNoProcess kills a program with a simulated sandbox. It must leave no process,
// and the next program must remove its directory.
func TestSimulatedLeavesNoProcess(t *testing.T) {
	r := start(t, false, endKill, "sim")
	if len(r.tree) != 1 || len(r.marks) != 0 {
		t.Errorf("a program with a simulated sandbox has processes %v and control groups %v", r.tree, r.marks)
	}
	r.next()
	if r.left() == nil {
		t.Error("the next program cleared the directory of one that lives")
	}
	r.end(endKill)
	r.next()
	if err := r.left(); err != nil {
		t.Error(err)
	}
}

// TestTimeouts lets sandboxes end at their timeouts while their program does nothing.
func TestTimeouts(t *testing.T) {
	testenv.Long(t, "makes the base template")
	r := start(t, false, endExpire, "gvisor", "ns", "sim")
	testenv.EventuallyNil(t, "all sandboxes have ended", func() error {
		for pid := range r.tree {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			for _, s := range r.said {
				if id := strings.Fields(s)[1]; strings.Contains(string(line), id) {
					return fmt.Errorf("process %d: %q", pid, line)
				}
			}
		}
		for _, s := range r.said {
			dirs, _ := filepath.Glob(filepath.Join(r.tmp, "carrel-local-*", "sandboxes", strings.Fields(s)[1]))
			if len(dirs) > 0 {
				return fmt.Errorf("directory %s", dirs)
			}
		}
		return nil
	})
	if err := r.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the program itself ended: %v", err)
	}
	r.end(endKill)
	testenv.EventuallyNil(t, "nothing is left", r.left)
}

package box_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelAttacks are attacks on the kernel's interfaces.
func kernelAttacks() []attack {
	return []attack{
		{name: "kernel settings", program: "sysctl", immune: rootOnly("the files of /proc/sys are root's, but those of namespaces")},
		{name: "kernel files", program: "procfiles"},
		{name: "devices", program: "devices", prepare: func(*world) []string {
			var st unix.Stat_t
			if err := unix.Stat("/dev/vda", &st); err != nil {
				return nil
			}
			return []string{fmt.Sprint("disk=", st.Rdev)}
		}},
		{name: "namespaces", program: "namespaces"},
		{name: "mounts", program: "mounts", naive: true},
		{name: "keyrings", program: "keyring", prepare: userKey, harmed: plantedKey},
		{name: "bpf", program: "bpf", immune: rootOnly("kernel.unprivileged_bpf_disabled is set")},
		{name: "performance events", program: "perf", immune: rootOnly("kernel.perf_event_paranoid may forbid it")},
		{name: "io_uring", program: "uring"},
		{name: "userfaultfd", program: "uffd"},
		{name: "socket families", program: "families"},
		{name: "System V and POSIX IPC", program: "ipc", prepare: ipcObjects, harmed: ipcHarm},
		{name: "cgroups", program: "cgroup", immune: rootOnly("the groups are root's")},
		{name: "foreign system calls", program: "foreign", immune: map[string]string{}},
		{name: "clocks and the like", program: "clocks", immune: rootOnly("CAP_SYS_TIME is needed")},
		{name: "host name", program: "hostname", immune: rootOnly("CAP_SYS_ADMIN is needed")},
	}
}

// helper runs the attack program as the user, for the test's own work.
func (w *world) helper(args ...string) string {
	w.t.Helper()
	return w.run(w.command(w.attack, args...)).all()
}

// userKey puts a key into the user's keyring.
func userKey(w *world) []string {
	name := w.tag()
	out := w.helper("keyadd", "name="+name, "secret="+w.secret)
	var id int
	if _, err := fmt.Sscanf(out, "key %d", &id); err != nil || id <= 0 {
		w.t.Fatalf("no key: %s", out)
	}
	w.t.Cleanup(func() { w.helper("keyadd", "name="+name, "remove=1") })
	return []string{"name=" + name, fmt.Sprint("key=", id)}
}

func plantedKey(w *world) string {
	out := w.helper("keyadd", "name="+w.tag(), "remove=1")
	if i := strings.Index(out, "HARM"); i >= 0 {
		return out[i:]
	}
	return ""
}

// ipcKey returns a key for System V objects.
func ipcKey(w *world) int {
	var n int
	_, _ = fmt.Sscanf(w.secret[1:8], "%x", &n)
	return n
}

func ipcObjects(w *world) []string {
	args := []string{fmt.Sprint("key=", ipcKey(w)), "queue=/" + w.tag()}
	out := w.helper(append([]string{"ipcmake", "secret=" + w.secret}, args...)...)
	if !strings.Contains(out, "made") {
		w.t.Fatal(out)
	}
	w.t.Cleanup(func() { w.helper(append([]string{"ipcmake", "remove=1"}, args...)...) })
	return args
}

func ipcHarm(w *world) string {
	out := w.helper("ipcmake", fmt.Sprint("key=", ipcKey(w)), "remove=1")
	if i := strings.Index(out, "HARM"); i >= 0 {
		return out[i:]
	}
	return ""
}

// setuidProgram makes a set-uid copy of the attack program that belongs to root, and a file that
// only root may read.
func setuidProgram(w *world) []string {
	if os.Getuid() != 0 {
		return nil
	}
	p, secret := filepath.Join(w.outside, "suid"), filepath.Join(w.outside, "roots")
	data, err := os.ReadFile(w.attack)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(p, data, 0o755), os.Chmod(p, 0o755|os.ModeSetuid), os.WriteFile(secret, []byte(w.secret), 0o600)); err != nil {
		w.t.Fatal(err)
	}
	return []string{"program=" + p, "secret=" + secret}
}

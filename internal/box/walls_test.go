//go:build linux

package box_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/linux/landlock"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func init() { helpers["attack"] = attack }

// attack tries operations that a shell can't do, and prints the name of each one that succeeds.
func attack() {
	try := func(name string, err error) {
		if err == nil {
			fmt.Println(name)
		}
	}
	_, err := os.ReadFile("/proc/1/environ")
	try("environment of the stage", err)
	_, err = os.Readlink("/proc/1/root")
	try("root of the stage", err)
	_, err = os.Readlink("/proc/1/exe")
	try("program of the stage", err)
	_, err = os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
	try("memory of the stage", err)
	_, err = os.Readlink("/proc/1/fd/3")
	try("descriptors of the stage", err)
	try("trace the stage", unix.PtraceAttach(1))
	try("another user", syscall.Setresuid(-1, 1, -1))
	try("mount", unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""))
	try("make the root writable", unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	try("look below a mount", unix.Unmount("/tmp", unix.MNT_DETACH))
	try("chroot", unix.Chroot("/tmp"))
	try("host name", unix.Sethostname([]byte("x")))
	try("open files by number", func() error {
		_, err := unix.OpenByHandleAt(unix.AT_FDCWD, unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0}), unix.O_RDONLY)
		return err
	}())
	try("device node", unix.Mknod("/tmp/mem", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))))
	try("raw socket", func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP); return err }())
	try("low port of the host", func() error { _, err := net.Listen("tcp", "0.0.0.0:81"); return err }())
	if id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); err == nil {
		fmt.Println("keyring", id)
	}
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/sys/kernel/mm/transparent_hugepage/enabled",
		"/sys/fs/cgroup/memory/cgroup.procs", "/proc/irq/default_smp_affinity"} {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_ = f.Close()
		}
		try("write "+path, err)
	}
	for _, path := range []string{"/dev/mem", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/net/tun", "/dev/kmsg", "/proc/kcore", "/proc/kmsg"} {
		_, err := os.Open(path)
		try("open "+path, err)
	}
	try("mode of /dev/null", os.Chmod("/dev/null", 0o600))
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if n := e.Name(); n > "2" || len(n) > 1 {
			to, err := os.Readlink("/proc/self/fd/" + n)
			if err == nil && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "/sys/fs/cgroup/") && // the Go runtime's
				!strings.HasPrefix(to, "anon_inode:[event") {
				fmt.Println("descriptor", n, to)
			}
		}
	}
	if c, err := net.Dial("unix", "@"+os.Args[2]); err == nil {
		_ = c.Close()
		fmt.Println("abstract socket of the host")
	}
	_, _, errno := unix.Syscall(unix.SYS_SHMGET, 0x0CA44E1, 4096, 0)
	if errno == 0 {
		fmt.Println("shared memory of the host")
	}
	fmt.Println("done")
}

func TestAttacksFail(t *testing.T) {
	need(t)
	// Values that the command must not inherit.
	leak, err := os.Open("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	if _, err := unix.FcntlInt(leak.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("carrel-box-test-%d", os.Getpid())
	l, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	shm, _, errno := unix.Syscall(unix.SYS_SHMGET, 0x0CA44E1, 4096, unix.IPC_CREAT|0o666)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer unix.Syscall(unix.SYS_SHMCTL, shm, unix.IPC_RMID, 0)
	out, exit := output(t, helper(t, "attack", name), box.Options{})
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range lines[:len(lines)-1] {
		if strings.HasPrefix(line, "keyring ") { // a new one, not the caller's
			if id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); err == nil && line == fmt.Sprint("keyring ", id) {
				t.Error("the caller's session keyring")
			}
			continue
		}
		if line == "low port of the host" { // in the box's own network that does no harm, if the kernel allows it
			continue
		}
		t.Error("succeeded:", line)
	}
	if exit.Code != 0 || lines[len(lines)-1] != "done" {
		t.Errorf("%+v\n%s", exit, out)
	}
}

func TestRightsAreGone(t *testing.T) {
	out, _ := output(t, shell("grep -E '^(Cap...|NoNewPrivs):' /proc/self/status; ulimit -c; su -c id nobody </dev/null 2>/dev/null && echo su"), box.Options{})
	want := ""
	for _, c := range []string{"Inh", "Prm", "Eff", "Bnd", "Amb"} {
		want += "Cap" + c + ":\t0000000000000000\n"
	}
	if out != want+"NoNewPrivs:\t1\n0\n" && os.Geteuid() == 0 {
		t.Errorf("%s", out)
	}
}

func TestSetuidHasNoEffect(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can make a file of another user
	}
	dir := files(t, "x")
	data, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"id"} {
		path := filepath.Join(dir, id)
		if err := errors.Join(os.WriteFile(path, data, 0o755), os.Chown(path, 1, 1), os.Chmod(path, 0o755|os.ModeSetuid|os.ModeSetgid)); err != nil {
			t.Fatal(err)
		}
	}
	s := plain(dir+"/id", "-u")
	s.Mounts = []box.Mount{{Kind: box.Writable, Source: dir, Target: dir}}
	expect(t, s, "0\n")
}

func TestStageIsOutOfReachOfSignals(t *testing.T) {
	s := plain("/bin/bash", "-c", "trap '' TERM; kill -TERM 1; kill -KILL 1; kill -STOP 1; sleep 0.1; echo on")
	s.Landlock = landlock.Ruleset{ScopeSignals: true}
	if landlock.ABI() < 6 {
		testenv.Need(t, "landlock6", errors.New("Landlock that knows signals"))
	}
	out, exit := output(t, s, box.Options{})
	if !strings.HasSuffix(out, "on\n") || exit.Code != 0 {
		t.Errorf("%q %+v", out, exit)
	}
}

func TestLight(t *testing.T) {
	dir := files(t, "proj/file", "secret/key")
	s := shell("echo new > file; cat file ../secret/key; echo x > ../beside; echo end; grep NoNewPrivs /proc/self/status; ls -l /proc/self/fd | grep -c secret")
	s.Light, s.Dir = true, dir+"/proj"
	s.Seccomp = seccomp.Filter{Deny: seccomp.Dangerous(), Namespaces: true, Network: true}
	s.Landlock = landlock.Ruleset{Files: true, Rules: []landlock.Rule{{Path: "/usr", Access: landlock.ReadExec}, {Path: "/lib", Access: landlock.ReadExec},
		{Path: "/lib64", Access: landlock.ReadExec}, {Path: "/bin", Access: landlock.ReadExec}, {Path: "/etc", Access: landlock.ReadExec}, {Path: "/proc", Access: landlock.ReadOnly},
		{Path: "/dev/null", Access: landlock.WriteFile}, {Path: dir + "/proj", Access: landlock.ReadWrite}}}
	out, exit := output(t, s, box.Options{})
	if !strings.Contains(out, "new\n") || !strings.Contains(out, "end\nNoNewPrivs:\t1\n0\n") || strings.Contains(out, "content of secret") {
		t.Errorf("%q %+v", out, exit)
	}
	if _, err := os.Stat(dir + "/beside"); err == nil {
		t.Error("written outside")
	}
}

func TestBoxInBox(t *testing.T) {
	// Inside, namespaces are closed, and the error names the alternative. A light box works.
	s := helper(t, "nested")
	s.Seccomp = seccomp.Filter{Deny: seccomp.Dangerous(), Namespaces: true, WatchConnect: true}
	out, _ := output(t, s, box.Options{Watch: func(*box.Box, seccomp.Call) seccomp.Answer { return seccomp.Answer{Continue: true} }})
	if !strings.HasPrefix(out, "inside true\nunsupported: this is inside a box") || !strings.HasSuffix(out, "light\n{0 0}\n") {
		t.Errorf("%q", out)
	}
}

func init() { helpers["nested"] = nested }

func nested() {
	fmt.Println("inside", box.Inside())
	_, err := box.Start(context.Background(), plain("/bin/true"), box.Options{})
	if errors.Is(err, carrel.Unsupported) {
		fmt.Println("unsupported:", carrel.HintOf(err))
	} else {
		fmt.Println(err)
	}
	s := plain("/bin/echo", "light")
	s.Light = true
	s.Seccomp = seccomp.Filter{Deny: seccomp.Dangerous(), Namespaces: true, WatchConnect: true}
	b, err := box.Start(context.Background(), s, box.Options{Stdout: os.Stdout, Watch: func(*box.Box, seccomp.Call) seccomp.Answer { return seccomp.Answer{Continue: true} }})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := b.Wait()
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(struct {
		code   int
		signal syscall.Signal
	}{e.Code, e.Signal})
}

func TestCapabilitiesThatAreKept(t *testing.T) {
	s := shell("grep CapEff /proc/self/status")
	s.Capabilities = []string{"CAP_NET_BIND_SERVICE"}
	expect(t, s, "CapEff:\t0000000000000400\n")
}

func TestMapsAndInit(t *testing.T) {
	need(t)
	s := shell("id -u; echo $$; cat /proc/self/uid_map | tr -s ' '")
	s.Init = true
	s.UIDMap = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	s.GIDMap = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	want := fmt.Sprintf("0\n1\n 0 %d 1\n", os.Geteuid())
	expect(t, s, want)
	if os.Geteuid() != 0 {
		return
	}
	s.UIDMap = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 65536}}
	s.GIDMap = s.UIDMap
	s.Capabilities = []string{"CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"}
	s.Args = []string{"/bin/sh", "-c", "id -u; touch /tmp/x; chown 7:7 /tmp/x; stat -c %u /tmp/x"}
	expect(t, s, "0\n7\n")
}

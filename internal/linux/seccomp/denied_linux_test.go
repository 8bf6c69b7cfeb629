package seccomp

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"golang.org/x/sys/unix"
)

// attempt is a call and its expected error; 0 for none.
type attempt struct {
	name  string
	args  [6]uint64
	errno unix.Errno
}

const junk = 0xdeadbeef_00000000 // bits that the kernel ignores

var attempts = []attempt{
	{"clone", [6]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, unix.EPERM},
	{"clone", [6]uint64{junk | unix.CLONE_NEWNS | uint64(unix.SIGCHLD)}, unix.EPERM},
	{"unshare", [6]uint64{unix.CLONE_NEWUSER}, unix.EPERM},
	{"unshare", [6]uint64{unix.CLONE_NEWTIME}, unix.EPERM},
	{"unshare", [6]uint64{unix.CLONE_FS}, 0},
	{"setns", [6]uint64{}, unix.EPERM},
	{"clone3", [6]uint64{}, unix.ENOSYS},
	{"socket", [6]uint64{unix.AF_PACKET, unix.SOCK_DGRAM}, unix.EAFNOSUPPORT},
	{"socket", [6]uint64{junk | unix.AF_PACKET, unix.SOCK_DGRAM}, unix.EAFNOSUPPORT},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_PACKET, 0x300}, unix.EAFNOSUPPORT},
	{"socket", [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EAFNOSUPPORT},
	{"socket", [6]uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, unix.EAFNOSUPPORT},
	{"socket", [6]uint64{unix.AF_BLUETOOTH, unix.SOCK_RAW}, unix.EAFNOSUPPORT},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, unix.EPROTONOSUPPORT},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, junk | unix.NETLINK_GENERIC}, unix.EPROTONOSUPPORT},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE}, 0},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK}, 0},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM}, 0},
	{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, 0},
	{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, 0},
	{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, unix.EACCES},
	{"socket", [6]uint64{junk | unix.AF_UNIX, junk | unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK}, unix.EACCES},
	{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_RAW}, unix.EACCES},
	{"socketpair", [6]uint64{unix.AF_UNIX, unix.SOCK_DGRAM, 0, 1}, unix.EACCES},
	{"socketpair", [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0, 1}, unix.EFAULT}, // by the kernel: allowed
	{"ioctl", [6]uint64{0, 0x5412}, unix.EPERM},
	{"ioctl", [6]uint64{0, junk | 0x5412}, unix.EPERM},
	{"ioctl", [6]uint64{0, 0x541c}, unix.EPERM},
	{"ioctl", [6]uint64{0, 0x5423}, unix.EPERM},
	{"ioctl", [6]uint64{0, unix.TCGETS}, unix.ENOTTY},
	{"personality", [6]uint64{0x0400000}, unix.EPERM}, // READ_IMPLIES_EXEC
	{"personality", [6]uint64{0xffffffff}, 0},
	{"personality", [6]uint64{0x0040000}, 0},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, unix.EPROTONOSUPPORT},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, junk | unix.IPPROTO_SCTP}, unix.EPROTONOSUPPORT},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_SEQPACKET}, unix.EPROTONOSUPPORT},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, 0},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, 0},
	{"sendto", [6]uint64{0, 0, 0, junk | unix.MSG_FASTOPEN}, unix.EOPNOTSUPP},
	{"sendmsg", [6]uint64{0, 0, unix.MSG_FASTOPEN | unix.MSG_NOSIGNAL}, unix.EOPNOTSUPP},
	{"sendmmsg", [6]uint64{0, 0, 0, unix.MSG_FASTOPEN}, unix.EOPNOTSUPP},
	{"sendmsg", [6]uint64{0, 0, unix.MSG_NOSIGNAL}, unix.ENOTSOCK},
	{"openat2", [6]uint64{}, unix.ENOSYS},
}

func init() {
	children["attempts"] = func([]string) {
		for _, name := range dangerous {
			if n, ok := number(name); ok {
				_, _, e := unix.RawSyscall6(uintptr(n), 0, 0, 0, 0, 0, 0)
				if e != unix.EPERM {
					fmt.Printf("%s: %v\n", name, e)
				}
			}
		}
		for _, a := range attempts {
			n, _ := number(a.name)
			_, _, e := unix.RawSyscall6(uintptr(n), uintptr(a.args[0]), uintptr(a.args[1]), uintptr(a.args[2]), uintptr(a.args[3]), 0, 0)
			if e != a.errno {
				fmt.Printf("%s %x: %v, not %v\n", a.name, a.args, e, a.errno)
			}
		}
	}
	children["programs"] = func(args []string) {
		// Execute a program from memory, read, and use an own descriptor.
		text, err := os.ReadFile("/bin/true")
		fmt.Println(err)
		fd, err := unix.MemfdCreate("program", 0)
		fmt.Println(err)
		_, err = unix.Write(fd, text)
		fmt.Println(err)
		cmd := exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd))
		fmt.Println(cmd.Run())
		empty, _ := unix.BytePtrFromString("")
		argv := []*byte{empty, nil}
		_, _, e := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), ptr(empty), ptr(&argv[0]), ptr(&argv[1]), unix.AT_EMPTY_PATH, 0)
		fmt.Println(e)
	}
	children["shell"] = func(args []string) {
		fmt.Println(unix.Exec(args[0], args, os.Environ()))
	}
}

// TestDangerousCallsAreRefused makes each call for real. The handler answers Continue to all of
// them, but none may go on.
func TestDangerousCallsAreRefused(t *testing.T) {
	for _, watch := range []bool{true, false} {
		f := full()
		if !watch {
			f = f.Quiet()
			f.WatchWrites = true // openat2
		}
		c := start(t, f, "attempts")
		var mu sync.Mutex
		told := map[string]unix.Errno{}
		c.serve(t, f, func(c Call) Answer {
			mu.Lock()
			defer mu.Unlock()
			told[c.Name] = c.Denied
			return Answer{Continue: true}
		})
		if out := c.finish(t); out != "" {
			t.Errorf("watch %v: %s", watch, out)
		}
		mu.Lock()
		for _, name := range dangerous {
			if _, ok := number(name); ok && watch && told[name] != unix.EPERM {
				t.Errorf("nobody was told of %s: %v", name, told)
			}
		}
		if !watch && len(told) > 0 {
			t.Errorf("a quiet filter told of %v", told)
		}
		if watch && (told["socket"] != unix.EPROTONOSUPPORT && told["socket"] != unix.EACCES || told["unshare"] == 0 || told["clone3"] != 0) {
			t.Errorf("told %v", told)
		}
		mu.Unlock()
	}
}

// TestProgramsAreNotStopped checks that executing from memory and opening for reading never reach
// the listener.
func TestProgramsAreNotStopped(t *testing.T) {
	f := full()
	c := start(t, f, "programs")
	c.serve(t, f, func(c Call) Answer {
		if name, _ := c.Path(0, 1); c.Name != "openat" || name != "/dev/null" { // os/exec's
			t.Errorf("%s %s", c.Name, name)
		}
		return Answer{Continue: true}
	})
	if out := c.finish(t); out != "<nil>\n<nil>\n<nil>\n<nil>\n" {
		t.Errorf("%s", out)
	}
}

// elf writes a program of a few machine instructions for amd64.
func elf(t *testing.T, code ...byte) string {
	t.Helper()
	b := make([]byte, 120, 200)
	copy(b, "\x7fELF\x02\x01\x01")
	le := func(at int, v uint64, n int) {
		for i := range n {
			b[at+i] = byte(v >> (8 * i))
		}
	}
	le(16, 2, 2)        // executable
	le(18, 62, 2)       // x86-64
	le(20, 1, 4)        //
	le(24, 0x400078, 8) // entry
	le(32, 64, 8)       // program headers
	le(52, 64, 2)       // size of this header
	le(54, 56, 2)       // of a program header
	le(56, 1, 2)        // one
	le(64, 1, 4)        // load
	le(68, 5, 4)        // read, execute
	le(80, 0x400000, 8) // where
	le(88, 0x400000, 8) //
	le(96, uint64(120+len(code)), 8)
	le(104, uint64(120+len(code)), 8)
	le(112, 0x1000, 8)
	name := t.TempDir() + "/program"
	if err := os.WriteFile(name, append(b, code...), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestForeignCalls checks that the calls of other architectures which amd64 understands are ENOSYS.
func TestForeignCalls(t *testing.T) {
	if arch != unix.AUDIT_ARCH_X86_64 {
		testenv.Inapplicable(t, "amd64 alone has two more ways in")
	}
	end := []byte{0xf7, 0xd8, 0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f, 0x05} // neg eax; mov edi, eax; mov eax, 60; syscall
	for name, code := range map[string][]byte{
		"own":  {0xb8, 24, 0, 0, 0, 0x0f, 0x05},     // mov eax, sched_yield; syscall
		"i386": {0xb8, 64, 0, 0, 0, 0xcd, 0x80},     // mov eax, getppid; int 0x80
		"x32":  {0xb8, 110, 0, 0, 0x40, 0x0f, 0x05}, // mov eax, 0x40000000|getppid; syscall
	} {
		c := start(t, full().Quiet(), "shell", elf(t, append(code, end...)...))
		_ = c.Wait()
		want := int(unix.ENOSYS)
		if name == "own" {
			want = 0
		}
		if status := c.ProcessState.ExitCode(); status != want {
			t.Errorf("%s: status %d, want %d %s", name, status, want, c.out.String())
		}
	}
}

// TestNetworkIsClosed checks that Network and Unix allow only pairs of streams.
func TestNetworkIsClosed(t *testing.T) {
	f := Filter{Network: true, Unix: true}
	c := start(t, f, "sockets")
	if out := c.finish(t); strings.TrimSpace(out) != "permission denied permission denied permission denied permission denied permission denied <nil>" {
		t.Errorf("%s", out)
	}
}

func init() {
	children["sockets"] = func([]string) {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_UNIX} {
			_, err := unix.Socket(family, unix.SOCK_STREAM, 0)
			fmt.Print(err, " ")
		}
		_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		fmt.Print(err, " ")
		_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		fmt.Println(err)
	}
}

package simbash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/test/cases"
	"github.com/carrel-dev/carrel/shell/tools"
)

// sealedEnv makes this test binary the child of TestSealed. The child blocks system calls for
// itself and runs a machine.
const sealedEnv = "CARREL_SIMBASH_SEALED"

// deadly are the system calls that end the sealed child: all that make, open, rename, run or reach
// anything on the host.
var deadly = []uintptr{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_MEMFD_CREATE,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_CLONE3,
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT4, unix.SYS_SENDTO, unix.SYS_SENDMSG,
	unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_LINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT, unix.SYS_TRUNCATE, unix.SYS_FTRUNCATE, unix.SYS_UTIMENSAT, unix.SYS_STATFS, unix.SYS_STATX, unix.SYS_FACCESSAT,
	unix.SYS_FACCESSAT2, unix.SYS_READLINKAT, unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT, unix.SYS_GETDENTS64, unix.SYS_GETCWD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_KILL,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_KEYCTL, unix.SYS_ADD_KEY,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SETHOSTNAME, unix.SYS_UNAME,
	unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_CAPSET, unix.SYS_WAITID, unix.SYS_WAIT4, unix.SYS_PIPE2, unix.SYS_DUP3,
}

// seal makes the kernel end this process, for calls by any of its threads, at a deadly call or when
// it makes a process.
func seal(action uint32) error {
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	unless := func(k uint32) unix.SockFilter { // skip the next instruction unless the value is k
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: 1}
	}
	const number, firstArg = 0, 16
	prog := []unix.SockFilter{load(number)}
	for _, n := range append(deadly, deadlyHere...) {
		prog = append(prog, unless(uint32(n)), ret(action))
	}
	prog = append(prog,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		load(firstArg),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_THREAD, Jt: 1},
		ret(unix.SECCOMP_RET_KILL_PROCESS),
		ret(unix.SECCOMP_RET_ALLOW))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	code := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&code))); errno != 0 {
		return errno
	}
	return nil
}

// sealedChild runs one part of the child, and returns its output and its end state.
func sealedChild(t *testing.T, part string) (string, *os.ProcessState) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestSealedChild$", "-test.short="+strconv.FormatBool(testing.Short()), "-test.v", "-test.timeout=10m")
	// With a fixed GOMAXPROCS the runtime does not read the host's CPU quota again.
	cmd.Env = []string{sealedEnv + "=" + part, "TZ=UTC", "GOMAXPROCS=2", "HOME=/nonexistent", "PATH=" + os.Getenv("PATH"), "GODEBUG=updatemaxprocs=0"}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState
}

// TestSealed proves that scripts reach nothing outside. All cases, and a tour of all programs, run
// in a process that the kernel kills when it opens, runs or connects to anything. A control run
// shows that the kernel really does this. With -short, a fifth of the cases run, and all programs.
func TestSealed(t *testing.T) {
	out, state := sealedChild(t, "open")
	if ws, ok := state.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() || ws.Signal() != syscall.SIGSYS {
		t.Fatalf("a child that opens a file ends with %v: %s", state, out)
	}
	out, state = sealedChild(t, "work")
	if !state.Success() || !strings.Contains(out, "sealed: done") {
		t.Fatalf("%v\n%s", state, out[max(len(out)-3000, 0):])
	}
	t.Log(out[strings.Index(out, "sealed: done"):])
}

// TestSealedChild is the child of TestSealed.
func TestSealedChild(t *testing.T) {
	part := os.Getenv(sealedEnv)
	if part == "" {
		testenv.Inapplicable(t, "runs in a process of its own: see TestSealed")
	}
	all, err := cases.ReadAll("testdata")
	if err != nil {
		t.Fatal(err)
	}
	work := func(dir, text string) {
		if _, err := simulated.Run(t.Context(), dir, text); err != nil {
			t.Fatal(err)
		}
	}
	_ = time.Now().Local().String() // reads the time zone
	// Some things are read once per process, so read them before sealing: sqlite seeds its random
	// numbers from /dev/urandom.
	work("/warm/up/work", "echo warm | cat; date; sleep 0.01; sqlite3 f 'select random()'")
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	if part == "trap" { // run by hand, to see the stack of the call
		action = unix.SECCOMP_RET_TRAP
	}
	if err := seal(action); err != nil {
		t.Fatal(err)
	}
	if part == "open" {
		_, err := os.Open("/dev/null")
		t.Fatal("still alive after an open:", err)
	}
	ran, step := 0, 1
	if testing.Short() {
		step = 5
	}
	for i := 0; i < len(all); i += step {
		work(fmt.Sprintf("/sealed/%d/work", ran), all[i].Text)
		ran++
	}
	names := tools.Names()
	for _, name := range names {
		for _, args := range []string{"--help", "", "f", "/etc/passwd x", "-x -y"} {
			work("/sealed/tour/work", "echo data > f; timeout 1 "+name+" "+args+" < f 2>&1 | head -c 1000")
		}
	}
	fmt.Printf("sealed: done, %d cases and %d programs\n", ran, len(names))
}

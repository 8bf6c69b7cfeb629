// Package spawn starts programs as [syscall.ForkExec] does, with fewer system calls.
//
// Inside a sandbox each system call goes to another process. A child of package syscall makes one
// for every signal, to clear the handlers of the runtime. The kernel clears them all when asked to
// (CLONE_CLEAR_SIGHAND, Linux 5.5). The child shares our memory until it becomes the program, so it
// needs no pipe to report an error. Package syscall starts programs that can't be started in this
// way.
//
// The child shares the memory but not the stack: clone3 gives it a stack of its own. The child
// begins in a separate function there, so that nothing in our frames changes while we wait for it.
package spawn

import (
	"io/fs"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/carrel-dev/carrel/internal/guest/oshost/spawn/given"
)

// Attr describes the child before it becomes the program.
type Attr struct {
	Dir string
	Env []string
	// Files are descriptors 0 to 2. They must be closed on exec, like all others.
	Files [3]uintptr
	// TTY makes descriptor 0 the controlling terminal. Every child has its own session.
	TTY bool
	// Credential is the child's user; nil is ours.
	Credential *syscall.Credential
}

// Start starts the program at path. argv includes its name. The error is a [fs.PathError] with the
// Op chdir if the child may not enter Dir.
func Start(path string, argv []string, attr *Attr) (pid int, err error) {
	if !refused.Load() && attr.plain() {
		pid, err = start(path, argv, attr)
		if err != errRefused {
			return pid, err
		}
		refused.Store(true)
	}
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: attr.Dir, Env: attr.Env, Files: attr.Files[:],
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: attr.TTY, Credential: attr.Credential},
	})
}

// refused is set if the kernel, or a filter in front of it, does not know our kind of clone.
var refused atomic.Bool

// errRefused is the error for a refused kind of clone.
const errRefused = syscall.ENOSYS

// plain reports whether the descriptors can be set in any order.
func (a *Attr) plain() bool {
	for _, fd := range a.Files {
		if fd < uintptr(len(a.Files)) {
			return false
		}
	}
	return true
}

// order is everything that the child needs. The parent fills it in, because the child may neither
// allocate nor grow its stack.
type order struct {
	clone  cloneArgs
	path   *byte
	argv   **byte
	envv   **byte
	dir    *byte
	files  [3]uintptr
	tty    bool
	cred   *syscall.Credential
	groups *uint32
	mask   uint64 // of blocked signals: none
	limit  *given.Limit
	// The child's words to us: its error, and the number of the system call that failed.
	failed     syscall.Errno
	failedCall uintptr
}

// cloneArgs is the argument of clone3(2). Fields without a name here stay 0: a descriptor of the
// process, places for its ID, and thread-local storage.
type cloneArgs struct {
	flags, _, _, _, exitSignal, stack, stackSize, _ uint64
}

// Constants that x/sys has and package syscall does not.
const (
	clearHandlers  = 0x100000000
	cloneVM        = 0x100
	cloneVFork     = 0x4000
	sigSetMask     = 2
	signalSetBytes = 8
	rlimitNOFILE   = 7
	exitFailed     = 127 // nobody sees it
	maxErrno       = 4095
)

// childStack is the child's stack. There is one child at a time, under syscall.ForkLock. Only
// functions that can't grow a stack run on it, and the linker limits those to less than 1 KB.
var childStack [4 << 10]byte

const (
	// argumentRoom is the space above the end of the stack for the argument of become.
	argumentRoom = 32
	// stackAlign is the alignment of the end of a stack; arm64 needs it.
	stackAlign = 16
)

// start is Start, but returns errRefused if the kernel refuses.
func start(path string, argv []string, attr *Attr) (int, error) {
	o := &order{files: attr.Files, tty: attr.TTY, cred: attr.Credential}
	o.clone = cloneArgs{flags: clearHandlers | cloneVM | cloneVFork, exitSignal: uint64(syscall.SIGCHLD)}
	var err error
	if o.path, err = syscall.BytePtrFromString(path); err != nil {
		return 0, err
	}
	if attr.Dir != "" {
		if o.dir, err = syscall.BytePtrFromString(attr.Dir); err != nil {
			return 0, err
		}
	}
	argvp, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return 0, err
	}
	envp, err := syscall.SlicePtrFromStrings(attr.Env)
	if err != nil {
		return 0, err
	}
	o.argv, o.envv = &argvp[0], &envp[0]
	if o.cred != nil && len(o.cred.Groups) > 0 {
		o.groups = &o.cred.Groups[0]
	}
	if l := &given.OpenFiles; l.Soft < l.Hard {
		o.limit = l // package syscall has raised ours
	}
	base := uintptr(unsafe.Pointer(&childStack))
	o.clone.stack = uint64(base)
	o.clone.stackSize = uint64((base+unsafe.Sizeof(childStack)-argumentRoom)&^(stackAlign-1) - base)
	syscall.ForkLock.Lock()
	result := clone(o)
	syscall.ForkLock.Unlock()
	if errno := syscall.Errno(-result); errno != 0 && errno <= maxErrno {
		if errno == syscall.EINVAL || errno == syscall.EPERM {
			errno = errRefused // an unknown flag, or a filter that refuses clone3
		}
		return 0, errno
	}
	pid := int(result)
	if o.failed != 0 {
		var status syscall.WaitStatus
		for {
			if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
				break
			}
		}
		if o.failedCall == syscall.SYS_CHDIR {
			return 0, &fs.PathError{Op: "chdir", Path: attr.Dir, Err: o.failed}
		}
		return 0, o.failed
	}
	return pid, nil
}

// clone makes the child and waits until the child has become the program, or has failed. It returns
// the kernel's result: the child's process ID, or a negative error.
//
//go:norace
func clone(o *order) uintptr {
	beforeFork()
	result := cloneOnto(&o.clone, unsafe.Sizeof(o.clone), o)
	afterFork()
	return result
}

// cloneOnto is the system call clone3 with a stack for the child. The child goes on in become;
// cloneOnto returns only in the parent.
func cloneOnto(args *cloneArgs, size uintptr, o *order) (result uintptr)

// become turns the child into the program. It runs on the child's stack and never returns.
//
//lint:ignore U1000 the assembly calls it
//go:nosplit
//go:norace
//go:nocheckptr
func become(o *order) {
	o.call(syscall.SYS_SETSID, 0, 0, 0, 0)
	o.call(syscall.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&o.mask)), 0, signalSetBytes)
	if o.cred != nil {
		if !o.cred.NoSetGroups {
			o.call(syscall.SYS_SETGROUPS, uintptr(len(o.cred.Groups)), uintptr(unsafe.Pointer(o.groups)), 0, 0)
		}
		o.call(syscall.SYS_SETGID, uintptr(o.cred.Gid), 0, 0, 0)
		o.call(syscall.SYS_SETUID, uintptr(o.cred.Uid), 0, 0, 0)
	}
	if o.dir != nil {
		o.call(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(o.dir)), 0, 0, 0)
	}
	for to := range uintptr(len(o.files)) {
		o.call(syscall.SYS_DUP3, o.files[to], to, 0, 0)
	}
	if o.tty {
		o.call(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 1, 0)
	}
	if o.limit != nil {
		o.call(syscall.SYS_PRLIMIT64, 0, rlimitNOFILE, uintptr(unsafe.Pointer(o.limit)), 0)
	}
	o.call(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(o.path)), uintptr(unsafe.Pointer(o.argv)), uintptr(unsafe.Pointer(o.envv)), 0)
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, exitFailed, 0, 0)
	}
}

// call makes a system call in the child, unless an earlier one has failed.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (o *order) call(trap, a1, a2, a3, a4 uintptr) {
	if o.failed == 0 {
		_, _, o.failed = syscall.RawSyscall6(trap, a1, a2, a3, a4, 0, 0)
		o.failedCall = trap
	}
}

// beforeFork blocks all signals, and stops the stack from growing.
//
//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

// afterFork undoes beforeFork, in the parent.
//
//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

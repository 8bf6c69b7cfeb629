// Package spawn starts programs as [syscall.ForkExec] does, with fewer system calls.
//
// Inside a sandbox each system call is a trip to another process, and a child of package
// syscall makes one for every signal there is, to clear the handlers of the runtime. The
// kernel clears them by itself when it is asked to (CLONE_CLEAR_SIGHAND, Linux 5.5). And as the
// child shares our memory until it becomes the program, it needs no pipe to say why it did
// not. What can't be started this way is started by package syscall.
package spawn

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/carrel-dev/carrel/internal/guest/oshost/spawn/given"
)

// Attr says what becomes of the child before it becomes the program.
type Attr struct {
	Dir string
	Env []string
	// Files are descriptors 0 to 2. They must be closed on exec, like all others.
	Files [3]uintptr
	// TTY makes descriptor 0 the controlling terminal. Every child has a session of its own.
	TTY bool
	// Credential is who it runs as; nil is who we are.
	Credential *syscall.Credential
}

// Start starts the program at path. argv includes its name.
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

// refused is set where the kernel, or a filter before it, does not know our kind of clone.
var refused atomic.Bool

// errRefused is the error of a clone that was refused for what it is.
const errRefused = syscall.ENOSYS

// plain reports whether the files can be put into their places in any order.
func (a *Attr) plain() bool {
	for _, fd := range a.Files {
		if fd < uintptr(len(a.Files)) {
			return false
		}
	}
	return true
}

// order is all that the child needs. It is filled in before, because the child may
// neither allocate nor grow its stack.
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
	failed syscall.Errno // the child's word to us
}

// cloneArgs is what clone3(2) takes.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls uint64
}

// What x/sys has names for, and package syscall has not.
const (
	sysClone3      = 435
	clearHandlers  = 0x100000000
	cloneVM        = 0x100
	cloneVFork     = 0x4000
	sigSetMask     = 2
	signalSetBytes = 8
	rlimitNOFILE   = 7
	exitFailed     = 253 // as package syscall has it; nobody sees it
)

// start is Start, or errRefused.
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
		o.limit = l // package syscall has raised it for us
	}
	syscall.ForkLock.Lock()
	pid, errno := vfork(o)
	afterFork()
	syscall.ForkLock.Unlock()
	if errno != 0 {
		if errno == syscall.EINVAL || errno == syscall.EPERM {
			errno = errRefused // a flag that it does not know, or a filter that lets no clone3 pass
		}
		return 0, errno
	}
	if o.failed != 0 {
		var status syscall.WaitStatus
		for {
			if _, err := syscall.Wait4(int(pid), &status, 0, nil); err != syscall.EINTR {
				break
			}
		}
		return 0, o.failed
	}
	return int(pid), nil
}

// vfork makes the child, which runs on in this very frame until it has become the
// program: nothing here may return in it, and in the parent nothing but the result may be
// used. The caller calls afterFork in either case.
//
//go:noinline
//go:norace
//go:nocheckptr
func vfork(o *order) (pid uintptr, errno syscall.Errno) {
	beforeFork()
	pid, errno = rawVfork(sysClone3, uintptr(unsafe.Pointer(&o.clone)), unsafe.Sizeof(o.clone))
	if errno != 0 || pid != 0 {
		return
	}
	_, _, o.failed = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	if o.failed == 0 {
		_, _, o.failed = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&o.mask)), 0, signalSetBytes, 0, 0)
	}
	if o.cred != nil {
		if o.failed == 0 && !o.cred.NoSetGroups {
			_, _, o.failed = syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(o.cred.Groups)), uintptr(unsafe.Pointer(o.groups)), 0)
		}
		if o.failed == 0 {
			_, _, o.failed = syscall.RawSyscall(syscall.SYS_SETGID, uintptr(o.cred.Gid), 0, 0)
		}
		if o.failed == 0 {
			_, _, o.failed = syscall.RawSyscall(syscall.SYS_SETUID, uintptr(o.cred.Uid), 0, 0)
		}
	}
	if o.failed == 0 && o.dir != nil {
		_, _, o.failed = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(o.dir)), 0, 0)
	}
	if o.failed == 0 {
		_, _, o.failed = syscall.RawSyscall(syscall.SYS_DUP3, o.files[0], 0, 0)
	}
	if o.failed == 0 {
		_, _, o.failed = syscall.RawSyscall(syscall.SYS_DUP3, o.files[1], 1, 0)
	}
	if o.failed == 0 {
		_, _, o.failed = syscall.RawSyscall(syscall.SYS_DUP3, o.files[2], 2, 0)
	}
	if o.failed == 0 && o.tty {
		_, _, o.failed = syscall.RawSyscall(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 1)
	}
	if o.failed == 0 && o.limit != nil {
		_, _, o.failed = syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, rlimitNOFILE, uintptr(unsafe.Pointer(o.limit)), 0, 0, 0)
	}
	if o.failed == 0 {
		_, _, o.failed = syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(o.path)), uintptr(unsafe.Pointer(o.argv)), uintptr(unsafe.Pointer(o.envv)))
	}
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, exitFailed, 0, 0)
	}
}

// rawVfork is a system call that returns twice on one stack: it keeps its return address
// where the child, which returns first, can't overwrite it.
//
//go:noescape
func rawVfork(trap, a1, a2 uintptr) (r1 uintptr, errno syscall.Errno)

// beforeFork blocks all signals, and growing of the stack.
//
//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

// afterFork undoes it, in the parent.
//
//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// Package seccomp makes, installs and serves system call filters.
// https://docs.kernel.org/userspace-api/seccomp_filter.html
//
// # The story
//
// A process that has dropped all it does not need calls [Install] with a [Filter] as the last step
// before it executes a program. What Filter denies is answered with an error; what it
// watches is stopped, and the [Listener] that Install returns, handed to another
// process, says what is to become of it: that is how a box knows what was refused, and
// how it lets a program reach one Unix socket and not another.
//
// # Threat
//
// The watched process is hostile and has threads: memory that a Call points to may change
// between the look and the use. So an Answer of Continue is good for what another wall
// refuses anyway (then it is a report), never for what only this look allows. Where the look decides, the
// answer is made here, on copies: an errno, a value, or a descriptor.
package seccomp

import (
	"context"
	"os"
	"syscall"
)

// Deny answers calls with an error.
type Deny struct {
	Calls []string      // names; those that the architecture does not have are skipped
	Errno syscall.Errno // EPERM if 0
	// Watch notifies too, if the filter has a listener: the error stays the answer.
	Watch bool
}

// Filter is what a program may not do. Everything else is allowed. Foreign architectures (32-bit
// and x32 calls on amd64) always end with ENOSYS.
type Filter struct {
	Deny []Deny
	// Namespaces denies clone and unshare with namespace flags, setns; clone3 is ENOSYS, so
	// that libraries fall back to clone, whose flags can be seen.
	Namespaces bool
	// UnixDatagram denies AF_UNIX sockets and pairs other than stream and seqpacket: they could
	// reach a path that connect never sees.
	UnixDatagram bool
	// Unix denies all AF_UNIX sockets (pairs stay).
	Unix bool
	// Sockets allows only these address families; nil allows all. AF_UNIX is judged by the fields above.
	Sockets []int
	// TTY denies the ioctls that type into a terminal (TIOCSTI, TIOCLINUX, TIOCSETD, and the like).
	TTY bool
	// Network closes every socket but AF_UNIX, for boxes without a network namespace.
	Network bool
	// WatchConnect, WatchBind stop connect and bind for the listener.
	WatchConnect, WatchBind bool
	// WatchWrites stops what makes or changes names, or opens for writing: openat with O_WRONLY, O_RDWR, O_CREAT or O_TRUNC,
	// creat, mkdir, mknod, unlink, rmdir, rename, link, symlink, truncate, chmod, chown, setxattr, utimes and their forms.
	// openat2, whose flags can't be seen, is then ENOSYS.
	WatchWrites bool
}

// Dangerous is the list of calls that no box has a use for: io_uring, keyctl, add_key,
// request_key, bpf, perf_event_open, userfaultfd, ptrace, process_vm_readv/writev, mounts old and
// new, pivot_root, chroot, modules, kexec, reboot, swap, quota, acct, clocks, open_by_handle_at, … .
func Dangerous() []Deny { panic("not built") }

// Install compiles f and applies it to the calling thread, which must have no_new_privs, and
// returns its listener, nil if nothing is watched.
func Install(f Filter) (*os.File, error) { panic("not built") }

// Call is a system call that waits for an answer.
type Call struct {
	ID   uint64
	PID  int // of the thread, in the pid namespace of the reader
	Name string
	Args [6]uint64
}

// Answer is what becomes of a Call.
type Answer struct {
	Continue    bool          // the kernel goes on with it, with whatever the memory says by then
	Errno       syscall.Errno // else this error
	Value       int64         // else this result
	File        *os.File      // else a new descriptor for this file (closed by the Listener afterwards)
	CloseOnExec bool          // of File
}

// Listener reads the calls of one filter.
type Listener struct{}

// Listen takes the descriptor of Install, wherever it came from.
func Listen(f *os.File) *Listener { panic("not built") }

// Serve answers calls with handle until the last process with the filter has ended (nil), ctx has, or
// Close. handle is called from several goroutines at once. Calls from sleeping systems are quick: the kernel is asked
// to wake both sides on one processor where it can (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP).
func (l *Listener) Serve(ctx context.Context, handle func(Call) Answer) error { panic("not built") }

// Valid reports whether the call still waits: what was read from its process before this is
// of that process and not of another with the same pid.
func (l *Listener) Valid(c Call) bool { panic("not built") }

// Close ends Serve. Calls that wait get ENOSYS.
func (l *Listener) Close() error { panic("not built") }

// Text reads a NUL-terminated string of at most max bytes from the caller's memory.
func (c Call) Text(addr uint64, max int) (string, error) { panic("not built") }

// Bytes reads n bytes from the caller's memory.
func (c Call) Bytes(addr uint64, n int) ([]byte, error) { panic("not built") }

// Descriptor duplicates the caller's descriptor fd.
func (c Call) Descriptor(fd int) (*os.File, error) { panic("not built") }

// Path is the path that argument arg names, made absolute by the caller's working directory or
// the descriptor in argument dirfd (-1: the working directory), as the caller names it: links are not resolved.
func (c Call) Path(dirfd, arg int) (string, error) { panic("not built") }

// Package seccomp makes, installs and serves system call filters.
// https://docs.kernel.org/userspace-api/seccomp_filter.html
//
// # The story
//
// A process that has dropped all rights it does not need calls [Install] with a [Filter], as the
// last step before it executes a program. A call that the Filter denies returns an error. A call
// that it watches is stopped until the [Listener] answers it. Install returns the listener's
// descriptor, which is handed to another process. So a box learns which calls were refused, and can
// let a program reach one Unix socket and not another.
//
// # Threat
//
// The watched process is hostile and has threads: memory that a Call points to may change between a
// check and its use. So the answer Continue is right only for calls that another wall refuses
// anyway; then the listener only reports them. It is never right for a call that only this check
// allows. Where the check decides, the listener itself gives the result, from copies of the
// arguments: an errno, a value, or a descriptor. A call that the Filter denies stays denied
// whatever the answer, because the Listener reads the Filter too.
package seccomp

import "syscall"

// Deny answers calls with an error.
type Deny struct {
	Calls []string      // names; those that the architecture lacks are skipped
	Errno syscall.Errno // EPERM if 0
	// Watch also notifies the listener, if the filter has one. The answer is still the error.
	Watch bool
}

// Filter lists what a program may not do. Everything else is allowed. Calls of foreign
// architectures (32-bit and x32 calls on amd64) always end with ENOSYS. A call in Deny is denied
// with any arguments. The first entry that names a call counts, before all other fields.
type Filter struct {
	Deny []Deny
	// Watch notifies the listener of calls that the fields up to Network deny, as Deny.Watch does
	// for its calls.
	Watch bool
	// Namespaces denies setns, and clone and unshare with namespace flags. clone3 is ENOSYS, so
	// that libraries fall back to clone, whose flags a filter can see.
	Namespaces bool
	// UnixDatagram denies AF_UNIX sockets and pairs other than stream and seqpacket. Such sockets
	// could reach a path without a connect that the filter sees.
	UnixDatagram bool
	// Unix denies all AF_UNIX sockets, and the pairs that UnixDatagram denies. The other pairs
	// reach no other process.
	Unix bool
	// Sockets allows only these address families; nil allows all, an empty list none. The fields
	// above decide about AF_UNIX. AF_NETLINK means only NETLINK_ROUTE, which lists addresses and
	// routes.
	Sockets []int
	// TTY denies the ioctls that type into a terminal (TIOCSTI, TIOCLINUX, TIOCSETD, and the like).
	TTY bool
	// Personality denies changing the execution domain, except to the values that setarch and
	// debuggers use.
	Personality bool
	// TCP denies connections that Landlock's rules for TCP don't see: stream sockets of other
	// protocols (MPTCP, SCTP, DCCP) and sends that connect (MSG_FASTOPEN). Programs fall back to
	// TCP and to connect.
	TCP bool
	// Setuid denies giving files the setuid bit, with chmod and its variants or when files are
	// made. Outside, such a file would run with the rights of its owner.
	Setuid bool
	// Network closes every socket except AF_UNIX, for boxes without a network namespace.
	Network bool
	// WatchConnect and WatchBind stop connect and bind until the listener answers.
	WatchConnect, WatchBind bool
	// WatchWrites stops calls that make or change names, or open for writing: openat with O_WRONLY,
	// O_RDWR, O_CREAT or O_TRUNC, creat, mkdir, mknod, rename, link, symlink, truncate, chmod,
	// chown and their forms, and unlinkat. It does not stop unlink, rmdir, utimes and setxattr,
	// which make nothing: another wall must refuse them where they are not allowed. openat2 gives
	// ENOSYS then, because its flags can't be seen. Calls on a descriptor alone, like fchmod, are
	// not stopped, and an open for reading never is.
	WatchWrites bool
	// WatchRemoves also stops unlink, rmdir, utimes and utimensat, for a listener that makes such
	// calls itself.
	WatchRemoves bool
}

// Quiet returns f without the parts that need a listener. It denies without a report, and allows
// the calls that f only watches.
func (f Filter) Quiet() Filter {
	f.Watch, f.WatchConnect, f.WatchBind, f.WatchWrites, f.WatchRemoves = false, false, false, false, false
	deny := make([]Deny, len(f.Deny))
	for i, d := range f.Deny {
		d.Watch = false
		deny[i] = d
	}
	f.Deny = deny
	return f
}

// dangerous are calls that no box needs.
var dangerous = []string{
	// Ways around the checks of system calls.
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	// Keys are not bound to a namespace.
	"keyctl", "add_key", "request_key",
	// Into the kernel.
	"bpf", "perf_event_open", "userfaultfd", "init_module", "finit_module", "delete_module", "create_module",
	"query_module", "get_kernel_syms", "kexec_load", "kexec_file_load", "syslog", "nfsservctl", "lookup_dcookie",
	"fanotify_init", "fanotify_mark", "modify_ldt", "iopl", "ioperm", "uselib", "_sysctl", "sysfs", "ustat", "vhangup",
	// Into other processes.
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
	// Around the mounts.
	"mount", "umount2", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount", "open_tree", "open_tree_attr",
	"mount_setattr", "pivot_root", "chroot", "open_by_handle_at",
	// The machine.
	"reboot", "swapon", "swapoff", "quotactl", "quotactl_fd", "acct", "settimeofday", "clock_settime", "clock_adjtime",
	"adjtimex", "sethostname", "setdomainname",
}

// Dangerous lists the calls that no box needs: io_uring, keyctl, add_key, request_key, bpf,
// perf_event_open, userfaultfd, ptrace, process_vm_readv/writev, mounts old and new, pivot_root,
// chroot, modules, kexec, reboot, swap, quota, acct, clocks, open_by_handle_at, … . Each one is
// EPERM, and the listener is notified. The caller may change the result.
func Dangerous() []Deny {
	return []Deny{{Calls: append([]string(nil), dangerous...), Errno: syscall.EPERM, Watch: true}}
}

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
// answer is made here, on copies: an errno, a value, or a descriptor. What the Filter denies
// stays denied whatever the answer, because the Listener reads the Filter too.
package seccomp

import "syscall"

// Deny answers calls with an error.
type Deny struct {
	Calls []string      // names; those that the architecture does not have are skipped
	Errno syscall.Errno // EPERM if 0
	// Watch notifies too, if the filter has a listener: the error stays the answer.
	Watch bool
}

// Filter is what a program may not do. Everything else is allowed. Foreign architectures (32-bit
// and x32 calls on amd64) always end with ENOSYS. A call in Deny is denied whatever its arguments; the
// first entry that names it counts, before all other fields.
type Filter struct {
	Deny []Deny
	// Watch notifies of what the fields up to Network deny, as Deny.Watch does of its calls.
	Watch bool
	// Namespaces denies clone and unshare with namespace flags, setns; clone3 is ENOSYS, so
	// that libraries fall back to clone, whose flags can be seen.
	Namespaces bool
	// UnixDatagram denies AF_UNIX sockets and pairs other than stream and seqpacket: they could
	// reach a path that connect never sees.
	UnixDatagram bool
	// Unix denies all AF_UNIX sockets, and of pairs those that UnixDatagram denies: the other pairs reach nobody else.
	Unix bool
	// Sockets allows only these address families; nil allows all, an empty list none. AF_UNIX is judged by the fields
	// above. AF_NETLINK means NETLINK_ROUTE alone, which lists addresses and routes.
	Sockets []int
	// TTY denies the ioctls that type into a terminal (TIOCSTI, TIOCLINUX, TIOCSETD, and the like).
	TTY bool
	// Personality denies changing the execution domain, but for what setarch and debuggers ask for.
	Personality bool
	// TCP denies what Landlock's rules for TCP don't see: stream sockets of other protocols (MPTCP, SCTP, DCCP) and sends that connect
	// (MSG_FASTOPEN). Programs fall back to TCP and to connect.
	TCP bool
	// Setuid denies giving files the setuid bit, by chmod and its forms or when they are made: they would run with it outside.
	Setuid bool
	// Network closes every socket but AF_UNIX, for boxes without a network namespace.
	Network bool
	// WatchConnect, WatchBind stop connect and bind for the listener.
	WatchConnect, WatchBind bool
	// WatchWrites stops what makes or changes names, or opens for writing: openat with O_WRONLY, O_RDWR, O_CREAT or O_TRUNC,
	// creat, mkdir, mknod, rename, link, symlink, truncate, chmod, chown and their forms, and unlinkat. Not stopped are unlink, rmdir,
	// utimes and setxattr, which make nothing: what refuses them where they are not allowed must be another wall.
	// openat2, whose flags can't be seen, is then ENOSYS. Forms that name a descriptor alone, like fchmod, are not stopped,
	// nor is an open for reading, ever.
	WatchWrites bool
}

// Quiet is f without what needs a listener: what it denies is denied in silence, what it
// watches is allowed.
func (f Filter) Quiet() Filter {
	f.Watch, f.WatchConnect, f.WatchBind, f.WatchWrites = false, false, false, false
	deny := make([]Deny, len(f.Deny))
	for i, d := range f.Deny {
		d.Watch = false
		deny[i] = d
	}
	f.Deny = deny
	return f
}

// dangerous are the calls that no box has a use for.
var dangerous = []string{
	// Ways around what looks at system calls.
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

// Dangerous is the list of calls that no box has a use for: io_uring, keyctl, add_key,
// request_key, bpf, perf_event_open, userfaultfd, ptrace, process_vm_readv/writev, mounts old and
// new, pivot_root, chroot, modules, kexec, reboot, swap, quota, acct, clocks, open_by_handle_at, … .
// Each is EPERM, and told to the listener. The caller may change the result.
func Dangerous() []Deny {
	return []Deny{{Calls: append([]string(nil), dangerous...), Errno: syscall.EPERM, Watch: true}}
}

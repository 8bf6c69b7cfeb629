// Package ns builds walls with what Linux itself has: namespaces, mounts, control
// groups, capabilities, Landlock and a system call filter, on this host's own kernel.
//
// # One sandbox
//
// [Driver.Create] starts the stage, this binary again, in new user, pid, mount, network,
// ipc, uts and cgroup namespaces. The stage makes the sandbox's link (a TAP device whose file it
// hands out), lays the template under a private writable layer, mounts the kernel filesystems with
// what tells of the host or steers it masked, drops its rights and becomes the guest: the first
// process of the sandbox is process 1 of its pid namespace.
//
// # As root, and as an ordinary user
//
// As root each sandbox has 65,536 host ids of its own, which stand for 0–65535 inside: users,
// setuid programs and chown work as on a machine of one's own. The template's EROFS image is mounted,
// seen through these ids. What the sandbox writes goes into a filesystem of
// Limits.DiskMB in one file. All of these mounts are made in a mount namespace that only the sandbox holds: the
// host's own table never shows them, and they end with the last process.
//
// An ordinary user may map one id, its own, and mount no image. So inside everything belongs to root and
// runs as root (who is that user, with no right outside), the template is unpacked once into a
// directory, and nothing bounds the disk. [Driver.Report] says so.
//
// # Threats
//
// The code in the sandbox is hostile and root there. What stops it: it has no capability over the
// host, no way to a namespace of the host, no path to a file outside of its mounts, no device, no
// network but the link; its ids own nothing on the host; the calls that reach deep into the kernel or
// would make new namespaces are filtered. What does not: it shares the kernel with the host and with all
// other sandboxes. A bug in that kernel is a way out. Where that matters take gvisor or microvm.
//
// # Life
//
// Destroy kills process 1 through its pidfd: the kernel then kills all others and reports the death
// when they are gone. The daemon's end of the link is also held by the keeper, so that Recover can adopt the
// sandbox after the daemon died.
//
// # Locks
//
// Driver.mu and Instance.mu guard what stands below them; nothing is called under them. Instance.iceLock is held
// over a freeze, a thaw or a snapshot; Driver.templates.mu while a template is mounted or unpacked.
package ns

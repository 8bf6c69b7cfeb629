// Package ns builds walls with Linux's own means: namespaces, mounts, control groups, capabilities,
// Landlock and a system call filter, on this host's own kernel.
//
// # One sandbox
//
// [Driver.Create] starts the stage (this binary again) in new user, pid, mount, network, ipc, uts
// and cgroup namespaces. The stage makes the sandbox's link, a TAP device whose file it hands out.
// It mounts the template under a private writable layer. It mounts the kernel filesystems and masks
// files that reveal the host or control it. Then it drops its rights and becomes the guest: the
// first process of the sandbox is process 1 of its pid namespace.
//
// # As root, and as an ordinary user
//
// As root each sandbox has 65,536 host ids of its own, which stand for 0–65535 inside. So users,
// setuid programs and chown work as on a machine of one's own. The template's EROFS image is
// mounted with these ids. The sandbox's writes go into a filesystem of Limits.DiskMB in one file.
// All of these mounts are made in a mount namespace that only the sandbox holds. The host's own
// table never shows them, and they end with the last process.
//
// An ordinary user may map only their own id, and can't mount an image. So inside everything
// belongs to root and runs as root. Outside, that root is the user, without any further right. The
// template is unpacked once into a directory, and nothing bounds the disk. [Driver.Report] says so.
//
// # Threats
//
// The code in the sandbox is hostile, and is root inside. These stop it: it has no capability over
// the host, no way to a namespace of the host, no path to a file outside of its mounts, no device,
// and no network but the link. Its ids own nothing on the host. System calls that reach deep into
// the kernel or make new namespaces are filtered. One thing does not stop it: it shares the kernel
// with the host and with all other sandboxes. A bug in that kernel is a way out. If that matters,
// use gvisor or microvm.
//
// # Life
//
// Destroy kills process 1 through its pidfd. The kernel then kills all others and reports the death
// when they are gone. The keeper, too, holds the daemon's end of the link, so that Recover can
// adopt the sandbox after the daemon died.
//
// # Locks
//
// Driver.mu and Instance.mu guard the fields below them; nothing is called under them.
// Instance.iceLock is held during a freeze, a thaw or a snapshot; Driver.templates.mu while a
// template is mounted or unpacked.
package ns

package seccomp

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Values that arguments are compared with. The kernel uses only the low half of each of these
// arguments, and so do we.
const (
	sockType = 0xf // the rest are flags
	writing  = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC
	cloneNew = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
)

// typing are the ioctls that put input into a terminal: TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD, and
// those that change the meaning of a console's keys.
var typing = []uint32{0x5412, 0x541c, 0x541d, 0x5423, 0x4b45, 0x4b47, 0x4b49, 0x4b4b, 0x4bfb, 0x4b4d, 0x4b34, 0x4b35, 0x4b36, 0x4b37, 0x4b3a}

// personalities are the harmless values: the query, Linux, and Linux without random addresses, with
// 32-bit names, and as version 2.6.
var personalities = []uint32{0xffffffff, 0, 0x0040000, 0x0008, 0x0020000, 0x0020008}

// writers are the calls that make a name, or change what one stands for. Those that only remove a
// name of the caller's choice (unlink, rmdir) or set times and extended attributes are not among
// them: programs do that for each file, and a name that is gone does no harm. unlinkat is, so that
// what "rm" was refused is told.
var writers = []string{
	"creat", "mkdir", "mkdirat", "mknod", "mknodat", "unlinkat", "rename", "renameat", "renameat2",
	"link", "linkat", "symlink", "symlinkat", "truncate", "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat",
	"file_setattr",
}

// removers are the calls of WatchRemoves.
var removers = []string{"unlink", "rmdir", "utimes", "utimensat"}

// DefaultSockets are the address families for [Filter].Sockets that programs use. They reach only
// the network of their own namespace.
func DefaultSockets() []int { return []int{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} }

func (d Deny) errno() syscall.Errno {
	if d.Errno == 0 {
		return unix.EPERM
	}
	return d.Errno
}

// number returns the number of a call on this architecture.
func number(name string) (int, bool) {
	i, ok := slices.BinarySearchFunc(byName[:], name, func(n uint16, name string) int {
		switch have := names[n]; {
		case have < name:
			return -1
		case have > name:
			return 1
		}
		return 0
	})
	if !ok {
		return 0, false
	}
	return int(byName[i]), true
}

// verdict is the result for a call: it is allowed, the listener is notified, or the call returns
// errno. The last two can come together.
type verdict struct {
	told  bool
	errno syscall.Errno
}

// reading is the meaning of a Filter, in Go. The listener uses it, and tests compare the kernel's
// program with it.
type reading struct {
	f    Filter
	deny map[int]verdict
}

func read(f Filter) *reading {
	r := &reading{f: f, deny: map[int]verdict{}}
	for _, d := range f.Deny {
		for _, name := range d.Calls {
			if n, ok := number(name); ok {
				if _, before := r.deny[n]; !before {
					r.deny[n] = verdict{told: d.Watch, errno: d.errno()}
				}
			}
		}
	}
	return r
}

// verdict judges a call of this architecture.
func (r *reading) verdict(n int, args [6]uint64) verdict {
	if n < 0 || n >= x32 {
		return verdict{errno: unix.ENOSYS}
	}
	if v, ok := r.deny[n]; ok {
		return v
	}
	if n >= len(names) {
		return verdict{}
	}
	if e := r.denied(names[n], args); e != 0 {
		return verdict{told: r.f.Watch && e != unix.ENOSYS, errno: e}
	}
	return verdict{told: r.watched(names[n], args)}
}

// denied returns the error of a call with these arguments.
func (r *reading) denied(name string, args [6]uint64) syscall.Errno {
	flags := uint32(args[0])
	if r.f.Setuid && setsUID(name, args) {
		return unix.EPERM
	}
	switch {
	case name == "clone" && r.f.Namespaces && flags&cloneNew != 0,
		name == "unshare" && r.f.Namespaces && flags&(cloneNew|unix.CLONE_NEWTIME) != 0,
		name == "setns" && r.f.Namespaces,
		name == "ioctl" && r.f.TTY && slices.Contains(typing, uint32(args[1])),
		name == "personality" && r.f.Personality && !slices.Contains(personalities, flags):
		return unix.EPERM
	case name == "clone3" && r.f.Namespaces, name == "openat2" && r.f.WatchWrites:
		return unix.ENOSYS
	case r.f.TCP && (name == "sendto" || name == "sendmmsg") && args[3]&unix.MSG_FASTOPEN != 0,
		r.f.TCP && name == "sendmsg" && args[2]&unix.MSG_FASTOPEN != 0:
		return unix.EOPNOTSUPP
	case name == "socket", name == "socketpair":
		return r.socket(name == "socketpair", int32(args[0]), int32(args[1])&sockType, int32(args[2]))
	}
	return 0
}

// modes is the index of the argument that is a file's mode, by call.
var modes = map[string]uint32{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}

// setsUID reports whether a call gives a file the setuid bit.
func setsUID(name string, args [6]uint64) bool {
	switch arg, ok := modes[name]; {
	case ok:
		return args[arg]&unix.S_ISUID != 0
	case name == "open":
		return args[1]&unix.O_CREAT != 0 && args[2]&unix.S_ISUID != 0
	case name == "openat":
		return args[2]&unix.O_CREAT != 0 && args[3]&unix.S_ISUID != 0
	}
	return false
}

func (r *reading) socket(pair bool, family, kind, protocol int32) syscall.Errno {
	stream := kind == unix.SOCK_STREAM || kind == unix.SOCK_SEQPACKET
	if family == unix.AF_UNIX {
		if r.f.Unix && !pair || (r.f.Unix || r.f.UnixDatagram) && !stream {
			return unix.EACCES
		}
		return 0
	}
	has := func(f int32) bool { return slices.Contains(r.f.Sockets, int(f)) }
	if r.f.Network {
		return unix.EACCES
	}
	if r.f.Sockets != nil {
		switch {
		case !has(family), family == unix.AF_INET && kind == unix.SOCK_PACKET && !has(unix.AF_PACKET):
			return unix.EAFNOSUPPORT
		case family == unix.AF_NETLINK && protocol != unix.NETLINK_ROUTE:
			return unix.EPROTONOSUPPORT
		}
	}
	inet := family == unix.AF_INET || family == unix.AF_INET6
	if other := protocol != 0 && protocol != unix.IPPROTO_TCP || kind != unix.SOCK_STREAM; r.f.TCP && inet && other && (stream || kind == unix.SOCK_DCCP) {
		return unix.EPROTONOSUPPORT
	}
	return 0
}

// watched reports whether a call that is not denied waits for the listener.
func (r *reading) watched(name string, args [6]uint64) bool {
	switch name {
	case "connect":
		return r.f.WatchConnect
	case "bind":
		return r.f.WatchBind
	case "open":
		return r.f.WatchWrites && args[1]&writing != 0
	case "openat":
		return r.f.WatchWrites && args[2]&writing != 0
	}
	return r.f.WatchWrites && slices.Contains(writers, name) || r.f.WatchRemoves && slices.Contains(removers, name)
}

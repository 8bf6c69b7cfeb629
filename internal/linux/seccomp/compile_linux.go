package seccomp

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	allow  = uint32(unix.SECCOMP_RET_ALLOW)
	notify = uint32(unix.SECCOMP_RET_USER_NOTIF)

	// x32 is the bit of the calls with 32-bit pointers that have the same mark as amd64's calls. No
	// call of arm64 has this bit either.
	x32 = 0x40000000
)

func fail(e syscall.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e)&unix.SECCOMP_RET_DATA }

// compile makes the kernel's program for f. The program finds the call's number by binary search.
// For the few calls whose arguments matter it then checks them. The kernel remembers which numbers
// are allowed without a check of arguments, and runs no filter for them. For that it must
// understand the program: it understands loads of the number, comparisons and masks, so compile
// uses nothing else there.
func compile(f Filter) (code []unix.SockFilter, watches bool) {
	c := compiler{Filter: f, program: program{returns: map[uint32]label{}}}
	c.calls()
	tree := c.tree(c.intervals())
	enosys := c.ret(fail(unix.ENOSYS))
	start := c.jump(unix.BPF_JGE, x32, enosys, tree)
	start = c.load(offNumber, start)
	start = c.jump(unix.BPF_JEQ, arch, start, enosys)
	c.load(offArch, start)
	return c.instructions(), c.watches
}

// compiler holds compile's state.
type compiler struct {
	Filter
	program
	at      [len(names)]leaf
	watches bool
}

// leaf is the result for one number: a verdict, or a place in the program that checks arguments.
type leaf struct {
	verdict uint32 // 0 is allow
	check   label
}

// calls fills at.
func (c *compiler) calls() {
	for _, d := range c.Deny {
		errno := d.errno()
		for _, name := range d.Calls {
			if n, ok := number(name); ok && c.at[n] == (leaf{}) {
				c.at[n].verdict = c.denial(errno, d.Watch)
			}
		}
	}
	c.deniedByArguments()
	if c.WatchConnect {
		c.set("connect", leaf{verdict: c.watch()})
	}
	if c.WatchBind {
		c.set("bind", leaf{verdict: c.watch()})
	}
	if c.WatchWrites {
		c.writes()
	}
	if c.WatchRemoves {
		for _, name := range removers {
			c.set(name, leaf{verdict: c.watch()})
		}
	}
}

func (c *compiler) watch() uint32 {
	c.watches = true
	return notify
}

// denial is the verdict of a denied call. If the call is watched, the listener answers with the
// error.
func (c *compiler) denial(e syscall.Errno, watch bool) uint32 {
	if watch {
		return c.watch()
	}
	return fail(e)
}

// deny ends a check of arguments with a denial.
func (c *compiler) deny(e syscall.Errno) label { return c.ret(c.denial(e, c.Watch)) }

func (c *compiler) set(name string, l leaf) {
	if n, ok := number(name); ok && c.at[n] == (leaf{}) {
		c.at[n] = l
	}
}

func (c *compiler) deniedByArguments() {
	if c.Namespaces {
		// The kernel uses only the low half of the flags.
		c.set("clone", leaf{check: c.arg(0, c.jump(unix.BPF_JSET, cloneNew, c.deny(unix.EPERM), c.ret(allow)))})
		c.set("unshare", leaf{check: c.arg(0, c.jump(unix.BPF_JSET, cloneNew|unix.CLONE_NEWTIME, c.deny(unix.EPERM), c.ret(allow)))})
		c.set("setns", leaf{verdict: c.denial(unix.EPERM, c.Watch)})
		c.set("clone3", leaf{verdict: fail(unix.ENOSYS)})
	}
	if c.TTY {
		c.set("ioctl", leaf{check: c.arg(1, c.oneOf(typing, c.deny(unix.EPERM), c.ret(allow)))})
	}
	if c.Personality {
		c.set("personality", leaf{check: c.arg(0, c.oneOf(personalities, c.ret(allow), c.deny(unix.EPERM)))})
	}
	if c.Setuid {
		c.setuid()
	}
	if c.TCP {
		c.set("sendto", leaf{check: c.fastOpen(3)})
		c.set("sendmmsg", leaf{check: c.fastOpen(3)})
		c.set("sendmsg", leaf{check: c.fastOpen(2)})
	}
	if c.Unix || c.UnixDatagram || c.Network || c.TCP || c.Sockets != nil {
		c.set("socket", leaf{check: c.socket(c.Unix)})
		c.set("socketpair", leaf{check: c.socket(false)})
	}
}

// fastOpen checks the flags of a send.
func (c *compiler) fastOpen(arg uint32) label {
	return c.arg(arg, c.jump(unix.BPF_JSET, unix.MSG_FASTOPEN, c.deny(unix.EOPNOTSUPP), c.ret(allow)))
}

// socket checks the arguments of socket and socketpair.
func (c *compiler) socket(noUnix bool) label {
	unixes := c.ret(allow)
	switch {
	case noUnix:
		unixes = c.deny(unix.EACCES)
	case c.Unix || c.UnixDatagram:
		unixes = c.arg(1, c.and(sockType, c.oneOf([]uint32{unix.SOCK_STREAM, unix.SOCK_SEQPACKET}, c.ret(allow), c.deny(unix.EACCES))))
	}
	return c.arg(0, c.jump(unix.BPF_JEQ, unix.AF_UNIX, unixes, c.families()))
}

// families checks the other address families.
func (c *compiler) families() label {
	if c.Network {
		return c.deny(unix.EACCES)
	}
	if c.Sockets == nil {
		inet := c.inet(true)
		return c.jump(unix.BPF_JEQ, unix.AF_INET, inet, c.jump(unix.BPF_JEQ, unix.AF_INET6, inet, c.ret(allow)))
	}
	packets := slices.Contains(c.Sockets, unix.AF_PACKET)
	next := c.deny(unix.EAFNOSUPPORT)
	for _, family := range c.Sockets {
		yes := c.ret(allow)
		switch family {
		case unix.AF_NETLINK:
			yes = c.arg(2, c.jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, yes, c.deny(unix.EPROTONOSUPPORT)))
		case unix.AF_INET:
			yes = c.inet(packets)
		case unix.AF_INET6:
			yes = c.inet(true)
		}
		next = c.jump(unix.BPF_JEQ, uint32(family), yes, next)
	}
	return next
}

// inet checks the type and protocol of an internet socket.
func (c *compiler) inet(packets bool) label {
	next := c.ret(allow)
	if c.TCP {
		no := c.deny(unix.EPROTONOSUPPORT)
		stream := c.arg(2, c.oneOf([]uint32{0, unix.IPPROTO_TCP}, c.ret(allow), no))
		next = c.oneOf([]uint32{unix.SOCK_SEQPACKET, unix.SOCK_DCCP}, no, next)
		next = c.jump(unix.BPF_JEQ, unix.SOCK_STREAM, stream, next)
	}
	if !packets {
		// The kernel turns this type into a packet socket, for programs of 1999.
		next = c.jump(unix.BPF_JEQ, unix.SOCK_PACKET, c.deny(unix.EAFNOSUPPORT), next)
	}
	return c.arg(1, c.and(sockType, next))
}

// setuid checks the file modes in arguments.
func (c *compiler) setuid() {
	for name, mode := range modes {
		next := c.ret(allow)
		if c.WatchWrites && slices.Contains(writers, name) {
			next = c.ret(c.watch())
		}
		c.set(name, leaf{check: c.mode(mode, next)})
	}
	for name, flags := range map[string]uint32{"open": 1, "openat": 2} {
		next := c.ret(allow)
		if c.WatchWrites {
			next = c.opens(flags)
		}
		c.set(name, leaf{check: c.arg(flags, c.jump(unix.BPF_JSET, unix.O_CREAT, c.mode(flags+1, next), next))})
	}
}

// mode looks at one mode.
func (c *compiler) mode(arg uint32, next label) label {
	return c.arg(arg, c.jump(unix.BPF_JSET, unix.S_ISUID, c.deny(unix.EPERM), next))
}

// opens watches the open calls of WatchWrites.
func (c *compiler) opens(flags uint32) label {
	return c.arg(flags, c.jump(unix.BPF_JSET, writing, c.ret(c.watch()), c.ret(allow)))
}

// writes watches the calls of WatchWrites.
func (c *compiler) writes() {
	for _, name := range writers {
		c.set(name, leaf{verdict: c.watch()})
	}
	c.set("open", leaf{check: c.opens(1)})
	c.set("openat", leaf{check: c.opens(2)})
	c.set("openat2", leaf{verdict: fail(unix.ENOSYS)})
}

// interval is a range of numbers with the same leaf.
type interval struct {
	from uint32
	leaf
}

func (c *compiler) intervals() []interval {
	var all []interval
	for n, l := range c.at {
		if n == 0 || l != all[len(all)-1].leaf {
			all = append(all, interval{uint32(n), l})
		}
	}
	if all[len(all)-1].leaf != (leaf{}) {
		all = append(all, interval{from: uint32(len(c.at))})
	}
	return all
}

// tree finds the interval of the number that is in the accumulator.
func (c *compiler) tree(all []interval) label {
	if len(all) == 1 {
		switch l := all[0].leaf; {
		case l.check != 0:
			return l.check
		case l.verdict != 0:
			return c.ret(l.verdict)
		}
		return c.ret(allow)
	}
	half := len(all) / 2
	high := c.tree(all[half:])
	return c.jump(unix.BPF_JGE, all[half].from, high, c.tree(all[:half]))
}

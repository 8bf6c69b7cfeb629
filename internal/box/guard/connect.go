//go:build linux

package guard

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/refusal"
)

// connect makes every connection in this process. If the kernel went on with the call, it would
// read the address and the descriptor again, and both may have changed by then.
func (g *Guard) connect(c seccomp.Call) seccomp.Answer {
	size := int(int32(c.Args[2]))
	if size < 0 || size > maxAddress {
		return seccomp.Answer{Errno: unix.EINVAL}
	}
	s := &socket{call: c, guard: g}
	var err error
	if s.fd, err = c.Borrow(int(int32(c.Args[0]))); err != nil {
		return failed(err)
	}
	defer unix.Close(s.fd)
	if s.domain, err = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil {
		return failed(err)
	}
	addr, err := c.Bytes(c.Args[1], size) // and so the descriptor, too, is of this very caller
	if err != nil {
		return failed(err)
	}
	switch s.domain {
	case unix.AF_UNIX:
		return g.connectUnix(s, addr)
	case unix.AF_INET, unix.AF_INET6:
		return g.connectInternet(s, addr)
	case unix.AF_NETLINK:
		// Allow only the kernel itself as the peer. This process may have rights that the caller
		// lacks, such as sending to groups.
		if len(addr) < unix.SizeofSockaddrNetlink || family(addr) != unix.AF_NETLINK || !zero(addr[4:unix.SizeofSockaddrNetlink]) {
			return seccomp.Answer{Errno: unix.EPERM}
		}
		return answer(s.connect(addr))
	}
	return refuse
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// answer turns err into the result of a system call.
func answer(err error) seccomp.Answer {
	if err == nil {
		return seccomp.Answer{}
	}
	return failed(err)
}

// failed is the answer after an error. Nothing was decided, so the call must never go on.
func failed(err error) seccomp.Answer {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno == 0 {
		errno = unix.EACCES
	}
	return seccomp.Answer{Errno: errno}
}

// connectUnix decides about a Unix socket.
func (g *Guard) connectUnix(s *socket, addr []byte) seccomp.Answer {
	name, ok := pathname(addr)
	if !ok {
		return g.connectAbstract(s, addr)
	}
	fd, at, err := g.lookUp(s.call, name)
	if err != nil {
		return failed(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		return failed(err)
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return seccomp.Answer{Errno: unix.ECONNREFUSED}
	case st.Nlink == 0:
		return seccomp.Answer{Errno: unix.ENOENT}
	}
	switch g.reach(s.call, at, fd) {
	case foreign:
		return g.refuseSocket(s.call, at)
	case stale:
		return seccomp.Answer{Errno: unix.ECONNREFUSED}
	}
	return answer(s.asCaller(&st, func() error { return s.connect(unixAddress(self(fd))) }))
}

// lookUp opens the file of a socket and returns its path. Inside the box, another directory may lie
// where the rules name a socket without a pattern. So lookUp opens such a socket outside of the
// box, by the name in the rules and not by the caller's name.
func (g *Guard) lookUp(c seccomp.Call, name string) (fd int, at string, err error) {
	fd, err = g.find(c, -1, name, 0)
	if err == nil {
		if at, err = readlink(self(fd)); err != nil {
			_ = unix.Close(fd)
		}
		return fd, at, err
	}
	if err != unix.ENOENT {
		return -1, "", err
	}
	at = name
	if p, err := g.locate(c, -1, name); err == nil {
		at = p.full()
		p.close()
	}
	for _, allowed := range g.rules.Sockets {
		if allowed == at {
			fd, err := openat2(unix.AT_FDCWD, allowed, 0, unix.RESOLVE_NO_SYMLINKS)
			return fd, at, err
		}
	}
	if st, err := os.Lstat(at); err == nil && st.Mode()&os.ModeSocket != 0 {
		g.refuseSocket(c, at) // report it, because it exists outside
	}
	return -1, "", err
}

// refuseSocket refuses and reports.
func (g *Guard) refuseSocket(c seccomp.Call, at string) seccomp.Answer {
	g.add(c, refusal.Refusal{
		Kind: refusal.Connect, What: at, Rule: "built-in: sockets of this machine", Certain: true,
		Reason: "what listens there is outside of the box and would act for it", Allow: "--socket " + quote(at),
	})
	return refuse
}

// whose tells who made a Unix socket.
type whose uint8

const (
	foreign whose = iota // somebody outside
	stale                // perhaps the box, but no process in it listens there
	ours                 // the box; or the rules allow the socket
)

// reach decides about a Unix socket by its resolved path, and by who made it.
func (g *Guard) reach(c seccomp.Call, at string, fd int) whose {
	for _, allowed := range g.rules.Sockets {
		if allowed == "*" || matchPath(allowed, at) {
			return ours
		}
	}
	for dir := at; ; dir = parent(dir) {
		if p := g.paths[dir]; p != nil && !(g.own[dir] && p.Writable) {
			if !p.Writable {
				return foreign
			}
			return g.madeInside(c, fd)
		}
		if g.own[dir] {
			return ours
		}
		if dir == "/" {
			return foreign
		}
	}
}

// matchPath compares a path with a pattern. Both must have the same number of elements.
func matchPath(pattern, full string) bool {
	for {
		p, patternRest, more1 := strings.Cut(pattern, "/")
		f, fullRest, more2 := strings.Cut(full, "/")
		if more1 != more2 || p != f && !match(p, f) {
			return false
		}
		if !more1 {
			return true
		}
		pattern, full = patternRest, fullRest
	}
}

// connectAbstract connects to a name that is no path. Such names belong to a network namespace.
// They lead out only if the box has no network namespace of its own.
func (g *Guard) connectAbstract(s *socket, addr []byte) seccomp.Answer {
	shared, known := g.sharesNetwork(s.call)
	if len(addr) > 2 && family(addr) == unix.AF_UNIX && (shared || !known) && !g.allSockets() {
		g.add(s.call, refusal.Refusal{
			Kind: refusal.Connect, What: "@" + string(addr[3:]), Rule: "built-in: sockets of this machine", Certain: true,
			Reason: "the box has no network of its own, and so no names of its own",
		})
		return seccomp.Answer{Errno: unix.EPERM} // as Landlock's scope answers
	}
	if !s.ofCaller() {
		return refuse
	}
	return answer(s.asCaller(nil, func() error { return s.connect(addr) }))
}

func (g *Guard) allSockets() bool {
	for _, s := range g.rules.Sockets {
		if s == "*" {
			return true
		}
	}
	return false
}

// connectInternet makes the connection, and reports a refusal by a closed network.
func (g *Guard) connectInternet(s *socket, addr []byte) seccomp.Answer {
	if !s.ofCaller() {
		return refuse
	}
	err := s.connect(addr)
	if g.rules.Closed == "" || err == nil {
		return answer(err)
	}
	to, ok := internet(addr)
	switch err {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EACCES, unix.EPERM, unix.EADDRNOTAVAIL:
	default:
		ok = false
	}
	if ok && !to.Addr().IsLoopback() && !to.Addr().IsUnspecified() {
		kind, protocol := unix.SOCK_STREAM, "tcp"
		if t, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil && t == unix.SOCK_DGRAM {
			kind, protocol = t, "udp"
		}
		g.add(s.call, refusal.Refusal{
			Kind: refusal.Connect, What: to.String(), Operation: protocol, Rule: g.rules.Closed, Certain: true,
			Reason: "nothing outside may be reached", Allow: "--allow " + to.Addr().String(),
			Minor: kind == unix.SOCK_DGRAM, // programs do this to learn their own address and to sort addresses
		})
	}
	return answer(err)
}

// bind answers calls of bind. If the kernel goes on with another address than the one checked here,
// nothing is lost: ports belong to the box's own network, and a file that appears at a protected
// name is moved away.
func (g *Guard) bind(c seccomp.Call) seccomp.Answer {
	size := int(int32(c.Args[2]))
	if size < 2 || size > maxAddress {
		return goOn
	}
	addr, err := c.Bytes(c.Args[1], size)
	if err != nil {
		return goOn
	}
	if name, ok := pathname(addr); ok {
		return g.bindPath(c, name)
	}
	if !g.rules.NoBind {
		return goOn
	}
	f, err := c.Descriptor(int(int32(c.Args[0])))
	if err != nil {
		return failed(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_INET && domain != unix.AF_INET6 {
		return goOn
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	at, ok := internet(addr)
	if err == nil && kind == unix.SOCK_DGRAM && ok && at.Port() == 0 {
		return goOn // for sending, not for listening
	}
	g.add(c, refusal.Refusal{
		Kind: refusal.Bind, What: at.String(), Rule: "--no-bind", Certain: true,
		Reason: "no ports may be listened on", Allow: "running without --no-bind",
	})
	return refuse
}

// bindPath answers a bind that makes a Unix socket's file.
func (g *Guard) bindPath(c seccomp.Call, name string) seccomp.Answer {
	if g.isPlain(c, -1, name) {
		return goOn
	}
	p, err := g.locate(c, -1, name)
	if err != nil {
		return g.unresolved(c, name, err)
	}
	defer p.close()
	if _, exists := p.stat(); exists {
		return goOn
	}
	full := p.full()
	if r, by := g.protects(full, g.wasRepository(c)); r != unrelated {
		return g.protected(c, full, by[0])
	}
	if !g.writable(full) {
		g.unwritable(c, p, makes, false)
	}
	return goOn
}

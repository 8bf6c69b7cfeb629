//go:build linux

package guard

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// alike holds facts about one process of a sealed box that are true for all its processes (see
// [Rules].Sealed). They are looked up once, because each look-up takes longer than a connection.
type alike struct {
	mu      sync.Mutex
	network *bool // whether they share this process's network namespace
	user    *user

	cookie atomic.Uint64 // the kernel's number of their network namespace, which is never reused; 0 if not known
}

// sharesNetwork reports whether the caller has this process's network namespace. known is false if
// the caller has ended since its call. Then nothing may be allowed, because other processes may
// have the caller's socket.
func (g *Guard) sharesNetwork(c seccomp.Call) (shared, known bool) {
	a := &g.alike
	if g.rules.Sealed {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.network != nil {
			return *a.network, true
		}
	}
	ours, err1 := readlink("/proc/self/ns/net")
	theirs, err2 := readlink(process(c, "ns/net"))
	if err1 != nil || err2 != nil || !c.Waits() {
		return false, false
	}
	shared = ours == theirs
	if g.rules.Sealed {
		a.network = &shared
	}
	return shared, true
}

// credentials returns the caller's user and groups, for a process that is root.
func (g *Guard) credentials(c seccomp.Call) (*user, error) {
	a := &g.alike
	if g.rules.Sealed {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.user != nil {
			return a.user, nil
		}
	}
	u, err := credentials(c.PID)
	if err != nil {
		return nil, err
	}
	if !c.Waits() {
		return nil, seccomp.ErrGone
	}
	if g.rules.Sealed {
		a.user = u
	}
	return u, nil
}

const (
	// siocgskns asks for the network namespace of a socket. The asking process needs CAP_NET_ADMIN
	// over that namespace.
	siocgskns = 0x894c
	// netnsCookie asks for the number of a socket's network namespace.
	netnsCookie = 71
)

// ofCaller reports whether the socket belongs to its caller's network namespace. A socket that a
// command was given, for example as its standard input, may belong to this machine's namespace.
// Disconnected, it could reach addresses that the box must not reach.
func (s *socket) ofCaller() bool {
	g := s.guard
	switch shared, known := g.sharesNetwork(s.call); {
	case !known:
		return false
	case shared:
		return true // there is no wall
	}
	cookie, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, netnsCookie)
	if err == nil && cookie != 0 && cookie == g.alike.cookie.Load() {
		return true
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), siocgskns, 0)
	if errno != 0 {
		return false
	}
	defer unix.Close(int(fd))
	var socket, caller unix.Stat_t
	same := unix.Fstat(int(fd), &socket) == nil && unix.Stat(process(s.call, "ns/net"), &caller) == nil &&
		identity(&socket) == identity(&caller) && s.call.Waits()
	if same && err == nil && g.rules.Sealed {
		g.alike.cookie.Store(cookie)
	}
	return same
}

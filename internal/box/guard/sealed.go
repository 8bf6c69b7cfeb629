//go:build linux

package guard

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// alike is what was found out about one process of a sealed box and holds for all of them, see
// [Rules].Sealed. It is looked up once, where each of the look-ups takes longer than a connection.
type alike struct {
	mu      sync.Mutex
	network *bool // whether they have the network namespace of this process
	user    *user

	cookie atomic.Uint64 // the kernel's number of their network namespace, which is never given twice; 0 if not known
}

// sharesNetwork reports whether the caller has the network namespace of this process. It is not
// known of a caller that has ended meanwhile: nothing may follow from that, for others may have its
// socket.
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

// credentials are the caller's, for a process that is root.
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
	// siocgskns asks for the network namespace of a socket, of whoever has CAP_NET_ADMIN over it.
	siocgskns = 0x894c
	// netnsCookie asks for its number.
	netnsCookie = 71
)

// ofCaller reports whether the socket belongs to the network namespace of its caller. One that a
// command was given, as its standard input for instance, may belong to this machine's: it can be
// disconnected and would then reach what the box must not.
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

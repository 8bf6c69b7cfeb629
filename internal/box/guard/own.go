//go:build linux

package guard

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// madeInside says who made a socket's file in a directory that the box shares with this machine. The box's own is
// younger than the guard, and a socket that is bound to it belongs to the box's network namespace.
func (g *Guard) madeInside(c seccomp.Call, fd int) whose {
	birth, young := g.birth(fd)
	if !young {
		return foreign
	}
	switch shared, known := g.sharesNetwork(c); {
	case !known: // the caller has ended: somebody else may have its socket, but nobody can say what it is
		return foreign
	case shared: // the age is all there is to tell by
		return ours
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return foreign
	}
	// An inode's number is used again, but not with the same time.
	file := socketFile{identity(&st), birth}
	if _, known := g.sockets.Load(file); known {
		return ours
	}
	if !boundIn(c, file.inode) {
		return stale
	}
	if g.known.Add(1) <= maxKnown {
		g.sockets.Store(file, true)
	}
	return ours
}

// socketFile is a file that a socket of the box was seen bound to.
type socketFile struct {
	inode
	birth unix.StatxTimestamp
}

// maxKnown bounds how many are remembered.
const maxKnown = 1000

// boundIn looks for a socket of the caller's network namespace that is bound to a file. The kernel's list has
// socket numbers and names as they were given, which say little; so the sockets are borrowed from those who have them,
// and the kernel is asked for the file that each is bound to.
func boundIn(c seccomp.Call, file inode) bool {
	listening := map[string]bool{}
	list, err := os.ReadFile(process(c, "net/unix"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(list)) {
		// Num RefCount Protocol Flags Type St Inode Path
		if f := strings.Fields(line); len(f) >= 8 && f[3] == "00010000" && f[7][0] != '@' {
			listening["socket:["+f[6]+"]"] = true
		}
	}
	if len(listening) == 0 {
		return false
	}
	theirs, err := readlink(process(c, "ns/net"))
	if err != nil {
		return false
	}
	for _, pid := range processes() {
		if ns, err := readlink("/proc/" + pid + "/ns/net"); err != nil || ns != theirs {
			continue
		}
		if has(pid, listening, file) {
			return true
		}
	}
	return false
}

// processes are the numbers in /proc.
func processes() []string {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var out []string
	for _, n := range names {
		if n[0] >= '1' && n[0] <= '9' {
			out = append(out, n)
		}
	}
	return out
}

// has reports whether a process has one of the sockets, bound to the file.
func has(pid string, sockets map[string]bool, file inode) bool {
	dir, err := os.Open("/proc/" + pid + "/fd")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		to, err := readlink("/proc/" + pid + "/fd/" + name)
		if err != nil || !sockets[to] {
			continue
		}
		if got, ok := boundTo(pid, name); ok && got == file {
			return true
		}
	}
	return false
}

// siocunixfile asks for a descriptor of the file that a Unix socket is bound to, of whoever has CAP_NET_ADMIN over
// its network namespace: the owner of the user namespace that it was made in has.
const siocunixfile = 0x89e0

// boundTo is the file that a descriptor of a process is bound to.
func boundTo(pid, name string) (inode, bool) {
	p, err1 := strconv.Atoi(pid)
	n, err2 := strconv.Atoi(name)
	if err1 != nil || err2 != nil {
		return inode{}, false
	}
	pidfd, err := unix.PidfdOpen(p, 0)
	if err != nil {
		return inode{}, false
	}
	defer unix.Close(pidfd)
	s, err := unix.PidfdGetfd(pidfd, n, 0)
	if err != nil {
		return inode{}, false
	}
	defer unix.Close(s)
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), siocunixfile, 0)
	if errno != 0 {
		return inode{}, false
	}
	defer unix.Close(int(fd))
	var st unix.Stat_t
	if unix.Fstat(int(fd), &st) != nil {
		return inode{}, false
	}
	return identity(&st), true
}

//go:build linux

package guard

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// madeInside tells who made a socket's file in a directory that the box shares with this machine.
// The box made it if the file is younger than the guard, and a socket bound to it belongs to the
// box's network namespace.
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
	// An inode's number may be reused, but with another birth time.
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

// socketFile identifies a file to which a socket of the box was bound.
type socketFile struct {
	inode
	birth unix.StatxTimestamp
}

// maxKnown bounds the number of remembered files.
const maxKnown = 1000

// boundIn looks for a socket of the caller's network namespace that is bound to a file. The
// kernel's list has only socket numbers and names as the programs gave them, which is not enough.
// So boundIn duplicates the sockets from the processes that hold them, and asks the kernel for the
// file of each.
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

// processes lists the pids in /proc.
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

// has reports whether a process holds one of the sockets and that socket is bound to the file.
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

// siocunixfile requests a descriptor of the file to which a Unix socket is bound. The caller needs
// CAP_NET_ADMIN over the socket's network namespace. The owner of the user namespace that made that
// namespace has it.
const siocunixfile = 0x89e0

// boundTo returns the file to which a process's socket is bound. name is the number of the socket's
// descriptor.
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

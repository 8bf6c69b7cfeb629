//go:build linux

package guard

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// place is a name in a directory, as the box's processes see it. The directory is held open, so it
// stays the same whatever is renamed.
type place struct {
	fd   int    // of the directory, O_PATH
	dir  string // its path, links resolved
	base string
}

func (p *place) close() { _ = unix.Close(p.fd) }

// full is the name's path.
func (p *place) full() string { return join(p.dir, p.base) }

// stat returns the status of the name itself. It does not follow a link.
func (p *place) stat() (st unix.Stat_t, exists bool) {
	err := unix.Fstatat(p.fd, p.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err == nil
}

// beneath and scoped are the two ways to resolve a path: below a directory without leaving it, and
// within a root. Neither follows the links of /proc, which lead out of any root.
const (
	beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
	scoped  = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
)

func openat2(dir int, name string, flags, resolve uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
		if err != unix.EAGAIN && err != unix.EINTR { // EAGAIN: a rename happened during the call
			return fd, err
		}
	}
}

// process returns the path of a file in the caller's /proc directory.
func process(c seccomp.Call, name string) string { return "/proc/" + strconv.Itoa(c.PID) + "/" + name }

// self returns a path of a descriptor of this process.
func self(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// rootOf opens the box's root.
func (g *Guard) rootOf(c seccomp.Call) (fd int, done func(), err error) {
	if f := g.root(); f != nil {
		return int(f.Fd()), func() {}, nil
	}
	fd, err = unix.Open(process(c, "root"), unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	return fd, func() { _ = unix.Close(fd) }, err
}

// begin returns the start of a name's resolution and the rest of the name. The start is a directory
// of the caller, or "" for its root.
func begin(c seccomp.Call, dirArg int, name string) (base, rest string) {
	if !strings.HasPrefix(name, "/") {
		if dirArg >= 0 {
			if fd := int32(c.Args[dirArg]); fd != unix.AT_FDCWD {
				return process(c, "fd/"+strconv.Itoa(int(fd))), name
			}
		}
		return process(c, "cwd"), name
	}
	// These names go through the caller's own descriptors. Programs use them for long paths.
	for _, prefix := range []string{"/proc/self/", "/proc/thread-self/", "/dev/fd/"} {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if prefix == "/dev/fd/" {
			rest = "fd/" + rest
		}
		first, rest, _ := strings.Cut(rest, "/")
		if first == "fd" {
			var n string
			n, rest, _ = strings.Cut(rest, "/")
			if _, err := strconv.ParseUint(n, 10, 31); err != nil {
				break
			}
			first = "fd/" + n
		} else if first != "cwd" && first != "root" {
			break
		}
		return process(c, first), rest
	}
	return "", name
}

// find opens a name with O_PATH. It finds the same file as the caller would.
func (g *Guard) find(c seccomp.Call, dirArg int, name string, flags uint64) (int, error) {
	base, rest := begin(c, dirArg, name)
	if base != "" {
		if rest == "" {
			return unix.Open(base, int(flags)|unix.O_PATH|unix.O_CLOEXEC, 0)
		}
		dir, err := unix.Open(base, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
		if err != nil {
			return -1, err
		}
		defer unix.Close(dir)
		fd, err := openat2(dir, rest, flags, beneath)
		if err != unix.EXDEV {
			return fd, err
		}
		// The name leaves the directory. So resolve it by its path, from the root.
		at, err := os.Readlink(self(dir))
		if err != nil {
			return -1, err
		}
		rest = at + "/" + rest
	}
	root, done, err := g.rootOf(c)
	if err != nil {
		return -1, err
	}
	defer done()
	return openat2(root, rest, flags, scoped)
}

// locate resolves a name except for its last element.
func (g *Guard) locate(c seccomp.Call, dirArg int, name string) (*place, error) {
	base := last(name)
	if base == "" || base == "." || base == ".." {
		return nil, unix.EINVAL
	}
	dir := strings.TrimRight(name, "/")
	dir = dir[:len(dir)-len(base)]
	var fd int
	var err error
	switch {
	case dir != "":
		fd, err = g.find(c, dirArg, dir, unix.O_DIRECTORY)
	default:
		from, _ := begin(c, dirArg, "")
		fd, err = unix.Open(from, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, err
	}
	at, err := os.Readlink(self(fd))
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &place{fd: fd, dir: at, base: base}, nil
}

// readlink reads a link of /proc.
func readlink(name string) (string, error) {
	var short [256]byte // clearing a whole page takes longer than most of the rest
	n, err := unix.Readlink(name, short[:])
	if err != nil {
		return "", err
	}
	if n < len(short) {
		return string(short[:n]), nil
	}
	var buf [unix.PathMax]byte
	if n, err = unix.Readlink(name, buf[:]); err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// readlink reads the link at the place.
func (p *place) readlink() (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(p.fd, p.base, buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// resolve are the flags with which every path below a tree is resolved: never out of the tree, over
// no link, into no other mount.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// tree is a directory and everything below it.
type tree struct {
	name string
	root *os.File
	// private trees belong to this user alone. If the program inside removed a read permission, it
	// is restored while the tree is open.
	private bool
	locked  []locked
}

// locked is a path whose permissions were widened.
type locked struct {
	path string
	mode uint32
}

// node is the status of a path.
type node struct {
	unix.Stat_t
}

// openTree opens a tree. Links in dir itself are followed; the caller is responsible for them.
func openTree(dir string, private bool) (*tree, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return &tree{name: dir, root: os.NewFile(uintptr(fd), dir), private: private}, nil
}

// Close restores the original permissions of paths.
func (t *tree) Close() error {
	for _, l := range slices.Backward(t.locked) {
		_ = t.chmod(l.path, l.mode)
	}
	t.locked = nil
	return t.root.Close()
}

// open opens a path with the flags of open(2).
func (t *tree) open(p string, flags uint64) (int, error) {
	for {
		fd, err := t.openOnce(p, flags)
		if err == nil || !t.private || !errors.Is(err, unix.EACCES) || !t.unlock(p, flags) {
			return fd, err
		}
	}
}

// openOnce opens a path without changing permissions.
func (t *tree) openOnce(p string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: resolve}
	for {
		fd, err := unix.Openat2(int(t.root.Fd()), p, &how)
		if err == unix.EAGAIN || err == unix.EINTR { // a rename happened during the walk
			continue
		}
		if err != nil {
			return -1, &fs.PathError{Op: "open", Path: path.Join(t.name, p), Err: err}
		}
		return fd, nil
	}
}

// unlock finds the first directory or file on the way to p that its owner may not open, and widens
// its permissions.
func (t *tree) unlock(p string, flags uint64) bool {
	at := "."
	for _, name := range append([]string{"."}, strings.Split(p, "/")...) {
		at = path.Join(at, name)
		fd, err := t.openOnce(at, unix.O_PATH)
		if err != nil {
			return false
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		_ = unix.Close(fd)
		if err != nil {
			return false
		}
		want := st.Mode | 0o400
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			want = st.Mode | 0o700
		} else if flags&unix.O_PATH != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if want != st.Mode {
			if t.chmod(at, want) != nil {
				return false
			}
			t.locked = append(t.locked, locked{at, st.Mode})
			return true
		}
	}
	return false
}

// chmod sets the permissions of a file or directory. It must not be a link.
func (t *tree) chmod(p string, mode uint32) error {
	fd, err := t.openOnce(p, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return chmodFD(fd, mode)
}

// chmodFD sets the permissions of an O_PATH descriptor's file. Kernels before 6.6 need /proc for
// it.
func chmodFD(fd int, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	err := unix.Fchmodat(fd, "", mode&0o7777, unix.AT_EMPTY_PATH)
	if err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.EINVAL || err == unix.ENOENT {
		err = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode&0o7777)
	}
	return err
}

// stat returns the status of a path. It is nil if nothing is there, or if an inner part of the path
// is no directory.
func (t *tree) stat(p string) (*node, error) {
	fd, err := t.open(p, unix.O_PATH)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer unix.Close(fd)
	n := &node{}
	if err := unix.Fstat(fd, &n.Stat_t); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path.Join(t.name, p), Err: err}
	}
	for _, l := range t.locked {
		if l.path == p {
			n.Mode = l.mode
		}
	}
	return n, nil
}

// dir opens a directory for calls that take a descriptor.
func (t *tree) dir(p string) (int, error) { return t.open(p, unix.O_PATH|unix.O_DIRECTORY) }

// list returns the names in a directory, sorted.
func (t *tree) list(p string) ([]string, error) {
	fd, err := t.open(p, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path.Join(t.name, p))
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// file opens a regular file for reading. It refuses all other types.
func (t *tree) file(p string) (*os.File, error) {
	fd, err := t.open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path.Join(t.name, p))
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = f.Close()
		return nil, fmt.Errorf("%s is no regular file any more", path.Join(t.name, p))
	}
	return f, nil
}

// link reads a symbolic link.
func (t *tree) link(p string) (string, error) {
	fd, err := t.open(p, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: path.Join(t.name, p), Err: err}
	}
	return string(buf[:n]), nil
}

// attribute reads an overlay attribute of a file or directory, under either of its two names. ""
// means none.
func (t *tree) attribute(p, name string, dir bool) (string, error) {
	flags := uint64(unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY)
	if dir {
		flags |= unix.O_DIRECTORY
	}
	fd, err := t.open(p, flags)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return attributeFD(fd, name)
}

// attributeFD is attribute for an open file.
func attributeFD(fd int, name string) (string, error) {
	buf := make([]byte, 512)
	for _, prefix := range []string{"user.overlay.", "trusted.overlay."} {
		n, err := unix.Fgetxattr(fd, prefix+name, buf)
		switch err {
		case nil:
			if n == 0 {
				return "y", nil // only the name counts
			}
			return string(buf[:n]), nil
		case unix.ENODATA, unix.EOPNOTSUPP, unix.EPERM:
		case unix.ERANGE:
			return "too long", nil
		default:
			return "", err
		}
	}
	return "", nil
}

// typ is the file type, as in stat(2).
func (n *node) typ() uint32 {
	if n == nil {
		return 0
	}
	return n.Mode & unix.S_IFMT
}

func (n *node) isDir() bool     { return n.typ() == unix.S_IFDIR }
func (n *node) isRegular() bool { return n.typ() == unix.S_IFREG }
func (n *node) isLink() bool    { return n.typ() == unix.S_IFLNK }

// special names the type of devices, pipes and sockets, which are never made.
func (n *node) special() string {
	switch n.typ() {
	case unix.S_IFIFO:
		return "a named pipe"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	}
	return ""
}

// fileMode converts a mode to Go's form.
func fileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	for _, b := range []struct {
		bit  uint32
		mode fs.FileMode
	}{{unix.S_ISUID, fs.ModeSetuid}, {unix.S_ISGID, fs.ModeSetgid}, {unix.S_ISVTX, fs.ModeSticky}} {
		if mode&b.bit != 0 {
			m |= b.mode
		}
	}
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	case unix.S_IFBLK:
		m |= fs.ModeDevice
	case unix.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	}
	return m
}

// newMode is the mode of upper in the place of lower (nil if there was nothing). Setuid and setgid
// bits stay only if lower had them.
func newMode(upper, lower *node) uint32 {
	mode := upper.Mode
	if lower.typ() != upper.typ() {
		return mode &^ (unix.S_ISUID | unix.S_ISGID)
	}
	return mode&^(unix.S_ISUID|unix.S_ISGID) | mode&lower.Mode&(unix.S_ISUID|unix.S_ISGID)
}

// changed is the time when the status of a file last changed.
func (n *node) changed() time.Time { return time.Unix(n.Ctim.Unix()) }

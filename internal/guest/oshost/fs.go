package oshost

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

var _ agent.Filesystem = (*System)(nil)

// Stat describes a file, or the target of a symbolic link.
func (*System) Stat(name string) (agent.Entry, error) {
	info, err := os.Stat(name)
	if err != nil {
		return agent.Entry{}, err
	}
	return entryOf(name, info), nil
}

// Lstat describes a file, or a symbolic link itself.
func (*System) Lstat(name string) (agent.Entry, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return agent.Entry{}, err
	}
	return linkEntryOf(name, info), nil
}

// ReadDir describes the files in a directory, sorted by name. It leaves out files that vanish while
// it reads.
func (*System) ReadDir(name string) ([]agent.Entry, error) {
	dir, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	entries := make([]agent.Entry, 0, len(dir))
	for _, d := range dir {
		info, err := d.Info()
		if err != nil {
			if os.IsNotExist(err) {
				continue
			}
			return nil, err
		}
		entries = append(entries, linkEntryOf(filepath.Join(name, d.Name()), info))
	}
	return entries, nil
}

// entryOf turns package os's information about a file into an entry.
func entryOf(name string, info fs.FileInfo) agent.Entry {
	e := agent.Entry{Path: name, Size: info.Size(), Mode: info.Mode(), Modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID, e.Links = st.Uid, st.Gid, int(st.Nlink)
	}
	return e
}

// linkEntryOf is entryOf for a result of Lstat; it adds the text of a link.
func linkEntryOf(name string, info fs.FileInfo) agent.Entry {
	e := entryOf(name, info)
	if info.Mode()&fs.ModeSymlink != 0 {
		e.LinkTarget, _ = os.Readlink(name) // if it is gone by now, leave that out
	}
	return e
}

// Open opens a regular file for reading. It refuses other files, and does not wait for the other
// end of a pipe.
func (*System) Open(name string) (agent.File, error) {
	return openRegular(name, unix.O_RDONLY, 0)
}

// Create opens a regular file for writing and truncates it. Afterwards the file belongs to u, even
// if it existed before.
func (*System) Create(name string, u agent.User) (agent.File, error) {
	f, err := openRegular(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o666)
	if err != nil {
		return nil, err
	}
	if err := f.Chown(int(u.UID), int(u.GID)); err != nil {
		_ = f.Close() // the file was not written to
		return nil, err
	}
	return f, nil
}

// CopyMode implements agent.Filesystem. It leaves out the bits that change a program's user: a
// write clears them, too. Attributes that can't be copied are left out.
func (*System) CopyMode(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.Chmod(to, info.Mode().Perm()|info.Mode()&fs.ModeSticky); err != nil {
		return err
	}
	list, err := grown(func(buf []byte) (int, error) { return unix.Listxattr(from, buf) })
	if err != nil {
		return nil
	}
	for full := range strings.SplitSeq(string(list), "\x00") {
		if !strings.HasPrefix(full, "user.") && full != "system.posix_acl_access" {
			continue
		}
		if value, err := readAttr(from, full); err == nil {
			_ = unix.Setxattr(to, full, []byte(value), 0)
		}
	}
	return nil
}

// openRegular opens a file and refuses one that is not regular. O_NONBLOCK has no effect on a
// regular file. For a pipe it makes open return at once instead of waiting for the other end.
func openRegular(name string, flags int, mode os.FileMode) (*file, error) {
	fd, err := openPlain(name, flags|unix.O_NONBLOCK|unix.O_NOCTTY, uint32(mode.Perm()))
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil {
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			// Package os would give a non-blocking file to the poller.
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&(unix.O_APPEND|unix.O_ACCMODE))
		case unix.S_IFDIR:
			err = syscall.EISDIR
		default:
			err = fmt.Errorf("not a regular file: %w", syscall.EINVAL)
		}
	}
	if err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &file{os.NewFile(uintptr(fd), name)}, nil
}

// file is an os.File with the agent's Stat.
type file struct{ *os.File }

var _ io.ReaderFrom = (*file)(nil)

// Stat describes the open file.
func (f *file) Stat() (agent.Entry, error) {
	info, err := f.File.Stat()
	if err != nil {
		return agent.Entry{}, err
	}
	return entryOf(f.Name(), info), nil
}

// ReadFrom lets the kernel copy from file to file.
func (f *file) ReadFrom(r io.Reader) (int64, error) {
	if src, ok := r.(*file); ok {
		r = src.File
	}
	return f.File.ReadFrom(r)
}

// Mkdir makes one directory that belongs to u.
func (*System) Mkdir(name string, u agent.User) error {
	if err := os.Mkdir(name, 0o755); err != nil {
		return err
	}
	return os.Lchown(name, int(u.UID), int(u.GID))
}

// Remove removes one file or empty directory.
func (*System) Remove(name string) error { return os.Remove(name) }

// RemoveAll removes a file, or a directory with everything in it.
func (*System) RemoveAll(name string) error { return os.RemoveAll(name) }

// Chown gives a file, or a link's target, to u.
func (*System) Chown(name string, u agent.User) error {
	return os.Chown(name, int(u.UID), int(u.GID))
}

// EvalSymlinks returns the path without symbolic links. A loop gives
// syscall.ELOOP.
func (*System) EvalSymlinks(name string) (string, error) {
	resolved, err := filepath.EvalSymlinks(name)
	if err != nil {
		// filepath counts links itself, and its error then has no errno: ask the kernel.
		if _, serr := os.Stat(name); serr != nil {
			return "", serr
		}
		return "", err
	}
	return resolved, nil
}

// The file systems whose contents change without this kernel's knowledge, see linux/magic.h. 9p is
// not among them, because a sandbox's own root may be one.
const (
	magicNFS  = 0x6969
	magicCIFS = 0xff534d42
	magicSMB  = 0x517b
	magicSMB2 = 0xfe534d42
	magicFUSE = 0x65735546
)

// IsNetworkMount reports whether a path is on NFS, CIFS, SMB or FUSE.
func (*System) IsNetworkMount(name string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	switch uint32(st.Type) {
	case magicNFS, magicCIFS, magicSMB, magicSMB2, magicFUSE:
		return true, nil
	}
	return false, nil
}

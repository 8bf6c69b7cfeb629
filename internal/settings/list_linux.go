package settings

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// listDir calls each for every entry of a directory except "." and "..". The name is valid until
// each returns.
func listDir(dir string, buf []byte, each func(name []byte, typ fs.FileMode, ino uint64)) error {
	fd, err := openDir(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for list := buf[:n]; len(list) > 19; { // struct linux_dirent64
			size := int(binary.LittleEndian.Uint16(list[16:]))
			if size < 19 || size > len(list) {
				return unix.EIO
			}
			name := list[19:size]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			if string(name) != "." && string(name) != ".." {
				each(name, typeOf(fd, name, list[18]), binary.LittleEndian.Uint64(list))
			}
			list = list[size:]
		}
	}
}

func openDir(dir string) (int, error) {
	for {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// typeOf turns the type in a directory list into Go's. Some filesystems give none there, so it asks
// for the file then.
func typeOf(dir int, name []byte, typ byte) fs.FileMode {
	switch typ {
	case unix.DT_REG:
		return 0
	case unix.DT_DIR:
		return fs.ModeDir
	case unix.DT_LNK:
		return fs.ModeSymlink
	case unix.DT_UNKNOWN:
		var st unix.Stat_t
		if unix.Fstatat(dir, string(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFREG:
				return 0
			case unix.S_IFDIR:
				return fs.ModeDir
			case unix.S_IFLNK:
				return fs.ModeSymlink
			}
		}
	}
	return fs.ModeIrregular
}

// entered reports whether a program that knows a name can open files in a directory that can't be
// listed.
func entered(dir string, err error) bool {
	switch {
	case errors.Is(err, fs.ErrNotExist), err == unix.ENOTDIR, err == unix.ELOOP:
		return false // it is gone, or another kind of file by now
	}
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS) == nil || os.Geteuid() == 0
}

// fileOf returns a file's identity, and the number of its names.
func fileOf(path string) (f file, links uint64, ok bool) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return f, 0, false
	}
	return file{dev: uint64(st.Dev), ino: st.Ino}, uint64(st.Nlink), true
}

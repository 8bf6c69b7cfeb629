package oshost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Rename moves a file or directory. The kernel refuses to rename between file systems. Then Rename
// copies and removes, as mv does: a sandbox's /tmp may be a file system of its own, and a caller
// that does not know the mounts expects a move to work.
func (*System) Rename(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	return moveAcross(from, to)
}

// moveAcross copies from to a name beside to and renames that to to, so that to is never half a
// tree. Only then it removes from.
func moveAcross(from, to string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(to), ".carrel-move-")
	if err != nil {
		return err
	}
	whole := filepath.Join(tmp, filepath.Base(to))
	err = copyTree(from, whole)
	if err == nil {
		err = os.Rename(whole, to)
	}
	if err == nil {
		err = os.RemoveAll(from)
	}
	return errors.Join(err, os.RemoveAll(tmp))
}

// copyTree copies a file or directory with owners, modes, times and metadata.
func copyTree(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		err = copyDir(from, to)
	case info.Mode().IsRegular():
		err = copyFile(from, to)
	case info.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	case info.Mode()&fs.ModeNamedPipe != 0:
		err = unix.Mkfifo(to, uint32(info.Mode().Perm()))
	default:
		return &fs.PathError{Op: "rename", Path: from, Err: fmt.Errorf("%s can't move to another file system: %w", info.Mode(), syscall.EXDEV)}
	}
	if err != nil {
		return err
	}
	return copyMeta(info, from, to)
}

// copyDir copies the contents of a directory into a new one.
func copyDir(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := copyTree(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a regular file's contents into a new one.
func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // it was only read
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = dst.ReadFrom(src)
	return errors.Join(err, dst.Close())
}

// copyMeta copies everything except contents.
func copyMeta(info fs.FileInfo, from, to string) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	if names, err := listAttrs(from); err == nil {
		for _, full := range names {
			value, err := readAttr(from, full)
			if err == nil {
				_ = unix.Setxattr(to, full, []byte(value), 0) // the new file system may have no attributes
			}
		}
	}
	if err := os.Chmod(to, info.Mode()); err != nil { // after chown, which clears set-id bits
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

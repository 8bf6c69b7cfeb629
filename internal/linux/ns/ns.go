//go:build linux

// Package ns helps a process that builds a mount namespace for another one. It handles trees of
// mounts as descriptors, and resolves paths without following any link.
//
// # Why descriptors
//
// A process that may write to a directory of a path can change the path between a check and its
// use. [Open] resolves a path once and refuses links. Everything after that works on the
// descriptor. The kernel must have openat2 (5.6) and mount_setattr (5.12).
package ns

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Attributes of mounts, for [Attr].
const (
	ReadOnly = unix.MOUNT_ATTR_RDONLY
	NoSUID   = unix.MOUNT_ATTR_NOSUID
	NoDev    = unix.MOUNT_ATTR_NODEV
	NoExec   = unix.MOUNT_ATTR_NOEXEC
)

// Open returns a descriptor (O_PATH) of the file at path. A link anywhere in path is an error,
// ELOOP.
func Open(path string) (int, error) { return OpenAt(unix.AT_FDCWD, path, 0) }

// OpenAt is Open relative to a directory, with more flags.
func OpenAt(dir int, path string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(dir, path, &how)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN: // a rename elsewhere made the kernel unsure
			continue
		case err != nil:
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return fd, nil
	}
}

// Clone copies the mounts at fd and below as a tree that is attached nowhere. It copies the whole
// directory: the kernel does not allow to look below a mount that a user namespace inherited.
func Clone(fd int) (int, error) {
	tree, err := unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	return tree, os.NewSyscallError("open_tree", err)
}

// CloneFile copies the mount at a trusted path: a device or a file of the kernel.
func CloneFile(path string) (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	return tree, nil
}

// Attr sets attributes of the mount at fd. If deep it also sets those of all mounts below.
func Attr(fd int, set uint64, deep bool) error {
	return setattr(fd, "", unix.MountAttr{Attr_set: set}, deep)
}

// Private separates the mounts at fd and below from changes to other mounts, and sets attributes.
func Private(fd int, set uint64) error {
	return setattr(fd, "", unix.MountAttr{Attr_set: set, Propagation: unix.MS_PRIVATE}, true)
}

// AttrPath is Attr for a trusted path.
func AttrPath(path string, set uint64, deep bool) error {
	return setattr(unix.AT_FDCWD, path, unix.MountAttr{Attr_set: set}, deep)
}

func setattr(fd int, path string, a unix.MountAttr, deep bool) error {
	flags := uint(0)
	if path == "" {
		flags = unix.AT_EMPTY_PATH
	}
	if deep {
		flags |= unix.AT_RECURSIVE
	}
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(fd, path, flags, &a))
}

// Attach mounts a tree over the file or directory of a descriptor.
func Attach(tree, target int) error {
	return os.NewSyscallError("move_mount", unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// AttachPath is Attach over a trusted path.
func AttachPath(tree int, target string) error {
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: target, Err: err}
	}
	return nil
}

// Option is one option of a filesystem: a flag if Value is "".
type Option struct{ Key, Value string }

// Filesystem makes a filesystem. Its mount is attached nowhere.
func Filesystem(kind string, attrs int, options ...Option) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen "+kind, err)
	}
	defer unix.Close(fs)
	for _, o := range options {
		if o.Value == "" {
			err = unix.FsconfigSetFlag(fs, o.Key)
		} else {
			err = unix.FsconfigSetString(fs, o.Key, o.Value)
		}
		if err != nil {
			return -1, because(fs, os.NewSyscallError(kind+" option "+o.Key, err))
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, because(fs, os.NewSyscallError("make "+kind, err))
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, because(fs, os.NewSyscallError("mount "+kind, err))
	}
	return tree, nil
}

// because adds the kernel's explanation to the error about a filesystem.
func because(fs int, err error) error {
	b := make([]byte, 512)
	n, rerr := unix.Read(fs, b)
	if rerr != nil || n < 3 {
		return err
	}
	return errors.Join(err, errors.New(string(b[2:n])))
}

// Missing reports whether an error means that nothing exists at a path.
func Missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

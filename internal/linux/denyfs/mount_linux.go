package denyfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// Open opens /dev/fuse for a later Mount. The caller of Mount may be this process, or one that gets
// the descriptor. The kernel demands that it is in the same user namespace as this process. Error:
// Unsupported, with the reason.
func Open() (*os.File, error) { return open("/dev/fuse") }

func open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		return os.NewFile(uintptr(fd), path), nil
	}
	e := &carrel.Error{Op: "hide files behind FUSE", Kind: carrel.Unsupported, Err: &fs.PathError{Op: "open", Path: path, Err: err}}
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.Hint = "make " + path + " readable and writable for all (mode 0666), as most systems have it"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		e.Hint = "load the kernel module fuse"
	}
	return nil, e
}

// Mount mounts the filesystem of an open descriptor at dir, in the caller's mount namespace. It
// returns before any process serves it. The caller must have CAP_SYS_ADMIN over its user namespace,
// and its own user id there. Error: Unsupported, when this kernel lets no user namespace mount
// FUSE.
func Mount(dev *os.File, dir string) error {
	raw, err := dev.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		// Not default_permissions: then the kernel would refuse by the mode, and nobody would learn
		// of it. allow_other does not reach beyond the user namespace.
		options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", fd, os.Getuid(), os.Getgid())
		err = unix.Mount("carrel-deny", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options)
	})
	if cerr != nil {
		return cerr
	}
	if err != nil {
		e := &carrel.Error{Op: "hide files behind FUSE", Kind: carrel.Unsupported, Err: &fs.PathError{Op: "mount", Path: dir, Err: err}}
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
			e.Hint = "it needs Linux 4.18 and a descriptor that was opened in the user namespace that mounts it"
		}
		return e
	}
	return nil
}

// Learn has the kernel learn of all masks at once, when the descriptor was handed to who serves it:
// each that the kernel has not heard of is asked for when it is first bound, which takes two
// changes of processes. root is the mount's root directory. It is no matter whether that works.
func Learn(root int) {
	fd, err := unix.Openat(root, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	buf := make([]byte, listSize)
	for {
		if n, err := unix.Getdents(fd, buf); n <= 0 || err != nil {
			return
		}
	}
}

//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/ns"
)

// Indices of builder.mask: what is laid over hidden things.
const (
	closedFile = iota
	closedDir
	blankFile
	blankDir
)

// makeMasks makes an empty filesystem with a file and a directory that nobody may open, and a blank one of
// each. It is mounted at /dev/shm, where the real one is laid over it at once.
func (b *builder) makeMasks() error {
	if err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700,size=4k"); err != nil {
		return &os.PathError{Op: "mount tmpfs", Path: "/dev/shm", Err: err}
	}
	for i, m := range []struct {
		name string
		dir  bool
		mode uint32
	}{{"f", false, 0}, {"d", true, 0}, {"F", false, 0o444}, {"D", true, 0o555}} {
		path := "/dev/shm/" + m.name
		var err error
		if m.dir {
			err = unix.Mkdir(path, m.mode)
		} else {
			err = unix.Mknod(path, unix.S_IFREG|m.mode, 0)
		}
		if err != nil {
			return &os.PathError{Op: "create", Path: path, Err: err}
		}
		if b.mask[i], err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
	return ns.AttrPath("/dev/shm", ns.ReadOnly, false)
}

// cover lays a mask over a path, which may be missing.
func (b *builder) cover(path string, blank bool) error {
	fd, err := ns.Open(path)
	if ns.Missing(err) || errors.Is(err, unix.EACCES) { // what the stage can't reach the command can't either
		return nil
	}
	if err != nil {
		return linked(path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	kind := closedFile
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		kind = closedDir
	}
	if blank {
		kind += blankFile
	}
	tree, err := ns.Clone(b.mask[kind])
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := ns.Attach(tree, fd); err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}

// hide carries out Spec.Hidden.
func (b *builder) hide() error {
	for _, h := range b.Spec.Hidden {
		if err := b.cover(h.Path, h.Blank); err != nil {
			return err
		}
	}
	return nil
}

//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/denyfs"
	"github.com/carrel-dev/carrel/internal/linux/ns"
)

// Indices of builder.mask: the masks that are mounted over hidden paths.
const (
	closedFile = iota
	closedDir
	blankFile
	blankDir
)

// makeMasks makes a small filesystem with a file and a directory that nobody may open, and a blank
// one of each. It mounts it at /dev/shm. The real /dev/shm is mounted over it later.
func (b *builder) makeMasks() error {
	if err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700,size=64m"); err != nil {
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
	for i, m := range b.Spec.Mounts {
		if m.Kind == ReadFile {
			if err := b.write(i, m.Source); err != nil {
				return err
			}
		}
	}
	if text := b.resolvText(); text != "" {
		if err := b.write(resolvConf, text); err != nil {
			return err
		}
	}
	return ns.AttrPath("/dev/shm", ns.ReadOnly, false)
}

// write makes one of the files for ReadFile mounts.
func (b *builder) write(i int, text string) error {
	path := "/dev/shm/" + strconv.Itoa(i)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	b.files[i] = fd
	return nil
}

// replaced bounds the retries of a mask. A hidden file may be removed, or replaced by a rename,
// between the check and the mount. After that many retries the box is given up.
const replaced = 100

// cover mounts a mask over a path. The path may be missing.
func (b *builder) cover(path string, blank bool) (err error) {
	for range replaced {
		if err = b.coverOnce(path, blank); !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return err
}

func (b *builder) coverOnce(path string, blank bool) error {
	fd, isDir, err := hidden(path)
	if fd < 0 || err != nil {
		return err
	}
	defer unix.Close(fd)
	kind := closedFile
	if isDir {
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

// hidden opens a path that must be hidden; -1 if nothing is there. It follows a link, because a
// mask can't be mounted over the link itself. If that hides too much, only the command loses
// something.
func hidden(path string) (fd int, isDir bool, err error) {
	fd, err = ns.Open(path)
	if errors.Is(err, unix.ELOOP) {
		fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	switch {
	// If the stage can't reach it, the command can't either.
	case ns.Missing(err), errors.Is(err, unix.EACCES), errors.Is(err, unix.ELOOP):
		return -1, false, nil
	case err != nil:
		return -1, false, fmt.Errorf("hide %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, false, fmt.Errorf("hide %s: %w", path, err)
	}
	return fd, st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// hide carries out Spec.Hidden.
func (b *builder) hide() error {
	if b.fuseDir >= 0 {
		return b.hideTelling()
	}
	for _, h := range b.Spec.Hidden {
		if err := b.cover(h.Path, h.Blank); err != nil {
			return err
		}
	}
	return nil
}

// gatherFuse opens /dev/fuse while it is still visible. The filesystem that reports touches of
// hidden files needs it.
func (b *builder) gatherFuse() {
	f, err := denyfs.Open()
	if err != nil {
		b.missing = append(b.missing, "who touches hidden files is not reported: "+err.Error())
		return
	}
	b.fuse = f
}

// mountFuse mounts that filesystem at /dev/shm, to be used as masks.
func (b *builder) mountFuse() {
	if b.fuse == nil {
		return
	}
	err := denyfs.Mount(b.fuse, "/dev/shm")
	if err == nil {
		b.fuseDir, err = unix.Open("/dev/shm", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		b.missing = append(b.missing, "who touches hidden files is not reported: "+err.Error())
		b.fuseDir = -1
	}
}

// hideTelling is hide with masks that report touches. The host's process serves them, so it gets
// the descriptor first.
func (b *builder) hideTelling() error {
	var list, at []int
	for i, h := range b.Spec.Hidden {
		if h.Blank {
			if err := b.cover(h.Path, true); err != nil {
				return err
			}
			continue
		}
		fd, isDir, err := hidden(h.Path)
		if err != nil {
			return err
		}
		if fd < 0 {
			continue
		}
		if isDir {
			i = -1 - i
		}
		list, at = append(list, i), append(at, fd)
	}
	if len(list) == 0 {
		return b.fuse.Close()
	}
	raw, err := b.fuse.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) { err = b.conn.send(message{Word: masks, Masks: list}, int(fd)) })
	if err = errors.Join(cerr, err, b.fuse.Close()); err != nil {
		return err
	}
	denyfs.Learn(b.fuseDir)
	for i, fd := range at {
		err := b.laymask(i, fd)
		if errors.Is(err, unix.ENOENT) { // it was replaced: use a silent mask
			err = b.cover(b.Spec.Hidden[index(list[i])].Path, false)
		}
		if err != nil {
			return fmt.Errorf("hide: %w", err)
		}
	}
	return nil
}

// index returns the index in Spec.Hidden of an entry of a list of masks. Directories are written as
// -1-i.
func index(entry int) int {
	if entry < 0 {
		return -1 - entry
	}
	return entry
}

func (b *builder) laymask(i, fd int) error {
	defer unix.Close(fd)
	from, err := unix.Openat(b.fuseDir, strconv.Itoa(i), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open mask", Path: strconv.Itoa(i), Err: err}
	}
	defer unix.Close(from)
	tree, err := ns.Clone(from)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return ns.Attach(tree, fd)
}

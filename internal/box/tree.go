//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/ns"
)

// gather copies everything that the box gets from this machine's tree, before the tree changes.
func (b *builder) gather() error {
	if err := b.begin.detach(); err != nil {
		return err
	}
	if err := b.gatherDevices(); err != nil {
		return err
	}
	if err := b.gatherKernel(); err != nil {
		return err
	}
	if b.Touch && len(b.Spec.Hidden) > 0 {
		b.gatherFuse()
	}
	for i, m := range b.Spec.Mounts {
		if m.Kind == Overlay {
			tree, err := b.overlay(i, m)
			if err != nil && m.Optional && ns.Missing(err) {
				continue
			}
			if err != nil {
				return mountError(m, err)
			}
			b.sources[i] = tree
			continue
		}
		source := m.Source
		if source == "" && m.Kind == Writable && b.Spec.Root.Host {
			source = m.Target
		}
		if source == "" || (m.Kind != ReadOnly && m.Kind != Writable) {
			continue
		}
		if m.Kind == ReadOnly && source == m.Target && b.inside(i) {
			continue // it is copied later, as it is then
		}
		tree, err := b.source(source)
		if err != nil && m.Optional && ns.Missing(err) {
			continue
		}
		if err != nil {
			return mountError(m, err)
		}
		b.sources[i] = tree
	}
	return nil
}

// detach separates this process's mounts from changes to other mounts.
func detach() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		// This is the first step that needs a right. AppArmor allows user namespaces, but takes
		// their rights away.
		return unsupported(os.NewSyscallError("make mounts private", err))
	}
	return nil
}

// inside reports whether an earlier mount shows mount i's target. A Tmpfs does not show it: it is
// empty.
func (b *builder) inside(i int) bool {
	target := b.Spec.Mounts[i].Target
	var nearest Mount
	for _, m := range b.Spec.Mounts[:i] {
		if m.Target != target && within(target, m.Target) && len(m.Target) >= len(nearest.Target) {
			nearest = m
		}
	}
	return nearest.Target != "" && nearest.Kind != Tmpfs
}

// source copies the mount at a path outside.
func (b *builder) source(path string) (int, error) {
	fd, err := ns.Open(path)
	if err != nil {
		return -1, linked(path, err)
	}
	defer unix.Close(fd)
	tree, err := ns.Clone(fd)
	if err != nil {
		return -1, err
	}
	return tree, ns.Private(tree, ns.NoSUID|ns.NoDev)
}

// linked explains ELOOP.
func linked(path string, err error) error {
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%w (a part of the path is a symbolic link: name what it points to)", err)
	}
	return err
}

// mountError names the mount.
func mountError(m Mount, err error) error {
	what := m.Target
	if m.Source != "" && m.Source != m.Target && m.Kind != ReadFile {
		what = m.Source + " at " + m.Target
	}
	return fmt.Errorf("mount %s (%s): %w", what, m.Kind, err)
}

// root makes the tree in which everything else is mounted.
func (b *builder) root() error {
	if b.Spec.Root.Host {
		return ns.AttrPath("/", ns.ReadOnly|ns.NoSUID|ns.NoDev, true)
	}
	return b.layers()
}

// mounts carries out Spec.Mounts.
func (b *builder) mounts() error {
	for i, m := range b.Spec.Mounts {
		if err := b.mount(i, m); err != nil {
			if m.Optional && ns.Missing(err) {
				continue
			}
			return mountError(m, err)
		}
	}
	return nil
}

func (b *builder) mount(i int, m Mount) error {
	tree, isDir, err := b.tree(i, m)
	if err != nil || tree < 0 {
		return err
	}
	defer unix.Close(tree)
	if err := b.pin(i); err != nil {
		return err
	}
	target, err := b.target(m.Target, isDir)
	if err != nil {
		return linked(m.Target, err)
	}
	defer unix.Close(target)
	if err := ns.Attach(tree, target); err != nil {
		return err
	}
	return b.attachBelow(i)
}

// pin turns dot directories into mounts, because a mount can't be renamed. It does so for the dot
// directories between a read-only target and the writable directory above it. Otherwise the command
// could move ".git" away and make a new ".git/hooks". (It leaves other directories alone: a rename
// from one mount to another fails, and programs would notice that.)
func (b *builder) pin(i int) error {
	m := b.Spec.Mounts[i]
	if m.Kind != ReadOnly && m.Kind != ReadFile {
		return nil
	}
	top := ""
	for _, w := range b.Spec.Mounts[:i] {
		if w.Kind == Writable && w.Target != m.Target && within(m.Target, w.Target) && len(w.Target) > len(top) {
			top = w.Target
		}
	}
	for dir := filepath.Dir(m.Target); top != "" && len(dir) > len(top) && strings.HasPrefix(filepath.Base(dir), "."); dir = filepath.Dir(dir) {
		if b.pinned[dir] {
			break
		}
		fd, err := ns.Open(dir)
		if err != nil {
			return linked(dir, err)
		}
		tree, err := ns.Clone(fd)
		if err == nil {
			err = ns.Attach(tree, fd)
			_ = unix.Close(tree)
		}
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		b.pinned[dir] = true
	}
	return nil
}

// tree returns the tree for a mount, and whether it is a directory.
func (b *builder) tree(i int, m Mount) (tree int, isDir bool, err error) {
	switch m.Kind {
	case ReadOnly, Writable:
		tree, have := b.sources[i]
		if !have {
			if m.Source != "" && m.Source != m.Target {
				return -1, false, nil // optional, and was not there
			}
			if tree, err = b.source(m.Target); err != nil {
				return -1, false, err
			}
		}
		if m.Kind == ReadOnly {
			err = ns.Attr(tree, ns.ReadOnly, true)
		}
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstat(tree, &st)
		}
		return tree, st.Mode&unix.S_IFMT == unix.S_IFDIR, err
	case Tmpfs:
		mode := "0755"
		if m.Target == "/tmp" || m.Target == "/var/tmp" || m.Target == "/dev/shm" {
			mode = "1777"
		}
		tree, err := b.tmpfs(mode, m.Size)
		return tree, true, err
	case ReadFile:
		tree, err := ns.Clone(b.files[i])
		return tree, false, err
	case Overlay:
		tree, have := b.sources[i]
		if !have {
			tree = -1
		}
		return tree, true, nil
	}
	return -1, false, fmt.Errorf("unknown kind %q", m.Kind)
}

// tmpfs makes an empty filesystem of this box.
func (b *builder) tmpfs(mode string, size int64) (int, error) {
	options := []ns.Option{{Key: "mode", Value: mode}}
	if size > 0 {
		options = append(options, ns.Option{Key: "size", Value: strconv.FormatInt(size, 10)})
	}
	tree, err := ns.Filesystem("tmpfs", ns.NoSUID|ns.NoDev, options...)
	if err != nil {
		return -1, err
	}
	return tree, b.owns(tree)
}

// owns records that a filesystem belongs to this box.
func (b *builder) owns(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	b.own[st.Dev] = true
	return nil
}

// target opens the target of a mount. In a filesystem of this box it makes a missing one.
func (b *builder) target(path string, isDir bool) (int, error) {
	fd, err := ns.Open(path)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	fd, err = ns.Open("/")
	rest := strings.Split(strings.TrimPrefix(filepath.Clean(path), "/"), "/")
	for i, part := range rest {
		if err != nil {
			return -1, err
		}
		next, nerr := ns.OpenAt(fd, part, 0)
		if errors.Is(nerr, unix.ENOENT) {
			next, nerr = b.make(fd, part, isDir || i < len(rest)-1, path)
		}
		_ = unix.Close(fd)
		fd, err = next, nerr
	}
	return fd, err
}

// make makes a directory or file in a filesystem of this box. It refuses all other filesystems.
func (b *builder) make(dir int, name string, isDir bool, path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return -1, os.NewSyscallError("fstat", err)
	}
	if !b.own[st.Dev] {
		return -1, &os.PathError{Op: "mount over", Path: path, Err: unix.ENOENT}
	}
	if isDir {
		if err := unix.Mkdirat(dir, name, 0o755); err != nil {
			return -1, &os.PathError{Op: "mkdir", Path: path, Err: err}
		}
		return ns.OpenAt(dir, name, 0)
	}
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return -1, &os.PathError{Op: "create", Path: path, Err: err}
	}
	_ = unix.Close(fd)
	return ns.OpenAt(dir, name, 0)
}

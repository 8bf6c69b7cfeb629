package vfs

import "syscall"

// Rename moves a file or directory. A file may replace a file of the new name, and a directory an
// empty directory.
func (v View) Rename(from, to string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	src, err := v.existing(from)
	if err != nil {
		return pathError("rename", from, err)
	}
	dst, err := v.entry(to)
	if err != nil {
		return pathError("rename", to, err)
	}
	if err := v.mayRename(src, dst); err != nil {
		return pathError("rename", from, err)
	}
	if dst.node != nil && v.fs.same(src.node, dst.node) {
		return nil
	}
	if src.dir.isPortal() {
		err = errnoOf(src.dir.mnt.w.Rename(src.source(), dst.source()))
	} else {
		err = v.move(src, dst)
	}
	if err != nil {
		return pathError("rename", from, err)
	}
	v.fs.notify(src.dir, src.name, Rename)
	v.fs.notify(dst.dir, dst.name, Create)
	return nil
}

// same reports whether two nodes are the same file.
func (f *FS) same(a, b *node) bool {
	if a.ino != 0 || b.ino != 0 {
		return a.ino == b.ino
	}
	return a.mnt == b.mnt && a.low.path == b.low.path
}

// move renames an entry inside the filesystem.
func (v View) move(src, dst place) error {
	n, err := v.raise(src.node)
	if err != nil {
		return err
	}
	from, err := v.raise(src.dir)
	if err != nil {
		return err
	}
	into, err := v.raise(dst.dir)
	if err != nil {
		return err
	}
	if dst.node != nil {
		v.fs.unlink(v.by, into, dst.name, dst.node)
	}
	from = v.fs.mut(from)
	v.fs.hide(v.by, from, src.name)
	from.modified = v.fs.stamp()
	from.changed = from.modified
	n = v.fs.mut(n)
	if n.isDir() {
		from.dirs--
	}
	if n.links--; n.links > 0 {
		_ = v.fs.charge(-linkCost) // link takes it again
	}
	v.fs.link(into, dst.name, n)
	return nil
}

// mayRename returns an error if a rename is not allowed.
func (v View) mayRename(src, dst place) error {
	switch {
	case src.name == "" || dst.name == "" || src.node.isMountRoot() || dst.node != nil && dst.node.isMountRoot():
		return syscall.EBUSY
	case src.dir.mnt != dst.dir.mnt:
		return syscall.EXDEV
	case dst.slash && !(src.node.isDir() && (dst.node == nil || dst.node.isDir())):
		return errNotDir
	}
	if err := v.mayChange(src.dir, src.node); err != nil {
		return err
	}
	if err := v.mayChange(dst.dir, dst.node); err != nil {
		return err
	}
	if src.node.isDir() {
		if !v.fs.same(src.dir, dst.dir) && !v.may(src.node, MayWrite) {
			return errAccess // its ".." changes
		}
		d := dst.dir
		for range maxDepth {
			if v.fs.same(d, src.node) {
				return errInvalid // into itself
			}
			if v.fs.isRoot(d) {
				break
			}
			d = v.fs.up(d)
		}
	}
	switch {
	case dst.node == nil || v.fs.same(dst.node, src.node):
	case dst.node.isDir() && !src.node.isDir():
		return syscall.EISDIR
	case !dst.node.isDir() && src.node.isDir():
		return errNotDir
	case dst.node.isDir():
		return v.mustBeEmpty(dst.node)
	}
	return nil
}

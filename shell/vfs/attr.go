package vfs

import (
	"io/fs"
	"maps"
	"syscall"
	"time"
)

// Chmod changes a file's permission bits.
func (v View) Chmod(name string, mode fs.FileMode) error {
	return v.alter("chmod", name, true, func(n *node) error {
		if err := v.owns(n); err != nil {
			return err
		}
		if v.cred.UID != 0 && !n.isDir() && !v.cred.in(n.gid) {
			mode &^= fs.ModeSetgid
		}
		if n.isPortal() {
			return n.mnt.w.Chmod(n.low.path, mode&modeBits)
		}
		n.mode = n.mode&^modeBits | mode&modeBits
		return nil
	})
}

// Chown changes a file's owner and group. Only root may change the owner. An owner may change the
// group to one of its own groups.
func (v View) Chown(name string, uid, gid uint32) error { return v.chown(name, uid, gid, true) }

// Lchown is Chown for a symbolic link itself.
func (v View) Lchown(name string, uid, gid uint32) error { return v.chown(name, uid, gid, false) }

func (v View) chown(name string, uid, gid uint32, follow bool) error {
	return v.alter("chown", name, follow, func(n *node) error {
		if v.cred.UID != 0 && (uid != n.uid || v.owns(n) != nil || gid != n.gid && !v.cred.in(gid)) {
			return syscall.EPERM
		}
		if n.isPortal() {
			if uid != n.uid || gid != n.gid {
				return syscall.EPERM
			}
			return nil
		}
		n.uid, n.gid = uid, gid
		if n.mode.IsRegular() {
			n.mode &^= fs.ModeSetuid
			if n.mode&0o010 != 0 {
				n.mode &^= fs.ModeSetgid
			}
		}
		return nil
	})
}

// Chtimes changes a file's modification time, and sets its access time to the same value.
func (v View) Chtimes(name string, t time.Time) error {
	return v.SetTimes(name, Times{Accessed: t, Modified: t})
}

// Times are the times for SetTimes. A zero time is not changed.
type Times struct {
	Accessed, Modified time.Time
	NoFollow           bool // a symbolic link's own
}

// SetTimes changes a file's times.
func (v View) SetTimes(name string, t Times) error {
	return v.alter("chtimes", name, !t.NoFollow, func(n *node) error {
		if v.owns(n) != nil && !v.may(n, MayWrite) {
			return errAccess
		}
		if n.isPortal() {
			if n.isLink() {
				return nil
			}
			return n.mnt.w.Chtimes(n.low.path, t.Accessed, t.Modified)
		}
		if !t.Accessed.IsZero() {
			n.accessed = stampOf(t.Accessed)
		}
		if !t.Modified.IsZero() {
			n.modified = stampOf(t.Modified)
		}
		return nil
	})
}

// SetAttrs replaces a file's user attributes.
func (v View) SetAttrs(name string, attrs map[string]string) error {
	return v.alter("setxattr", name, true, func(n *node) error {
		if !v.may(n, MayWrite) {
			return errAccess
		}
		if n.isPortal() {
			return syscall.ENOTSUP
		}
		if len(attrs) > maxAttrs {
			return syscall.ENOSPC
		}
		if err := v.fs.charge(attrCost(attrs) - attrCost(n.attrs)); err != nil {
			return err
		}
		n.attrs = maps.Clone(attrs)
		return nil
	})
}

// alter changes a node's attributes and tells the watchers.
func (v View) alter(op, name string, follow bool, change func(*node) error) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.find(name, follow)
	if err == nil && p.node.mnt != nil && p.node.mnt.readOnly() {
		err = errReadOnly
	}
	n := p.node
	if err == nil && !n.isPortal() {
		if n, err = v.raise(n); err == nil {
			n = v.fs.mut(n)
		}
	}
	if err == nil {
		err = errnoOf(change(n))
	}
	if err != nil {
		return pathError(op, name, err)
	}
	if !n.isPortal() {
		n.changed = v.fs.stamp()
	}
	if p.name != "" {
		v.fs.notify(p.dir, p.name, Chmod)
	}
	return nil
}

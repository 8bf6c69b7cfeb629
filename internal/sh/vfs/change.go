package vfs

import (
	"io/fs"
	"maps"
	"strings"
	"syscall"
	"time"
)

const (
	errNotDir  = syscall.ENOTDIR
	errAccess  = syscall.EACCES
	errInvalid = syscall.EINVAL

	errNameTooLong = syscall.ENAMETOOLONG
)

// modeBits are what Chmod can change.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// put makes a new entry. The caller holds mu, and p.node is nil.
func (v View) put(p place, mode fs.FileMode) (*node, error) {
	if p.dir.links == 0 {
		return nil, syscall.ENOENT // removed while somebody stood in it
	}
	if err := v.mayChange(p.dir, nil); err != nil {
		return nil, err
	}
	if err := v.fs.charge(nodeCost); err != nil {
		return nil, err
	}
	n := v.fs.newNode(mode, v.cred)
	if p.dir.mode&fs.ModeSetgid != 0 {
		n.gid = p.dir.gid
	}
	v.fs.link(p.dir, p.name, n)
	v.fs.notify(p.dir, p.name, Create)
	return n, nil
}

// link enters n in dir. The caller holds mu.
func (f *FS) link(dir *node, name string, n *node) {
	dir.entries[name] = n
	dir.mtime = f.now()
	n.links++
	if n.isDir() {
		n.parent, n.name = dir, name
	}
}

// unlink takes an entry out of dir and frees what nobody uses. The caller holds mu.
func (f *FS) unlink(dir *node, name string) {
	n := dir.entries[name]
	delete(dir.entries, name)
	dir.mtime = f.now()
	n.links--
	f.release(n)
}

// release frees a node's contents once no entry and no open file is left.
func (f *FS) release(n *node) {
	if n.links > 0 || n.opens > 0 {
		return
	}
	_ = f.charge(-nodeCost - attrCost(n.attrs)) // giving back never fails
	f.resize(n, 0)
}

func attrCost(attrs map[string]string) (n int64) {
	for k, v := range attrs {
		n += int64(len(k) + len(v))
	}
	return n
}

// Mkdir makes one directory.
func (v View) Mkdir(name string, perm fs.FileMode) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.walk(name, false)
	if err == nil && p.node != nil {
		err = syscall.EEXIST
	}
	if err == nil {
		_, err = v.put(p, fs.ModeDir|perm&modeBits)
	}
	return pathError("mkdir", name, err)
}

// MkdirAll makes a directory and its parents; one that exists is no error.
func (v View) MkdirAll(name string, perm fs.FileMode) error {
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		if part == "" {
			continue
		}
		at += "/" + part
		if i, err := v.Stat(at); err == nil {
			if !i.Mode.IsDir() {
				return pathError("mkdir", at, errNotDir)
			}
			continue
		}
		if err := v.Mkdir(at, perm); err != nil {
			// Somebody may have made it between the two looks.
			if i, serr := v.Stat(at); serr != nil || !i.Mode.IsDir() {
				return err
			}
		}
	}
	return nil
}

// Symlink makes a symbolic link at name that points to target.
func (v View) Symlink(target, name string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.walk(name, false)
	switch {
	case err != nil:
	case target == "":
		err = syscall.ENOENT
	case len(target) >= maxPath:
		err = syscall.ENAMETOOLONG
	case p.node != nil:
		err = syscall.EEXIST
	default:
		var n *node
		if n, err = v.put(p, fs.ModeSymlink|0o777); err == nil {
			n.target = target
		}
	}
	return pathError("symlink", name, err)
}

// Link makes name another name of the file old.
func (v View) Link(old, name string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	from, err := v.find(old, false)
	if err == nil && from.node.isDir() {
		err = syscall.EPERM
	}
	var to place
	if err == nil {
		to, err = v.walk(name, false)
	}
	if err == nil && to.node != nil {
		err = syscall.EEXIST
	}
	if err == nil {
		err = v.mayChange(to.dir, nil)
	}
	if err == nil && to.dir.links == 0 {
		err = syscall.ENOENT
	}
	if err != nil {
		return pathError("link", name, err)
	}
	v.fs.link(to.dir, to.name, from.node)
	v.fs.notify(to.dir, to.name, Create)
	return nil
}

// Device makes a character device: null, zero, full or random.
func (v View) Device(name, kind string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.walk(name, false)
	if err == nil && p.node != nil {
		err = syscall.EEXIST
	}
	if err == nil && v.cred.UID != 0 {
		err = syscall.EPERM
	}
	if err == nil {
		var n *node
		if n, err = v.put(p, fs.ModeDevice|fs.ModeCharDevice|0o666); err == nil {
			n.device = kind
		}
	}
	return pathError("mknod", name, err)
}

// Remove removes one file or empty directory.
func (v View) Remove(name string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.find(name, false)
	switch {
	case err != nil:
	case p.node == v.fs.root:
		err = syscall.EBUSY
	case p.name == "":
		err = errInvalid
	default:
		err = v.mayChange(p.dir, p.node)
	}
	if err == nil && len(p.node.entries) > 0 {
		err = syscall.ENOTEMPTY
	}
	if err != nil {
		return pathError("remove", name, err)
	}
	v.fs.unlink(p.dir, p.name)
	v.fs.notify(p.dir, p.name, Remove)
	return nil
}

// RemoveAll removes a file or a directory with all in it; a missing one is no
// error. It stops at the first thing that may not be removed.
func (v View) RemoveAll(name string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.walk(name, false)
	switch {
	case err == syscall.ENOENT || err == nil && p.node == nil:
		return nil
	case err != nil:
	case p.node == v.fs.root:
		err = syscall.EBUSY
	case p.name == "":
		err = errInvalid
	default:
		err = v.removeTree(p.dir, p.name)
	}
	return pathError("remove", name, err)
}

// removeTree removes an entry and all below it, children first. The caller holds mu.
func (v View) removeTree(dir *node, name string) error {
	type entry struct {
		dir  *node
		name string
	}
	for todo := []entry{{dir, name}}; len(todo) > 0; {
		e := todo[len(todo)-1]
		n := e.dir.entries[e.name]
		if len(n.entries) > 0 {
			for child := range n.entries {
				todo = append(todo, entry{n, child})
			}
			continue
		}
		if err := v.mayChange(e.dir, n); err != nil {
			return err
		}
		todo = todo[:len(todo)-1]
		v.fs.unlink(e.dir, e.name)
		v.fs.notify(e.dir, e.name, Remove)
	}
	return nil
}

// Rename moves a file or directory, replacing a file (or an empty directory by a
// directory) of the new name.
func (v View) Rename(from, to string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	src, err := v.find(from, false)
	if err != nil {
		return pathError("rename", from, err)
	}
	dst, err := v.walk(to, false)
	if err != nil {
		return pathError("rename", to, err)
	}
	if err := v.mayRename(src, dst); err != nil {
		return pathError("rename", from, err)
	}
	if src.node == dst.node {
		return nil
	}
	if dst.node != nil {
		v.fs.unlink(dst.dir, dst.name)
	}
	delete(src.dir.entries, src.name)
	src.dir.mtime = v.fs.now()
	src.node.links--
	v.fs.notify(src.dir, src.name, Rename)
	v.fs.link(dst.dir, dst.name, src.node)
	v.fs.notify(dst.dir, dst.name, Create)
	return nil
}

// mayRename checks all that can stand against a rename.
func (v View) mayRename(src, dst place) error {
	if src.name == "" || dst.name == "" {
		return syscall.EBUSY
	}
	if err := v.mayChange(src.dir, src.node); err != nil {
		return err
	}
	if err := v.mayChange(dst.dir, dst.node); err != nil {
		return err
	}
	if dst.dir.links == 0 {
		return syscall.ENOENT
	}
	for d := dst.dir; src.node.isDir(); d = d.parent {
		if d == src.node {
			return errInvalid // into itself
		}
		if d == d.parent {
			break
		}
	}
	switch {
	case dst.node == nil || dst.node == src.node:
	case dst.node.isDir() && !src.node.isDir():
		return syscall.EISDIR
	case !dst.node.isDir() && src.node.isDir():
		return errNotDir
	case len(dst.node.entries) > 0:
		return syscall.ENOTEMPTY
	}
	return nil
}

// Chmod changes a file's permission bits.
func (v View) Chmod(name string, mode fs.FileMode) error {
	return v.alter("chmod", name, true, func(n *node) error {
		if err := v.owns(n); err != nil {
			return err
		}
		n.mode = n.mode&^modeBits | mode&modeBits
		return nil
	})
}

// Chown changes a file's owner and group. Only root may give files away.
func (v View) Chown(name string, uid, gid uint32) error {
	return v.alter("chown", name, true, func(n *node) error {
		if v.cred.UID != 0 && (uid != n.uid || v.owns(n) != nil) {
			return syscall.EPERM
		}
		n.uid, n.gid = uid, gid
		return nil
	})
}

// Chtimes changes a file's modification time.
func (v View) Chtimes(name string, t time.Time) error {
	return v.alter("chtimes", name, true, func(n *node) error {
		if v.owns(n) != nil && !v.may(n, MayWrite) {
			return errAccess
		}
		n.mtime = t
		return nil
	})
}

// SetAttrs replaces a file's user attributes.
func (v View) SetAttrs(name string, attrs map[string]string) error {
	return v.alter("setxattr", name, true, func(n *node) error {
		if !v.may(n, MayWrite) {
			return errAccess
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
	if err == nil {
		err = change(p.node)
	}
	if err == nil && p.name != "" {
		v.fs.notify(p.dir, p.name, Chmod)
	}
	return pathError(op, name, err)
}

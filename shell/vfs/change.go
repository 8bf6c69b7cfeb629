package vfs

import (
	"io/fs"
	"strings"
	"syscall"
)

// modeBits are the bits that Chmod can change.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// put makes a new entry. text is the target of a link or the kind of a device. The caller holds mu,
// and p.node is nil.
func (v View) put(p place, mode fs.FileMode, text string) (*node, error) {
	if err := v.mayChange(p.dir, nil); err != nil {
		return nil, err
	}
	if p.dir.isPortal() {
		return v.putThrough(p, mode, text)
	}
	dir, err := v.raise(p.dir)
	if err == nil {
		err = v.fs.chargeNode()
	}
	if err != nil {
		return nil, err
	}
	if err := v.fs.charge(int64(len(text))); err != nil {
		_ = v.fs.charge(-nodeCost) // giving back never fails
		return nil, err
	}
	n := v.fs.newNode(mode, v.cred)
	n.text, n.mnt = text, dir.mnt
	if dir.mode&fs.ModeSetgid != 0 {
		if n.gid = dir.gid; n.isDir() {
			n.mode |= fs.ModeSetgid
		}
	}
	n = v.fs.link(dir, p.name, n)
	v.fs.notify(dir, p.name, Create)
	return n, nil
}

// make makes a file that must not exist yet.
func (v View) make(op, name string, mode fs.FileMode, text string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.entry(name)
	switch {
	case err != nil:
	case p.node != nil:
		err = syscall.EEXIST
	case p.slash && !mode.IsDir():
		err = syscall.ENOENT
	default:
		_, err = v.put(p, mode, text)
	}
	return pathError(op, name, err)
}

// Mkdir makes one directory.
func (v View) Mkdir(name string, perm fs.FileMode) error {
	return v.make("mkdir", name, fs.ModeDir|perm&modeBits, "")
}

// MkdirAll makes a directory and its parents. A directory that exists is not an error.
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
			// Another goroutine may have made it between the two checks.
			if i, serr := v.Stat(at); serr != nil || !i.Mode.IsDir() {
				return err
			}
		}
	}
	return nil
}

// Symlink makes a symbolic link at name that points to target.
func (v View) Symlink(target, name string) error {
	var err error
	switch {
	case target == "":
		err = syscall.ENOENT
	case len(target) >= maxPath:
		err = errNameTooLong
	case strings.IndexByte(target, 0) >= 0:
		err = errInvalid
	default:
		return v.make("symlink", name, fs.ModeSymlink|0o777, target)
	}
	return pathError("symlink", name, err)
}

// Mkfifo makes a named pipe. This package does not store the bytes written to it: see [File.Kind].
func (v View) Mkfifo(name string, perm fs.FileMode) error {
	return v.make("mkfifo", name, fs.ModeNamedPipe|perm&modeBits, "")
}

// Device makes a character device: null, zero, full or random.
func (v View) Device(name, kind string) error {
	if v.cred.UID != 0 {
		return pathError("mknod", name, syscall.EPERM)
	}
	return v.make("mknod", name, fs.ModeDevice|fs.ModeCharDevice|0o666, kind)
}

// Link makes name another name for the file old.
func (v View) Link(old, name string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	from, err := v.find(old, false)
	var to place
	if err == nil {
		to, err = v.entry(name)
	}
	if err == nil {
		err = v.mayLink(from, to)
	}
	if err == nil && to.dir.isPortal() {
		err = errnoOf(to.dir.mnt.w.Link(from.node.low.path, to.source()))
	} else if err == nil {
		err = v.addLink(from, to)
	}
	if err != nil {
		return pathError("link", name, err)
	}
	v.fs.notify(to.dir, to.name, Create)
	return nil
}

func (v View) mayLink(from, to place) error {
	n := from.node
	switch {
	case to.node != nil:
		return syscall.EEXIST
	case to.slash:
		return syscall.ENOENT
	case n.mnt != to.dir.mnt:
		return syscall.EXDEV
	case n.isDir():
		return syscall.EPERM
	case v.owns(n) != nil && !(n.mode.IsRegular() && !n.has(fs.ModeSetuid) && v.may(n, MayRead|MayWrite)):
		return syscall.EPERM // the kernel's protected_hardlinks
	}
	return v.mayChange(to.dir, nil)
}

func (v View) addLink(from, to place) error {
	n, err := v.raise(from.node)
	if err != nil {
		return err
	}
	dir, err := v.raise(to.dir)
	if err == nil {
		err = v.fs.charge(linkCost)
	}
	if err != nil {
		return err
	}
	_ = v.fs.charge(-linkCost) // link takes it
	v.fs.link(dir, to.name, n)
	return nil
}

// Remove removes one file or empty directory.
func (v View) Remove(name string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.existing(name)
	switch {
	case err != nil:
	case v.fs.isRoot(p.node), p.node.isMountRoot():
		err = syscall.EBUSY
	case p.name == "":
		err = errInvalid
	default:
		if err = v.mayChange(p.dir, p.node); err == nil {
			err = v.mustBeEmpty(p.node)
		}
		if err == nil {
			err = v.remove(p)
		}
	}
	return pathError("remove", name, err)
}

// mustBeEmpty returns an error if n is a directory that is not empty.
func (v View) mustBeEmpty(n *node) error {
	if n.low == nil {
		if n.ents.n > 0 {
			return syscall.ENOTEMPTY
		}
		return nil
	}
	if !n.isDir() {
		return nil
	}
	empty := true
	err := v.list(n, func(string, *node) bool { empty = false; return false })
	if err == nil && !empty {
		err = syscall.ENOTEMPTY
	}
	return err
}

// remove removes an entry. The caller has checked permissions.
func (v View) remove(p place) error {
	if p.dir.isPortal() {
		if err := errnoOf(p.dir.mnt.w.Remove(p.source())); err != nil {
			return err
		}
	} else {
		dir, err := v.raise(p.dir)
		if err != nil {
			return err
		}
		v.fs.unlink(v.by, dir, p.name, p.node)
	}
	v.fs.notify(p.dir, p.name, Remove)
	return nil
}

// RemoveAll removes a file, or a directory with everything in it. A missing file is not an error.
// It stops at the first file that may not be removed.
func (v View) RemoveAll(name string) error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.existing(name)
	switch {
	case err == syscall.ENOENT:
		return nil
	case err != nil:
	case v.fs.isRoot(p.node):
		err = syscall.EBUSY
	case p.name == "":
		err = errInvalid
	default:
		err = v.removeTree(p.dir, p.name)
	}
	return pathError("remove", name, err)
}

// removeTree removes an entry and everything below it, children first. The caller holds mu.
func (v View) removeTree(dir *node, name string) error {
	type item struct {
		dir  *node
		name string
		seen bool // its children have been put on the stack
	}
	for todo := []item{{dir: dir, name: name}}; len(todo) > 0; {
		e := &todo[len(todo)-1]
		if e.dir.ino != 0 {
			e.dir = v.fs.nodes.get(e.dir.ino) // as it is now
		}
		n, err := v.child(e.dir, e.name)
		switch {
		case err != nil:
			return err
		case n == nil: // a source may lose it
			todo = todo[:len(todo)-1]
			continue
		case n.isMountRoot():
			return syscall.EBUSY
		}
		if n.isDir() && !e.seen {
			e.seen = true
			before := len(todo)
			err := v.list(n, func(child string, _ *node) bool {
				todo = append(todo, item{dir: n, name: child})
				return true
			})
			if err != nil {
				return err
			}
			if len(todo) > before {
				continue
			}
			e = &todo[len(todo)-1]
		}
		if err := v.mayChange(e.dir, n); err != nil {
			return err
		}
		if err := v.remove(place{dir: e.dir, name: e.name, node: n}); err != nil {
			return err
		}
		todo = todo[:len(todo)-1]
	}
	return nil
}

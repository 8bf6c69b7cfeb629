package vfs

import (
	"io/fs"
	"slices"
	"strings"
	"syscall"
)

// Limits of names, as on Linux.
const (
	maxName  = 255
	maxPath  = 4096
	maxLinks = 40 // symbolic links followed in one path
)

// Cred is the user of an operation. UID 0 passes every check.
type Cred struct {
	UID, GID uint32
	Groups   []uint32
}

// in reports whether c is a member of a group.
func (c Cred) in(gid uint32) bool { return c.GID == gid || slices.Contains(c.Groups, gid) }

// View is a filesystem with the rights of one user. It is a small value: copy it freely. Paths are
// absolute; a relative path starts at the root. Errors are *fs.PathError around a syscall.Errno.
type View struct {
	fs   *FS
	cred Cred
	by   any
}

// As returns the filesystem with the rights of c.
func (f *FS) As(c Cred) View { return View{fs: f, cred: c} }

// Root returns the filesystem with the rights of the superuser.
func (f *FS) Root() View { return View{fs: f} }

// For returns the view with a value that is passed to mounted sources at each call. With it,
// /proc/self can be different for each process.
func (v View) For(by any) View {
	v.by = by
	return v
}

// FS returns the filesystem behind the view.
func (v View) FS() *FS { return v.fs }

// Cred returns the user of the view.
func (v View) Cred() Cred { return v.cred }

// Permission bits for [View.Access].
const (
	MayExec  = 1
	MayWrite = 2
	MayRead  = 4
)

// may reports whether the viewer has all of the wanted bits on n.
func (v View) may(n *node, want fs.FileMode) bool {
	perm := n.mode.Perm()
	if v.cred.UID == 0 {
		return want&MayExec == 0 || n.isDir() || perm&0o111 != 0
	}
	switch {
	case n.uid == v.cred.UID:
		perm >>= 6
	case v.cred.in(n.gid):
		perm >>= 3
	}
	return perm&want == want
}

// place is the result of resolving a path: the directory of the last name, that name ("" for the
// root, or for a path that ends in . or ..), and the node, nil if it is missing.
type place struct {
	dir   *node
	name  string
	node  *node
	slash bool // the path asks for a directory
}

func (v View) path(p place) string {
	if p.name == "" {
		return v.fs.path(p.node)
	}
	return v.fs.join(p.dir, p.name)
}

// walk resolves a path. Only the last name may be missing. With follow, it follows a symbolic link
// at the end of the path. Without follow, it does so only if a slash stands after the link. The
// caller holds mu.
func (v View) walk(name string, follow bool) (place, error) { return v.resolve(name, follow, false) }

// entry resolves a path to a name that will be made, moved or removed. It never follows a link at
// the end, even with a slash after it.
func (v View) entry(name string) (place, error) { return v.resolve(name, false, true) }

// existing is entry for a name that must exist. It must be a directory if the path ends in a slash.
func (v View) existing(name string) (place, error) {
	p, err := v.entry(name)
	switch {
	case err != nil:
	case p.node == nil:
		err = syscall.ENOENT
	case p.slash && !p.node.isDir():
		err = errNotDir
	}
	return p, err
}

func (v View) resolve(name string, follow, entry bool) (place, error) {
	if name == "" {
		return place{}, syscall.ENOENT
	}
	if strings.IndexByte(name, 0) >= 0 {
		return place{}, syscall.EINVAL
	}
	if len(name) >= maxPath {
		return place{}, syscall.ENAMETOOLONG
	}
	root := v.fs.root()
	at := place{dir: root, node: root}
	rest, links, depth := name, 0, 0
	for {
		rest = strings.TrimLeft(rest, "/")
		if rest == "" {
			return at, nil
		}
		part, after, mustDir := strings.Cut(rest, "/") // a trailing slash requires a directory
		more := strings.TrimLeft(after, "/") != ""
		dir := at.node
		if !dir.isDir() {
			return place{}, syscall.ENOTDIR
		}
		if !v.may(dir, MayExec) {
			return place{}, syscall.EACCES
		}
		next, err := v.step(dir, part)
		if err != nil {
			return place{}, err
		}
		rest = after
		if next.node == nil {
			if more {
				return place{}, syscall.ENOENT
			}
			next.slash = mustDir
			return next, nil
		}
		if next.node.isLink() && (more || follow || mustDir && !entry) {
			if links++; links > maxLinks {
				return place{}, syscall.ELOOP
			}
			target := next.node.text
			if strings.HasPrefix(target, "/") {
				at, depth = place{dir: root, node: root}, 0
			}
			if rest = target + "/" + after; !mustDir {
				rest = target
			}
			if len(rest) >= 2*maxPath {
				return place{}, syscall.ENAMETOOLONG
			}
			continue
		}
		if mustDir && !next.node.isDir() && (more || !entry) {
			return place{}, syscall.ENOTDIR
		}
		switch {
		case part == "..":
			depth = max(depth-1, 0)
		case part != ".":
			if depth++; depth > maxDepth {
				return place{}, syscall.ENAMETOOLONG
			}
		}
		at = next
		at.slash = mustDir
	}
}

// step goes from dir to one entry, or up.
func (v View) step(dir *node, part string) (place, error) {
	switch {
	case part == ".":
		return place{dir: v.fs.up(dir), node: dir}, nil
	case part == "..":
		up := v.fs.up(dir)
		return place{dir: v.fs.up(up), node: up}, nil
	case len(part) > maxName:
		return place{}, syscall.ENAMETOOLONG
	}
	n, err := v.child(dir, part)
	return place{dir: dir, name: part, node: n}, err
}

// child returns an entry of a directory, or nil if there is none.
func (v View) child(dir *node, name string) (*node, error) {
	if dir.ino != 0 {
		if ino, ok := dir.ents.get(name); ok {
			n := v.fs.nodes.get(ino) // nil for 0: it is gone
			if n != nil && n.isPortal() {
				return n.mnt.lookup(v.by, dir, "", name)
			}
			return n, nil
		}
	}
	if dir.low == nil {
		return nil, nil
	}
	return dir.mnt.lookup(v.by, dir, dir.low.join(name), name)
}

// find resolves a path to a node that exists. The caller holds mu.
func (v View) find(name string, follow bool) (place, error) {
	p, err := v.walk(name, follow)
	if err == nil && p.node == nil {
		err = syscall.ENOENT
	}
	return p, err
}

// mayChange returns an error if the viewer may not add or remove entries of dir. With victim, it
// also checks whether the viewer may remove or replace that entry (the sticky bit).
func (v View) mayChange(dir, victim *node) error {
	if dir.mnt != nil && dir.mnt.readOnly() {
		return syscall.EROFS
	}
	if !v.may(dir, MayWrite|MayExec) {
		return syscall.EACCES
	}
	if victim != nil && dir.mode&fs.ModeSticky != 0 && v.cred.UID != 0 &&
		v.cred.UID != victim.uid && v.cred.UID != dir.uid {
		return syscall.EPERM
	}
	return nil
}

// owns returns an error if the viewer is neither the owner of n nor root.
func (v View) owns(n *node) error {
	if v.cred.UID != 0 && v.cred.UID != n.uid {
		return syscall.EPERM
	}
	return nil
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

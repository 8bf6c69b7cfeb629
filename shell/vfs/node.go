package vfs

import (
	"io/fs"
	"slices"
	"syscall"
	"time"
)

// node is one file, directory, link or device. A node in the table may be changed only by the FS
// with the node's generation, under that FS's lock. mut returns such a node, and makes a copy if
// necessary. An unchanged node of a source has no number and is not in the table. It lives for one
// operation only.
type node struct {
	ino      uint64
	gen      uint64
	mode     fs.FileMode
	uid, gid uint32
	links    int // directory entries
	dirs     int // for a directory: number of subdirectories
	accessed, modified,
	changed, created stamp
	attrs  map[string]string // never changed, only replaced
	parent uint64            // of a directory; for other files the directory of the last name
	name   string            // in parent

	ents   entries  // of a directory
	blocks []*block // for a file; a nil or missing block is a hole, or in the source
	size   int64    // of a file
	text   string   // target of a symbolic link, kind of a device

	mnt *mount // the node's mount, nil outside of mounts
	low *lower // what a source has below it
}

// stamp is a time without a pointer.
type stamp struct {
	sec  int64
	nsec int32
}

func stampOf(t time.Time) stamp        { return stamp{t.Unix(), int32(t.Nanosecond())} }
func (s stamp) time() time.Time        { return time.Unix(s.sec, int64(s.nsec)) }
func (s stamp) after(o stamp) bool     { return s.sec > o.sec || s.sec == o.sec && s.nsec > o.nsec }
func (f *FS) stamp() stamp             { return stampOf(f.now()) }
func (n *node) isDir() bool            { return n.mode.IsDir() }
func (n *node) isLink() bool           { return n.mode&fs.ModeSymlink != 0 }
func (n *node) has(t fs.FileMode) bool { return n.mode&t != 0 }

// device returns the kind of a device, and "" for any other file.
func (n *node) device() string {
	if n.has(fs.ModeDevice) {
		return n.text
	}
	return ""
}

// newNode makes a node owned by c. The caller holds mu and has charged the quota for it.
func (f *FS) newNode(mode fs.FileMode, c Cred) *node {
	f.lastIno++
	f.files++
	t := f.stamp()
	n := &node{ino: f.lastIno, gen: f.gen, mode: mode, uid: c.UID, gid: c.GID, accessed: t, modified: t, changed: t, created: t}
	f.nodes.set(f.gen, n.ino, n)
	return n
}

// mut returns the node with n's number in a form that may be changed. Pointers found before the
// call may refer to an old copy afterwards. The caller holds mu.
func (f *FS) mut(n *node) *node {
	if n.gen == f.gen {
		return n
	}
	if n = f.nodes.get(n.ino); n.gen == f.gen {
		return n
	}
	c := *n
	c.gen, c.blocks = f.gen, slices.Clone(n.blocks)
	f.nodes.set(f.gen, c.ino, &c)
	return &c
}

// root returns the root directory.
func (f *FS) root() *node { return f.nodes.get(f.top) }

// up returns the parent of a directory. The root is its own parent.
func (f *FS) up(n *node) *node {
	if n.ino == 0 {
		if n = n.low.up; n.ino == 0 {
			return n
		}
		n = f.nodes.get(n.ino)
	} else {
		n = f.nodes.get(n.parent)
	}
	if n == nil { // removed since: this can only be the directory of a file's last name
		return f.root()
	}
	return n
}

// isRoot reports whether n is the root directory.
func (f *FS) isRoot(n *node) bool { return n.ino == f.top && n.ino != 0 }

// link makes n an entry of dir, and returns the current copy of n. The caller holds mu.
func (f *FS) link(dir *node, name string, n *node) *node {
	d := f.mut(dir)
	n = f.mut(n)
	if ino, ok := d.ents.get(name); ok && ino == 0 {
		_ = f.charge(-goneCost) // giving back never fails
	}
	d.ents.put(f.gen, name, n.ino)
	d.modified = f.stamp()
	d.changed = d.modified
	if n.links++; n.links > 1 {
		_ = f.charge(linkCost) // the caller has checked the quota
	}
	n.changed = d.modified
	n.parent, n.name = d.ino, name
	if n.isDir() {
		d.dirs++
	}
	return n
}

// unlink removes an entry from dir, and frees the node if nothing uses it. The caller holds mu.
func (f *FS) unlink(by any, dir *node, name string, n *node) {
	d := f.mut(dir)
	f.hide(by, d, name)
	d.modified = f.stamp()
	d.changed = d.modified
	if n.isDir() && n.ino != 0 {
		d.dirs--
	}
	if n.ino == 0 {
		return // the source keeps it
	}
	n = f.mut(n)
	n.changed = d.modified
	if n.links--; n.links > 0 {
		_ = f.charge(-linkCost)
		return
	}
	f.release(n)
}

// hide removes a name from d, which belongs to this FS, so that the source's file does not appear.
func (f *FS) hide(by any, d *node, name string) {
	had, ok := d.ents.get(name)
	if d.low != nil && d.low.has(by, d.mnt, name) {
		if !ok || had != 0 {
			f.used += goneCost // a full disk must allow removing
		}
		d.ents.put(f.gen, name, 0)
	} else if ok {
		d.ents.del(f.gen, name)
	}
}

// release frees a node that has no entry and no open file.
func (f *FS) release(n *node) {
	if n.links > 0 {
		return
	}
	if f.opens[n.ino] != nil {
		if f.orphans == nil {
			f.orphans = map[uint64]struct{}{}
		}
		f.orphans[n.ino] = struct{}{}
		return
	}
	freed := nodeCost + n.extra() + goneCost*int64(n.ents.n)
	for _, b := range n.blocks {
		freed += b.cost()
	}
	_ = f.charge(-freed)
	f.files--
	f.nodes.del(f.gen, n.ino)
	delete(f.orphans, n.ino)
}

// extra is the cost of a node, besides the node itself and its contents.
func (n *node) extra() int64 { return attrCost(n.attrs) + int64(len(n.text)) }

func attrCost(attrs map[string]string) (n int64) {
	for k, v := range attrs {
		n += xattrCost + int64(len(k)+len(v))
	}
	return n
}

// maxDepth is the deepest directory that a path can reach. Moving directories can make deeper
// trees, but no path reaches their ends.
const maxDepth = 4096

// path returns the absolute path of a directory. The caller holds mu.
func (f *FS) path(n *node) string {
	var parts []string
	total := 0
	for range maxDepth {
		if f.isRoot(n) {
			break
		}
		parts = append(parts, n.name)
		total += len(n.name) + 1
		n = f.up(n)
	}
	if total == 0 {
		return "/"
	}
	out := make([]byte, 0, total)
	for _, p := range slices.Backward(parts) {
		out = append(append(out, '/'), p...)
	}
	return string(out)
}

// join returns the path of an entry of a directory.
func (f *FS) join(dir *node, name string) string {
	if f.isRoot(dir) {
		return "/" + name
	}
	return f.path(dir) + "/" + name
}

// The errors that most functions of this package return.
const (
	errNotDir      = syscall.ENOTDIR
	errAccess      = syscall.EACCES
	errInvalid     = syscall.EINVAL
	errReadOnly    = syscall.EROFS
	errNameTooLong = syscall.ENAMETOOLONG
)

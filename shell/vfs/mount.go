package vfs

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"time"
)

// Source is a tree of files that can be mounted. Paths have no slash at either end, and no ".",
// ".." or empty names; "" is the source's root. A source never follows symbolic links: the
// filesystem follows them in its own tree. Errors are syscall.Errno or wrap one; a missing file is
// ENOENT.
//
// Lookup and ReadDir are called under the filesystem's lock, and for an overlay Open too. They must
// return at once and must not call the filesystem. by is the value that [View.For] gave to the
// view, or nil. Many goroutines use a source at once.
type Source interface {
	// Lookup describes a file.
	Lookup(by any, path string) (Entry, error)
	// ReadDir describes all files in a directory, in any order.
	ReadDir(by any, path string) ([]Entry, error)
	// Open opens a regular file, for writing too if write is set. Other files are refused with
	// ENXIO.
	Open(by any, path string, write bool) (Handle, error)
}

// Writer is a source that can be changed. Its methods are called under the filesystem's lock, after
// the viewer's permissions have been checked.
type Writer interface {
	Source
	// Create makes an empty regular file. The error is EEXIST if the file exists.
	Create(path string, perm fs.FileMode) error
	Mkdir(path string, perm fs.FileMode) error
	Symlink(target, path string) error
	Link(old, path string) error
	// Rename replaces an existing file of the new name, as rename(2) does.
	Rename(from, to string) error
	// Remove removes a file or an empty directory.
	Remove(path string) error
	Chmod(path string, mode fs.FileMode) error
	// Chtimes sets the times that aren't zero. It is not called for symbolic links.
	Chtimes(path string, accessed, modified time.Time) error
}

// Handle is an open file of a source.
type Handle interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Stat() (Entry, error)
}

// Entry is a source's description of a file.
type Entry struct {
	Name     string // its name in its directory; not used by Lookup
	Ino      uint64
	Links    int
	Mode     fs.FileMode
	UID, GID uint32
	Size     int64
	Target   string // of a symbolic link
	Accessed time.Time
	Modified time.Time
	Changed  time.Time
}

// MountOptions say how a source is mounted. The zero value passes changes on to a
// source that is a [Writer].
type MountOptions struct {
	// ReadOnly refuses changes with EROFS.
	ReadOnly bool
	// Overlay keeps all changes in the filesystem. The source is only read, when its files are
	// needed. The quota counts the changes.
	Overlay bool
	// Owner, if given, owns all of the source's files.
	Owner *Cred
	// Name and Type are the values in /proc/mounts; "none" if empty.
	Name, Type string
}

// Mounted describes one mount in a list.
type Mounted struct {
	Path       string
	Name, Type string
	ReadOnly   bool
}

// mount is a mounted source. It never changes, and copies share it.
type mount struct {
	src     Source
	w       Writer // nil when changes are refused or stay in the FS
	overlay bool
	owner   *Cred
	dev     uint32
	root    uint64 // number of the node of the source's root
	covered uint64 // number of the hidden directory
	up      *mount // the previous mount, for the list
	told    Mounted
}

// lower is the part of a node that is in a source.
type lower struct {
	path string
	ino  uint64
	size int64 // for a file: visible bytes of the source's contents
	up   *node // for a node outside of the table: its parent directory
}

func (l *lower) join(name string) string {
	if l.path == "" {
		return name
	}
	return l.path + "/" + name
}

// has reports whether the source has a name in this directory.
func (l *lower) has(by any, m *mount, name string) bool {
	_, err := m.src.Lookup(by, l.join(name))
	return err == nil
}

func (m *mount) readOnly() bool { return !m.overlay && m.w == nil }

// isPortal reports whether a node of the table is only an entrance to a source.
func (n *node) isPortal() bool { return n.mnt != nil && !n.mnt.overlay }

// isMountRoot reports whether something is mounted at n.
func (n *node) isMountRoot() bool {
	return n.mnt != nil && (n.ino == n.mnt.root || n.ino == 0 && n.low.path == "")
}

// Mount mounts a source at a directory, and hides that directory's contents. At the root it must be
// an overlay, because nothing can be mounted below another kind of mount. [FS.Save] and [FS.Delta]
// leave out mounted files, and changes of an overlay too.
func (f *FS) Mount(path string, src Source, o MountOptions) error {
	m := &mount{src: src, overlay: o.Overlay && !o.ReadOnly, owner: o.Owner, told: Mounted{ReadOnly: o.ReadOnly, Name: cmp.Or(o.Name, "none"), Type: cmp.Or(o.Type, "none")}}
	if w, ok := src.(Writer); ok && !o.ReadOnly && !o.Overlay {
		m.w = w
	}
	if m.w == nil && !m.overlay && !o.ReadOnly {
		return pathError("mount", path, syscall.EROFS)
	}
	e, err := src.Lookup(nil, "")
	if err == nil && !e.Mode.IsDir() {
		err = errNotDir
	}
	if err == nil {
		err = f.mount(path, m, e)
	}
	return pathError("mount", path, errnoOf(err))
}

func (f *FS) mount(path string, m *mount, e Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.Root()
	p, err := v.find(path, true)
	switch {
	case err != nil:
		return err
	case !p.node.isDir():
		return errNotDir
	case p.node.isPortal(), p.node.isMountRoot():
		return syscall.EBUSY
	case f.isRoot(p.node) && !m.overlay:
		return syscall.EINVAL
	}
	under, err := v.raise(p.node)
	if err != nil {
		return err
	}
	f.lastDev++
	m.dev, m.covered, m.told.Path = f.lastDev, under.ino, f.path(under)
	n := f.newNode(e.Mode, Cred{})
	f.files--
	t := m.node(nil, "", under.name, e)
	n.uid, n.gid, n.accessed, n.modified, n.changed, n.created = t.uid, t.gid, t.accessed, t.modified, t.changed, t.modified
	n.mnt, n.low, n.links, n.parent, n.name = m, t.low, 1, under.parent, under.name
	m.root, m.up = n.ino, f.mounts
	if f.isRoot(under) {
		f.top, n.parent = n.ino, n.ino
	} else {
		d := f.mut(f.up(under))
		d.ents.put(f.gen, under.name, n.ino)
	}
	f.mounts = m
	return nil
}

// Mounts lists the mounts, oldest first.
func (f *FS) Mounts() []Mounted {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out []Mounted
	for m := f.mounts; m != nil; m = m.up {
		out = append(out, m.told)
	}
	slices.Reverse(out)
	return out
}

// node makes a node from a source's description. The node is not in the table.
func (m *mount) node(up *node, path, name string, e Entry) *node {
	n := &node{mode: e.Mode, uid: e.UID, gid: e.GID, links: max(e.Links, 1), size: max(e.Size, 0), text: e.Target, mnt: m, name: name,
		accessed: stampOf(e.Accessed), modified: stampOf(e.Modified), changed: stampOf(e.Changed), created: stampOf(e.Modified)}
	n.low = &lower{path: path, ino: e.Ino, up: up}
	if e.Mode.IsRegular() {
		n.low.size = n.size
	}
	if m.owner != nil {
		n.uid, n.gid = m.owner.UID, m.owner.GID
	}
	return n
}

// lookup asks the source for a file. The node is nil if there is none.
func (m *mount) lookup(by any, up *node, path, name string) (*node, error) {
	e, err := m.src.Lookup(by, path)
	switch err := errnoOf(err); err {
	case nil:
		return m.node(up, path, name, e), nil
	case syscall.ENOENT, syscall.ENOTDIR:
		return nil, nil
	default:
		return nil, err
	}
}

// source returns the path of a place in its source.
func (p place) source() string { return p.dir.low.join(p.name) }

// raise puts a node of an overlay's source into the table, with the directories above it. It
// returns a node that is already in the table unchanged. The caller holds mu.
func (v View) raise(n *node) (*node, error) {
	if n.ino != 0 {
		return v.fs.nodes.get(n.ino), nil
	}
	if !n.mnt.overlay {
		return nil, syscall.EROFS
	}
	var chain []*node
	for ; n.ino == 0; n = n.low.up {
		chain = append(chain, n)
	}
	n = v.fs.nodes.get(n.ino)
	for _, c := range slices.Backward(chain) {
		if ino, ok := n.ents.get(c.name); ok && ino != 0 {
			n = v.fs.nodes.get(ino) // by the operation that goes on
			continue
		}
		if err := v.fs.chargeNode(); err != nil {
			return nil, err
		}
		n = v.fs.adopt(n, c)
	}
	return n, nil
}

// adopt makes a source's node an entry of dir.
func (f *FS) adopt(dir, c *node) *node {
	n := f.newNode(c.mode, Cred{UID: c.uid, GID: c.gid})
	n.accessed, n.modified, n.changed, n.created = c.accessed, c.modified, c.changed, c.created
	n.size, n.text, n.mnt, n.links, n.name = c.size, c.text, c.mnt, 1, c.name
	n.low = &lower{path: c.low.path, ino: c.low.ino, size: c.low.size}
	f.used += int64(len(n.text))
	d := f.mut(dir)
	n.parent = d.ino
	d.ents.put(f.gen, c.name, n.ino)
	if n.isDir() {
		d.dirs++
	}
	// Open files of the source's file now use the new node.
	key := lowerKey{c.mnt, c.low.path}
	if l := f.lowers[key]; l != nil {
		delete(f.lowers, key)
		l.ino = n.ino
		f.opened(n.ino).count += l.count
	}
	return n
}

// lowerKey identifies a file of a source.
type lowerKey struct {
	m    *mount
	path string
}

// lowered is shared by the open files of one source's file in an overlay.
type lowered struct {
	path  string
	key   lowerKey
	count int
	ino   uint64 // once it is in the table
}

// hold records that a source's file is open. The caller holds mu.
func (f *FS) hold(n *node) *lowered {
	key := lowerKey{n.mnt, n.low.path}
	l := f.lowers[key]
	if l == nil {
		if f.lowers == nil {
			f.lowers = map[lowerKey]*lowered{}
		}
		l = &lowered{path: n.low.path, key: key}
		f.lowers[key] = l
	}
	l.count++
	return l
}

// unhold undoes hold. It returns the file's inode number, if it has one by now.
func (f *FS) unhold(l *lowered) uint64 {
	if l.ino != 0 {
		return l.ino
	}
	if l.count--; l.count == 0 {
		delete(f.lowers, l.key)
	}
	return 0
}

// list calls fn for the entries of a directory, in order, until fn returns false. The caller holds
// mu, and fn changes nothing.
func (v View) list(dir *node, fn func(name string, n *node) bool) error {
	if dir.low == nil {
		for name, ino := range dir.ents.all() {
			n := v.fs.nodes.get(ino)
			if n.isPortal() {
				n, _ = n.mnt.lookup(v.by, dir, "", name) // one that fails isn't shown
			}
			if n != nil && !fn(name, n) {
				break
			}
		}
		return nil
	}
	return v.listLower(dir, fn)
}

// listLower lists a source's directory, combined in an overlay with the filesystem's own entries.
func (v View) listLower(dir *node, fn func(name string, n *node) bool) error {
	low, err := dir.mnt.src.ReadDir(v.by, dir.low.path)
	if err = errnoOf(err); err == syscall.ENOENT && dir.mnt.overlay {
		err = nil // the source lost it
	}
	if err != nil {
		return err
	}
	slices.SortFunc(low, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	rest := low
	more := func(until string, all bool) bool {
		for len(rest) > 0 && (all || rest[0].Name < until) {
			e := rest[0]
			rest = rest[1:]
			if !fn(e.Name, dir.mnt.node(dir, dir.low.join(e.Name), e.Name, e)) {
				return false
			}
		}
		return true
	}
	for name, ino := range dir.ents.all() {
		if !more(name, false) {
			return nil
		}
		if len(rest) > 0 && rest[0].Name == name {
			rest = rest[1:]
		}
		n := v.fs.nodes.get(ino)
		if n != nil && n.isPortal() {
			n, _ = n.mnt.lookup(v.by, dir, "", name)
		}
		if n != nil && !fn(name, n) {
			return nil
		}
	}
	more("", true)
	return nil
}

// errnoOf returns the error number of an error, or EIO if there is none.
func errnoOf(err error) error {
	var no syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &no):
		return no
	case errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT
	case errors.Is(err, fs.ErrExist):
		return syscall.EEXIST
	case errors.Is(err, fs.ErrPermission):
		return syscall.EACCES
	case errors.Is(err, fs.ErrClosed):
		return syscall.EBADF
	}
	return syscall.EIO
}

package vfs

import (
	"io/fs"
	"maps"
	"strings"
	"time"
)

// Info describes a file.
type Info struct {
	Path     string // absolute, as it was resolved
	Name     string // the last name; "/" for the root
	Dev      uint64 // 1 for the filesystem's own files, another number for each mount
	Ino      uint64 // differs between mounts too
	Links    int
	Size     int64
	Used     int64 // bytes that its contents take
	Mode     fs.FileMode
	UID, GID uint32
	Accessed time.Time
	Modified time.Time
	Changed  time.Time // its contents or attributes
	Created  time.Time
	Target   string // of a symbolic link
	Device   string // kind of a device: null, zero, full or random
}

// info describes a node. The caller holds mu.
func (f *FS) info(path string, n *node) Info {
	i := Info{Path: path, Name: path[strings.LastIndexByte(path, '/')+1:], Dev: 1, Ino: n.ino, Links: n.links, Size: n.size,
		Mode: n.mode, UID: n.uid, GID: n.gid, Accessed: n.accessed.time(), Modified: n.modified.time(), Changed: n.changed.time(),
		Created: n.created.time(), Device: n.device()}
	if n.mnt != nil {
		i.Dev += uint64(n.mnt.dev)
		if n.low != nil { // the same number before and after a change
			i.Ino = uint64(n.mnt.dev)<<48 ^ n.low.ino
		} else {
			i.Ino |= 1 << 47
		}
	}
	switch {
	case n.isDir():
		if i.Size = 4096; n.low == nil {
			i.Links = 2 + n.dirs
		}
	case n.isLink():
		i.Target, i.Size = n.text, int64(len(n.text))
	}
	for _, b := range n.blocks {
		if b != nil {
			i.Used += int64(len(b.data))
		}
	}
	if n.low != nil && n.blocks == nil {
		i.Used = n.low.size
	}
	if i.Name == "" {
		i.Name = "/"
	}
	return i
}

// Stat describes a file, following links.
func (v View) Stat(name string) (Info, error) { return v.stat("stat", name, true) }

// Lstat describes a file and does not follow a link at the end.
func (v View) Lstat(name string) (Info, error) { return v.stat("lstat", name, false) }

func (v View) stat(op, name string, follow bool) (Info, error) {
	v.fs.mu.RLock()
	defer v.fs.mu.RUnlock()
	p, err := v.find(name, follow)
	if err != nil {
		return Info{}, pathError(op, name, err)
	}
	return v.fs.info(v.path(p), p.node), nil
}

// ReadDir lists a directory, sorted by name.
func (v View) ReadDir(name string) ([]Info, error) {
	v.fs.mu.RLock()
	defer v.fs.mu.RUnlock()
	p, err := v.find(name, true)
	switch {
	case err != nil:
	case !p.node.isDir():
		err = errNotDir
	case !v.may(p.node, MayRead):
		err = errAccess
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	dir := strings.TrimSuffix(v.fs.path(p.node), "/") + "/"
	out := make([]Info, 0, p.node.ents.n)
	err = v.list(p.node, func(name string, n *node) bool {
		out = append(out, v.fs.info(dir+name, n))
		return true
	})
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return out, nil
}

// Access reports an error unless the viewer has all of the wanted bits (MayRead,
// MayWrite, MayExec) on a file.
func (v View) Access(name string, want fs.FileMode) error {
	v.fs.mu.RLock()
	defer v.fs.mu.RUnlock()
	p, err := v.find(name, true)
	switch {
	case err != nil:
	case want&MayWrite != 0 && p.node.mnt != nil && p.node.mnt.readOnly():
		err = errReadOnly
	case !v.may(p.node, want):
		err = errAccess
	}
	return pathError("access", name, err)
}

// Readlink returns the target of a symbolic link.
func (v View) Readlink(name string) (string, error) {
	v.fs.mu.RLock()
	defer v.fs.mu.RUnlock()
	p, err := v.find(name, false)
	if err == nil && !p.node.isLink() {
		err = errInvalid
	}
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return p.node.text, nil
}

// EvalSymlinks returns the path of an existing file with every link resolved.
func (v View) EvalSymlinks(name string) (string, error) {
	i, err := v.stat("lstat", name, true)
	return i.Path, err
}

// Attrs returns a file's user attributes.
func (v View) Attrs(name string) (map[string]string, error) {
	v.fs.mu.RLock()
	defer v.fs.mu.RUnlock()
	p, err := v.find(name, true)
	if err != nil {
		return nil, pathError("getxattr", name, err)
	}
	return maps.Clone(p.node.attrs), nil
}

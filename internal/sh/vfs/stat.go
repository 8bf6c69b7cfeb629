package vfs

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
)

// Info describes a file.
type Info struct {
	Path     string // absolute, as it was resolved
	Name     string // the last name; "/" for the root
	Ino      uint64
	Links    int
	Size     int64
	Used     int64 // bytes that its contents take
	Mode     fs.FileMode
	UID, GID uint32
	Modified time.Time
	Target   string // of a symbolic link
}

// info describes a node. The caller holds mu.
func info(path string, n *node) Info {
	i := Info{Path: path, Name: path[strings.LastIndexByte(path, '/')+1:], Ino: n.ino, Links: n.links, Size: n.size,
		Mode: n.mode, UID: n.uid, GID: n.gid, Modified: n.mtime, Target: n.target}
	switch {
	case n.isDir():
		i.Size = 4096
		i.Links = 2
		for _, c := range n.entries {
			if c.isDir() {
				i.Links++
			}
		}
	case n.mode&fs.ModeSymlink != 0:
		i.Size = int64(len(n.target))
	}
	for _, b := range n.blocks {
		if b != nil {
			i.Used += int64(len(b.data))
		}
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
	return info(p.path(), p.node), nil
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
	dir := strings.TrimSuffix(p.node.path(), "/")
	out := make([]Info, 0, len(p.node.entries))
	for _, e := range slices.Sorted(maps.Keys(p.node.entries)) {
		out = append(out, info(dir+"/"+e, p.node.entries[e]))
	}
	return out, nil
}

// Access reports an error unless the viewer has all of the wanted bits (MayRead,
// MayWrite, MayExec) on a file.
func (v View) Access(name string, want fs.FileMode) error {
	v.fs.mu.RLock()
	defer v.fs.mu.RUnlock()
	p, err := v.find(name, true)
	if err == nil && !v.may(p.node, want) {
		err = errAccess
	}
	return pathError("access", name, err)
}

// Readlink returns where a symbolic link points.
func (v View) Readlink(name string) (string, error) {
	v.fs.mu.RLock()
	defer v.fs.mu.RUnlock()
	p, err := v.find(name, false)
	if err == nil && p.node.mode&fs.ModeSymlink == 0 {
		err = errInvalid
	}
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return p.node.target, nil
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

package erofs

import (
	"io/fs"
	"slices"
	"time"
)

// Extent is the place of a file's contents in the image.
type Extent struct {
	block uint32
	Size  int64
}

// Offset returns where the contents begin in the image file.
func (e Extent) Offset() int64 { return int64(e.block) * BlockSize }

// Node is one inode of the tree. A Node with two names is a hard link. The zero Node is an empty
// regular file without permissions.
type Node struct {
	Mode     fs.FileMode // type, permissions, setuid, setgid and sticky bits
	UID, GID uint32
	Data     Extent // contents of a regular file
	Target   string // of a symbolic link

	timed     bool // SetMtime was called with a time
	mtimeNsec uint32
	mtimeSec  int64
	links     uint32
	children  map[string]*Node

	nid   uint64 // given by Finish
	block uint32 // of a directory or link that does not fit inside its inode
}

// NewDir returns an empty directory owned by root.
func NewDir(perm fs.FileMode) *Node { return &Node{Mode: fs.ModeDir | perm} }

// NewSymlink returns a symbolic link owned by root.
func NewSymlink(target string) *Node {
	return &Node{Mode: fs.ModeSymlink | 0o777, Target: target}
}

// SetMtime sets the time of the last modification. A time before 1970 becomes 1970. Without
// SetMtime, or with the zero Time, the node gets the time of Finish.
func (n *Node) SetMtime(t time.Time) {
	n.timed = !t.IsZero()
	if t.Unix() < 0 {
		n.mtimeSec, n.mtimeNsec = 0, 0
		return
	}
	n.mtimeSec, n.mtimeNsec = t.Unix(), uint32(t.Nanosecond())
}

// Mtime returns the time of the last modification.
func (n *Node) Mtime() time.Time { return time.Unix(n.mtimeSec, int64(n.mtimeNsec)) }

// Newest returns the latest time of a modification in the tree below n, of those that were set. It
// is 1970 if there is none. As the time of Finish it makes equal trees equal images.
func (n *Node) Newest() time.Time {
	newest := time.Unix(0, 0)
	if t := n.Mtime(); n.timed && t.After(newest) {
		newest = t
	}
	for _, c := range n.children {
		if t := c.Newest(); t.After(newest) {
			newest = t
		}
	}
	return newest
}

// IsDir reports whether n is a directory.
func (n *Node) IsDir() bool { return n.Mode.IsDir() }

// Links returns how many names n has in the tree.
func (n *Node) Links() int { return int(n.links) }

// Child returns the child of that name, or nil.
func (n *Node) Child(name string) *Node { return n.children[name] }

// Len returns the number of children.
func (n *Node) Len() int { return len(n.children) }

// Names returns the children's names, sorted by byte.
func (n *Node) Names() []string {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Set puts child under a name of directory n. It returns the node that had the name before. The
// caller decides whether to call [Node.Release] for that node.
func (n *Node) Set(name string, child *Node) (old *Node) {
	old = n.children[name]
	if old == child {
		return nil
	}
	if n.children == nil {
		n.children = make(map[string]*Node)
	}
	n.children[name] = child
	child.links++
	return old
}

// Remove takes the child of that name out of directory n and returns it, or nil.
func (n *Node) Remove(name string) (old *Node) {
	old = n.children[name]
	delete(n.children, name)
	return old
}

// Release is called with a node that was taken out of the tree. It calls freed for the contents of
// every file that has lost its last name.
func (n *Node) Release(freed func(Extent)) {
	if n == nil {
		return
	}
	if n.links > 0 {
		n.links--
	}
	if n.links > 0 {
		return
	}
	for _, c := range n.children {
		c.Release(freed)
	}
	n.children = nil
	if n.Mode.IsRegular() && n.Data.Size > 0 {
		freed(n.Data)
	}
}

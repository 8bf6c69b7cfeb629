package vfs

import (
	"io/fs"
	"maps"
	"sync"
	"syscall"
	"time"
)

// What things cost against the quota, besides their bytes.
const (
	nodeCost  = 512 // one file, directory or link
	slotCost  = 8   // one block of a file, present or not
	blockSize = 32 << 10
)

// Options configures [New].
type Options struct {
	// Quota is how many bytes may be written on top of the start state; 0 means
	// no limit. Each file costs half a kilobyte besides its contents.
	Quota int64
	// Now is the clock of modification times; nil is time.Now.
	Now func() time.Time
}

// FS is a filesystem. Make one with [New] or [FS.Clone].
type FS struct {
	now func() time.Time

	mu      sync.RWMutex
	root    *node
	lastIno uint64
	quota   int64
	used    int64
	base    int64 // what was used when the quota began to count
	gen     *byte // identity of the owner of unshared blocks
	watches []*Watch
}

// node is one file, directory, link or device.
type node struct {
	ino      uint64
	mode     fs.FileMode
	uid, gid uint32
	mtime    time.Time
	links    int // directory entries
	opens    int // open files
	attrs    map[string]string

	entries map[string]*node // of a directory
	parent  *node            // of a directory; the root's is itself
	name    string           // of a directory

	blocks []*block // of a file; a nil or missing block is a hole
	size   int64    // of a file
	target string   // of a symbolic link
	device string   // of a device: null, zero, full, random
}

// block is up to blockSize bytes of a file. Only the FS whose gen it carries may
// change it.
type block struct {
	gen  *byte
	data []byte
}

func (n *node) isDir() bool { return n.mode.IsDir() }

// New returns a filesystem with nothing but a root directory of mode 0755.
func New(o Options) *FS {
	if o.Now == nil {
		o.Now = time.Now
	}
	f := &FS{now: o.Now, quota: o.Quota, gen: new(byte)}
	f.root = f.newNode(fs.ModeDir|0o755, Cred{})
	f.root.entries = map[string]*node{}
	f.root.parent, f.root.links = f.root, 1
	f.used = 0
	return f
}

// newNode makes a node owned by c. The caller holds mu and has paid for it.
func (f *FS) newNode(mode fs.FileMode, c Cred) *node {
	f.lastIno++
	n := &node{ino: f.lastIno, mode: mode, uid: c.UID, gid: c.GID, mtime: f.now()}
	if mode.IsDir() {
		n.entries = map[string]*node{}
	}
	return n
}

// charge takes n bytes from the quota. The caller holds mu.
func (f *FS) charge(n int64) error {
	if n > 0 && f.quota > 0 && f.used-f.base+n > f.quota {
		return syscall.ENOSPC
	}
	f.used += n
	return nil
}

// Usage returns the bytes written since the quota began to count, and the quota
// (0 without one).
func (f *FS) Usage() (used, quota int64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return max(f.used-f.base, 0), f.quota
}

// Clone returns an independent copy with a quota and clock of its own; what it
// holds at this moment is not counted against the quota. Open files and watches
// stay with the original.
func (f *FS) Clone(o Options) *FS {
	if o.Now == nil {
		o.Now = time.Now
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gen = new(byte) // from here on the blocks belong to nobody
	c := &FS{now: o.Now, quota: o.Quota, used: f.used, base: f.used, gen: new(byte), lastIno: f.lastIno}
	c.root = cloneTree(f.root)
	return c
}

// cloneTree copies a tree without recursion, so that no depth can exhaust the
// stack. Hard links stay hard links.
func cloneTree(root *node) *node {
	seen := map[*node]*node{}
	copyNode := func(n *node) *node {
		if c, ok := seen[n]; ok {
			return c
		}
		c := *n
		c.opens = 0
		c.attrs = maps.Clone(n.attrs)
		c.blocks = append([]*block(nil), n.blocks...)
		if n.isDir() || n.links > 1 {
			seen[n] = &c
		}
		return &c
	}
	top := copyNode(root)
	top.parent = top
	for todo := []*node{top}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		entries := make(map[string]*node, len(dir.entries))
		for name, child := range dir.entries {
			c := copyNode(child)
			if c.isDir() {
				c.parent = dir
				todo = append(todo, c)
			}
			entries[name] = c
		}
		dir.entries = entries
	}
	return top
}

// path returns the absolute path of a directory. The caller holds mu.
func (n *node) path() string {
	if n.parent == n {
		return "/"
	}
	var parts []string
	total := 0
	for d := n; d.parent != d; d = d.parent {
		parts = append(parts, d.name)
		total += len(d.name) + 1
	}
	out := make([]byte, 0, total)
	for i := len(parts) - 1; i >= 0; i-- {
		out = append(append(out, '/'), parts[i]...)
	}
	return string(out)
}

// join returns the path of an entry of a directory.
func join(dir *node, name string) string {
	p := dir.path()
	if p == "/" {
		return "/" + name
	}
	return p + "/" + name
}

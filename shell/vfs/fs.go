package vfs

import (
	"crypto/rand"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Costs that count against the quota, besides the bytes of contents.
const (
	nodeCost  = 512 // one file, directory or link
	linkCost  = 320 // one more name of a file
	goneCost  = 320 // a hidden name of a source
	xattrCost = 64  // one user attribute
	slotCost  = 8   // one block of a file, even a hole
	blockSize = 32 << 10
)

// Options configures [New]. The zero value has no limits.
type Options struct {
	// Quota is the number of bytes that may be written, beyond the start state; 0 means no limit.
	// Each file costs half a kilobyte besides its contents.
	Quota int64
	// Files is the number of files and directories that may be made, beyond the start state; 0
	// means no limit. Over it the error is ENOSPC, as on a disk without free inodes.
	Files int64
	// FileSize is the greatest size of a file, holes included; 0 is a terabyte. Over it the error
	// is EFBIG.
	FileSize int64
	// Now is the clock for the files' times; nil is time.Now.
	Now func() time.Time
	// Random makes the bytes of a random device; nil is the host's generator.
	Random func([]byte)
}

// FS is a filesystem. Make one with [New] or [FS.Clone].
type FS struct {
	now    func() time.Time
	random func([]byte)

	mu       sync.RWMutex
	nodes    table
	top      uint64 // number of the root
	lastIno  uint64
	lastDev  uint32
	gen      uint64 // only this FS may change objects of this generation
	quota    int64
	used     int64
	base     int64 // the value of used when the quota began to count
	maxFiles int64
	files    int64 // made since the start, minus those removed
	maxSize  int64
	opens    map[uint64]*opened    // by number
	lowers   map[lowerKey]*lowered // open files of sources
	orphans  map[uint64]struct{}   // without a name, but open
	mounts   *mount                // the last
	watches  []*Watch
}

// opened is shared by the open files of one node.
type opened struct {
	count  int
	shared any // see File.Shared
}

// generations counts generations. No number is used twice in a process.
var generations atomic.Uint64

// New returns a filesystem that has only a root directory of mode 0755.
func New(o Options) *FS {
	f := o.fs()
	n := f.newNode(fs.ModeDir|0o755, Cred{})
	n.parent, n.links = n.ino, 1
	f.top, f.files = n.ino, 0
	return f
}

// fs returns an FS without a root.
func (o Options) fs() *FS {
	f := &FS{now: o.Now, random: o.Random, quota: o.Quota, maxFiles: o.Files, maxSize: o.FileSize, gen: generations.Add(1)}
	if f.now == nil {
		f.now = time.Now
	}
	if f.random == nil {
		f.random = func(b []byte) { _, _ = rand.Read(b) } // never fails
	}
	if f.maxSize <= 0 || f.maxSize > maxSize {
		f.maxSize = maxSize
	}
	return f
}

// charge takes n bytes from the quota. The caller holds mu.
func (f *FS) charge(n int64) error {
	if n > 0 && f.quota > 0 && f.used-f.base+n > f.quota {
		return syscall.ENOSPC
	}
	f.used += n
	return nil
}

// chargeNode pays for one more node. The caller holds mu.
func (f *FS) chargeNode() error {
	if f.maxFiles > 0 && f.files >= f.maxFiles {
		return syscall.ENOSPC
	}
	return f.charge(nodeCost)
}

// Usage returns the bytes written since the quota began to count, and the quota
// (0 without one).
func (f *FS) Usage() (used, quota int64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return max(f.used-f.base, 0), f.quota
}

// Files returns the number of files made since the start, minus those removed, and the limit (0
// without one).
func (f *FS) Files() (made, limit int64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return max(f.files, 0), f.maxFiles
}

// Clone returns an independent copy with its own limits and clock. The present contents are not
// counted against the limits. The time that it takes does not depend on the contents: afterwards,
// both sides copy the parts that they change. The copy has the same mounts. Open files and watches
// stay with the original.
func (f *FS) Clone(o Options) *FS {
	c := o.fs()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gen = generations.Add(1) // from now on, neither side may change the existing objects in place
	c.nodes, c.top, c.mounts, c.lastIno, c.lastDev, c.used, c.base = f.nodes, f.top, f.mounts, f.lastIno, f.lastDev, f.used, f.used
	for ino := range f.orphans {
		c.nodes.del(c.gen, ino) // only open files of the original refer to it
	}
	return c
}

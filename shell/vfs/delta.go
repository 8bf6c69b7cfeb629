package vfs

import (
	"bytes"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
)

// Delta walks the differences between a filesystem and the one that it was cloned from. A directory
// comes before its entries, and names come in order. It follows [FS.Delta].
type Delta struct {
	stack []deltaDir
	queue []event
	now   *FS // the filesystem at the call of Delta, and the one to compare it with
	base  *FS
	dirty map[uint64]bool   // nodes with several names that must be reported completely
	first map[uint64]string // paths of those that were told
	path  []byte            // path of the reader's directory
	parts []int             // the length of path before each directory
}

// deltaDir is a directory on the current path.
type deltaDir struct {
	dir, base *node // base is nil below a directory that the base does not have
	name      string
	todo      []string
	told      bool
}

// event is one step of the walk. The encoder uses steps and no paths, because a path in a deep tree
// is as long as the tree is deep.
type event struct {
	kind byte
	name string
	node *node
}

// The steps. The encoding uses the same letters.
const (
	evEnter   = 'D' // into a directory, new or not
	evLeave   = 'U'
	evFile    = 'F'
	evSymlink = 'L'
	evDevice  = 'C'
	evFifo    = 'P'
	evLink    = 'H' // another name of a node that was already reported
	evGone    = 'W'
	evEnd     = 'E'
)

// Difference is one difference: a new or changed file, a directory that is new, changed or on the
// way to a change, or a name that is gone.
type Difference struct {
	Path   string // without a leading slash; "" for the root
	Gone   bool   // only the base has it; names below are not reported
	Info   Info   // set unless Gone; its Path is not set
	Attrs  map[string]string
	Device string // kind of a device: null, zero, full or random
	Link   string // the Path of another name of this file, reported before
	node   *node
}

// Blocks returns the contents of a file: offsets in order, with the bytes there. Gaps between them
// are holes. The bytes must not be changed.
func (d Difference) Blocks() iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		if d.node == nil {
			return
		}
		for i, b := range d.node.blocks {
			if b != nil && len(b.data) > 0 && !yield(int64(i)*blockSize, b.data) {
				return
			}
		}
	}
}

// Delta returns the differences between f and base at this moment. f or one of its ancestors must
// be a clone of base. Mounted files are not part of the differences: a mount point counts as the
// directory that the mount hides.
func (f *FS) Delta(base *FS) *Delta {
	d := &Delta{now: f.Clone(Options{}), base: base.Clone(Options{}), dirty: map[uint64]bool{}, first: map[uint64]string{}}
	if d.now.nodes == d.base.nodes && d.now.top == d.base.top {
		return d // nothing was changed
	}
	n, b := d.now.plain(d.now.top), d.base.plain(d.base.top)
	d.markLinks(n, b)
	d.push("", n, b)
	return d
}

// plain returns a node, without a mount on it.
func (f *FS) plain(ino uint64) *node {
	n := f.nodes.get(ino)
	for n != nil && n.isMountRoot() {
		n = f.nodes.get(n.mnt.covered)
	}
	return n
}

// entry returns the node of a name in a directory, without a mount on it. The directory may be nil.
func (f *FS) entry(dir *node, name string) *node {
	if dir == nil {
		return nil
	}
	ino, _ := dir.ents.get(name)
	return f.plain(ino)
}

// markLinks finds the files with several names that must be reported completely.
func (d *Delta) markLinks(root, base *node) {
	type pair struct{ n, b *node }
	for todo := []pair{{root, base}}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for name, ino := range p.n.ents.all() {
			c := d.now.plain(ino)
			if !c.isDir() && c.links < 2 {
				continue
			}
			b := d.base.entry(p.b, name)
			switch {
			case c.isDir():
				if b != nil && !b.isDir() {
					b = nil
				}
				todo = append(todo, pair{c, b})
			case b == nil || b.ino != c.ino || !same(c, b):
				d.dirty[c.ino] = true
			}
		}
	}
}

// same reports whether two nodes are equal. It ignores the entries of a directory.
func same(n, b *node) bool {
	if n == b {
		return true
	}
	if n.mode != b.mode || n.uid != b.uid || n.gid != b.gid || n.size != b.size || n.text != b.text ||
		n.modified != b.modified || !maps.Equal(n.attrs, b.attrs) {
		return false
	}
	return n.isDir() || n.links == b.links && slices.EqualFunc(n.blocks, b.blocks, func(x, y *block) bool {
		return x == y || x != nil && y != nil && bytes.Equal(x.data, y.data)
	})
}

// push goes into a directory.
func (d *Delta) push(name string, n, b *node) {
	if b != nil && !b.isDir() {
		b = nil
	}
	dir := deltaDir{dir: n, base: b, name: name}
	for child, ino := range n.ents.all() {
		c, o := d.now.plain(ino), d.base.entry(b, child)
		if o == nil || c.isDir() || c.links > 1 && d.dirty[c.ino] || !same(c, o) {
			dir.todo = append(dir.todo, child)
		}
	}
	if b != nil {
		for child := range b.ents.all() {
			if _, ok := n.ents.get(child); !ok {
				dir.todo = append(dir.todo, child)
			}
		}
		slices.Sort(dir.todo)
	}
	d.stack = append(d.stack, dir)
	if b == nil || !same(n, b) {
		d.tell()
	}
}

// tell queues the steps that lead into the walk's current directory.
func (d *Delta) tell() {
	for i := range d.stack {
		if dir := &d.stack[i]; !dir.told {
			dir.told = true
			d.queue = append(d.queue, event{evEnter, dir.name, dir.dir})
		}
	}
}

// step returns the next step. After the last one it returns evEnd at each call.
func (d *Delta) step() event {
	for {
		if len(d.queue) > 0 {
			e := d.queue[0]
			d.queue = d.queue[1:]
			return e
		}
		if len(d.stack) == 0 {
			return event{kind: evEnd}
		}
		dir := &d.stack[len(d.stack)-1]
		if len(dir.todo) == 0 {
			told := dir.told
			d.stack = d.stack[:len(d.stack)-1]
			if told {
				return event{kind: evLeave}
			}
			continue
		}
		name := dir.todo[0]
		dir.todo = dir.todo[1:]
		n := d.now.entry(dir.dir, name)
		if n != nil && n.isDir() {
			d.push(name, n, d.base.entry(dir.base, name))
			continue
		}
		d.tell()
		d.queue = append(d.queue, event{kindOf(n), name, n})
	}
}

// kindOf returns the step for an entry that is not a directory.
func kindOf(n *node) byte {
	switch {
	case n == nil:
		return evGone
	case n.mode&fs.ModeSymlink != 0:
		return evSymlink
	case n.has(fs.ModeNamedPipe):
		return evFifo
	case n.has(fs.ModeDevice):
		return evDevice
	}
	return evFile
}

// maxDeltaPath is the longest path that Next returns. No program could name a longer one.
const maxDeltaPath = maxPath

// Next returns the next difference, and io.EOF after the last. Moving deep directories can make
// paths that are too long for any program. For such a path the error is ENAMETOOLONG.
func (d *Delta) Next() (Difference, error) {
	for {
		e := d.step()
		switch e.kind {
		case evEnd:
			return Difference{}, io.EOF
		case evLeave:
			d.path = d.path[:d.parts[len(d.parts)-1]]
			d.parts = d.parts[:len(d.parts)-1]
			continue
		}
		before := len(d.path)
		if e.name != "" {
			if before > 0 {
				d.path = append(d.path, '/')
			}
			d.path = append(d.path, e.name...)
		}
		if len(d.path) >= maxDeltaPath {
			return Difference{}, pathError("read", string(d.path[:64])+"…", errNameTooLong)
		}
		path := string(d.path)
		if e.kind == evEnter {
			d.parts = append(d.parts, before)
		} else {
			d.path = d.path[:before]
		}
		return d.difference(path, e), nil
	}
}

func (d *Delta) difference(path string, e event) Difference {
	if e.kind == evGone {
		return Difference{Path: path, Gone: true}
	}
	x := Difference{Path: path, Info: d.now.info("/"+path, e.node), Attrs: e.node.attrs, Device: e.node.device(), node: e.node}
	x.Info.Path = ""
	if e.node.isDir() {
		return x
	}
	if x.Link = d.first[e.node.ino]; x.Link == "" && e.node.links > 1 {
		d.first[e.node.ino] = path
	}
	return x
}

// clampTime limits a time to the years that every format can represent.
func clampTime(t stamp) (sec int64, nsec int) {
	const first, last = -62135596800, 253402300799 // the years 1 to 9999
	switch {
	case t.sec < first:
		return first, 0
	case t.sec > last:
		return last, 0
	}
	return t.sec, int(t.nsec)
}

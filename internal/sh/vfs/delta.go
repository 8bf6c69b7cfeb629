package vfs

import (
	"bytes"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"time"
)

// Delta walks the differences between a filesystem and the one that it was cloned
// from, directories before what is in them, names in order. It follows [FS.Delta].
type Delta struct {
	stack []deltaDir
	queue []event
	dirty map[*node]bool   // nodes of several names, one of which is new or gone
	first map[*node]string // paths of those that were told
	path  []byte           // of the directory that the reader is in
	parts []int            // the length of path before each directory
}

// deltaDir is a directory on the way.
type deltaDir struct {
	dir, base *node // base is nil below what the base does not have
	name      string
	todo      []string
	told      bool
}

// event is one step of the walk. The encoder needs steps, not paths: those of deep
// trees are as long as the tree is deep.
type event struct {
	kind byte
	name string
	node *node
}

// The steps, which are also the encoding's.
const (
	evEnter   = 'D' // into a directory, new or not
	evLeave   = 'U'
	evFile    = 'F'
	evSymlink = 'L'
	evDevice  = 'C'
	evLink    = 'H' // another name of a node that was told
	evGone    = 'W'
	evEnd     = 'E'
)

// Difference is one difference: a file that is new or changed, a directory that is
// new, changed or leads to a change, or a name that is gone.
type Difference struct {
	Path   string // without a leading slash; "" for the root
	Gone   bool   // the base has it; nothing below is told of
	Info   Info   // unless Gone; its Path is not set
	Attrs  map[string]string
	Device string // of a device: null, zero, full or random
	Link   string // the Path of another name of this file, told before
	node   *node
}

// Blocks returns the contents of a file: offsets in order and the bytes at them. What
// lies between is a hole. The bytes must not be changed.
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

// Delta returns the differences between f and base, of which f or one of its
// ancestors must be a clone. They are those of this moment.
func (f *FS) Delta(base *FS) *Delta { return newDelta(f.Clone(Options{Now: f.now}).root, base.root) }

func newDelta(root, base *node) *Delta {
	d := &Delta{dirty: map[*node]bool{}, first: map[*node]string{}}
	d.markLinks(root, base)
	d.push("", root, base)
	return d
}

// markLinks finds the files of several names that must be told as a whole.
func (d *Delta) markLinks(root, base *node) {
	type pair struct{ n, b *node }
	for todo := []pair{{root, base}}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for name, c := range p.n.entries {
			var b *node
			if p.b != nil {
				b = p.b.entries[name]
			}
			switch {
			case c.isDir():
				todo = append(todo, pair{c, b})
			case c.links > 1 && (b == nil || b.ino != c.ino || !same(c, b)):
				d.dirty[c] = true
			}
		}
	}
}

// same reports whether two nodes can't be told apart, what is in a directory aside.
func same(n, b *node) bool {
	if n.mode != b.mode || n.uid != b.uid || n.gid != b.gid || n.size != b.size || n.target != b.target || n.device != b.device ||
		!n.mtime.Equal(b.mtime) || !maps.Equal(n.attrs, b.attrs) {
		return false
	}
	return n.isDir() || n.links == b.links && slices.EqualFunc(n.blocks, b.blocks, func(x, y *block) bool {
		return x == y || x != nil && y != nil && bytes.Equal(x.data, y.data)
	})
}

// push goes into a directory.
func (d *Delta) push(name string, n, b *node) {
	var children, old map[string]*node
	if children = n.entries; b != nil && b.isDir() {
		old = b.entries
	} else {
		b = nil
	}
	dir := deltaDir{dir: n, base: b, name: name}
	for child, c := range children {
		o := old[child]
		if o == nil || c.isDir() || c.links > 1 && d.dirty[c] || !same(c, o) {
			dir.todo = append(dir.todo, child)
		}
	}
	for child := range old {
		if children[child] == nil {
			dir.todo = append(dir.todo, child)
		}
	}
	slices.Sort(dir.todo)
	d.stack = append(d.stack, dir)
	if b == nil || !same(n, b) {
		d.tell()
	}
}

// tell queues the steps into the directory that the walk is in.
func (d *Delta) tell() {
	for i := range d.stack {
		if dir := &d.stack[i]; !dir.told {
			dir.told = true
			d.queue = append(d.queue, event{evEnter, dir.name, dir.dir})
		}
	}
}

// step returns the next step; evEnd is the last, again and again.
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
		n := dir.dir.entries[name]
		if n != nil && n.isDir() {
			var b *node
			if dir.base != nil {
				b = dir.base.entries[name]
			}
			d.push(name, n, b)
			continue
		}
		d.tell()
		d.queue = append(d.queue, event{kindOf(n), name, n})
	}
}

// kindOf is the step for an entry that is no directory.
func kindOf(n *node) byte {
	switch {
	case n == nil:
		return evGone
	case n.mode&fs.ModeSymlink != 0:
		return evSymlink
	case n.device != "":
		return evDevice
	}
	return evFile
}

// maxDeltaPath is the longest path that Next tells of: the longest that a program
// could name.
const maxDeltaPath = maxPath

// Next returns the next difference, io.EOF after the last. A path longer than any
// program could name, which moving deep directories can make, is ENAMETOOLONG.
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
	x := Difference{Path: path, Info: info("/"+path, e.node), Attrs: e.node.attrs, Device: e.node.device, node: e.node}
	x.Info.Path = ""
	if e.node.isDir() {
		return x
	}
	if x.Link = d.first[e.node]; x.Link == "" && e.node.links > 1 {
		d.first[e.node] = path
	}
	return x
}

// clampTime keeps a time within the years that every format can say.
func clampTime(t time.Time) (sec int64, nsec int) {
	const first, last = -62135596800, 253402300799 // the years 1 to 9999
	switch sec = t.Unix(); {
	case sec < first:
		return first, 0
	case sec > last:
		return last, 0
	}
	return sec, t.Nanosecond()
}

package vfs

import (
	"errors"
	"strings"
	"sync"
)

// Op is a kind of change.
type Op int

// The kinds of change. A move is a Rename of the old name and a Create of the new.
const (
	Create Op = iota + 1
	Write
	Remove
	Rename
	Chmod
)

// Change is one change below a watched directory.
type Change struct {
	Path string
	Op   Op
}

// ErrOverflow is the error of a watch whose reader is too slow.
var ErrOverflow = errors.New("watch: too many changes waiting")

// watchBuffer is the most changes that may wait for a reader.
const watchBuffer = 4096

// Watch delivers the changes below one directory until it is closed.
type Watch struct {
	fs        *FS
	dir       uint64 // number of the directory, 0 for a source's directory
	low       lowerKey
	recursive bool
	c         chan Change

	mu     sync.Mutex // after FS.mu
	closed bool
	err    error
}

// Watch watches a directory. With recursive, it also watches all directories below, including those
// made later.
func (v View) Watch(dir string, recursive bool) (*Watch, error) {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.find(dir, true)
	switch {
	case err != nil:
	case !p.node.isDir():
		err = errNotDir
	case !v.may(p.node, MayRead):
		err = errAccess
	}
	if err != nil {
		return nil, pathError("watch", dir, err)
	}
	n := p.node
	if n.ino == 0 && n.mnt.overlay { // a directory with a number can be followed when it is moved
		if n, err = v.raise(n); err != nil {
			return nil, pathError("watch", dir, err)
		}
	}
	w := &Watch{fs: v.fs, dir: n.ino, recursive: recursive, c: make(chan Change, watchBuffer)}
	if n.ino == 0 {
		w.low = lowerKey{n.mnt, n.low.path}
	}
	v.fs.watches = append(v.fs.watches, w)
	return w, nil
}

// C returns the channel of changes. It is closed when the watch ends.
func (w *Watch) C() <-chan Change { return w.c }

// Err returns the reason why a watch ended: nil after Close, ErrOverflow when the reader was too
// slow.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close ends the watch.
func (w *Watch) Close() error {
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	w.end(nil)
	return nil
}

// end closes the watch and removes it from the list. The caller holds FS.mu.
func (w *Watch) end(err error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed, w.err = true, err
	close(w.c)
	w.mu.Unlock()
	keep := make([]*Watch, 0, len(w.fs.watches))
	for _, o := range w.fs.watches {
		if o != w {
			keep = append(keep, o)
		}
	}
	w.fs.watches = keep
}

// is reports whether d is the watched directory.
func (w *Watch) is(d *node) bool {
	if w.dir != 0 {
		return d.ino == w.dir
	}
	return d.ino == 0 && d.mnt == w.low.m && d.low.path == w.low.path
}

// sees reports whether this watch reports changes of entries of dir.
func (w *Watch) sees(dir *node) bool {
	for range maxDepth {
		if w.is(dir) {
			return true
		}
		if !w.recursive || w.fs.isRoot(dir) {
			return false
		}
		dir = w.fs.up(dir)
	}
	return false // deeper than anybody gets
}

// notify reports the change of an entry to the watchers. The caller holds mu.
func (f *FS) notify(dir *node, name string, op Op) {
	for _, w := range f.watches { // end replaces the slice, so ranging over it is safe
		if name == "" || !w.sees(dir) {
			continue
		}
		select {
		case w.c <- Change{Path: f.join(dir, name), Op: op}:
		default:
			w.end(ErrOverflow)
		}
	}
}

// String returns the change's name.
func (o Op) String() string {
	names := [...]string{"", "create", "write", "remove", "rename", "chmod"}
	if o < 0 || int(o) >= len(names) {
		return "?"
	}
	return strings.Clone(names[o])
}

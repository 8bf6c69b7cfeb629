package vfs

import (
	"io"
	"io/fs"
	"syscall"
)

// Open opens a file for reading. A directory is refused with EISDIR.
func (v View) Open(name string) (*File, error) { return v.OpenFile(name, ReadOnly, 0) }

// OpenFile opens a file. A new file gets the mode perm.
func (v View) OpenFile(name string, flags Flags, perm fs.FileMode) (*File, error) {
	f, err := v.openFile(name, flags, perm)
	if err == nil && f.mnt != nil && f.ino == 0 {
		if err = f.connect(); err != nil { // without the lock, because the source may call the filesystem
			f.drop()
		}
	}
	if err == nil && f.handle != nil && flags&Truncate != 0 {
		if err = errnoOf(f.handle.Truncate(0)); err != nil {
			_ = f.Close() // the first error is returned
		}
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f, nil
}

func (v View) openFile(name string, flags Flags, perm fs.FileMode) (*File, error) {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.walk(name, flags&Exclusive == 0)
	if err == nil {
		err = v.prepare(&p, flags, perm)
	}
	if err != nil {
		return nil, err
	}
	f := &File{fs: v.fs, by: v.by, ino: p.node.ino, at: place{dir: p.dir, name: p.name}, path: v.path(p), mnt: p.node.mnt, flags: flags, kind: p.node.device()}
	switch {
	case p.node.has(fs.ModeNamedPipe):
		f.kind = "fifo"
	case p.node.ino == 0 && p.node.mnt.overlay:
		f.low = v.fs.hold(p.node)
	}
	if f.ino != 0 {
		v.fs.opened(f.ino).count++
	}
	return f, nil
}

// opened returns the object that open files of a node share. The caller holds mu.
func (f *FS) opened(ino uint64) *opened {
	o := f.opens[ino]
	if o == nil {
		if f.opens == nil {
			f.opens = map[uint64]*opened{}
		}
		o = &opened{}
		f.opens[ino] = o
	}
	return o
}

// prepare checks an open, and creates or truncates the file. The caller holds mu.
func (v View) prepare(p *place, flags Flags, perm fs.FileMode) error {
	if p.node == nil {
		if flags&CreateNew == 0 {
			return syscall.ENOENT
		}
		if p.slash {
			return syscall.EISDIR
		}
		n, err := v.put(*p, perm&modeBits, "")
		p.node = n
		return err
	}
	var want fs.FileMode
	if flags&ReadOnly != 0 {
		want |= MayRead
	}
	if flags&WriteOnly != 0 {
		want |= MayWrite
	}
	switch {
	case flags&(CreateNew|Exclusive) == CreateNew|Exclusive:
		return syscall.EEXIST
	case p.node.isLink(): // with Exclusive alone
		return syscall.ELOOP
	case p.node.isDir():
		return syscall.EISDIR
	case p.node.has(fs.ModeSocket):
		return syscall.ENXIO
	case !v.may(p.node, want):
		return errAccess
	}
	if flags&WriteOnly == 0 || !p.node.mode.IsRegular() {
		return nil
	}
	if m := p.node.mnt; m != nil && !m.overlay {
		if m.readOnly() {
			return syscall.EROFS
		}
		return nil
	}
	n, err := v.raise(p.node)
	if err != nil {
		return err
	}
	p.node = n
	if flags&Truncate != 0 {
		n = v.fs.mut(n)
		p.node = n
		had := n.size
		if err := v.fs.resize(v.by, n, 0); err != nil {
			return err
		}
		n.modified = v.fs.stamp()
		n.changed = n.modified
		if had > 0 {
			v.fs.notify(p.dir, p.name, Write)
		}
	}
	return nil
}

// node returns the file's node in the table, or nil for a source's file. The caller holds the FS's
// lock.
func (f *File) node() *node {
	ino := f.ino
	if ino == 0 && f.low != nil {
		ino = f.low.ino
	}
	if ino == 0 {
		return nil
	}
	return f.fs.nodes.get(ino)
}

// connect opens the source's contents. The caller holds f.mu, or no other goroutine has f.
func (f *File) connect() error {
	if f.handle != nil {
		return nil
	}
	path := ""
	switch {
	case f.at.name == "":
		return syscall.EISDIR
	case f.low != nil:
		path = f.low.path
	case f.ino != 0:
		f.fs.mu.RLock()
		path = f.node().low.path
		f.fs.mu.RUnlock()
	default:
		path = f.at.source()
	}
	h, err := f.mnt.src.Open(f.by, path, f.flags&WriteOnly != 0 && !f.mnt.overlay)
	f.handle = h
	return errnoOf(err)
}

// Close closes the file. A second Close does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	f.drop()
	if f.handle != nil {
		return pathError("close", f.path, errnoOf(f.handle.Close()))
	}
	return nil
}

// drop records that the file is no longer open.
func (f *File) drop() {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	ino := f.ino
	if f.low != nil {
		ino = f.fs.unhold(f.low)
	}
	if ino == 0 {
		return
	}
	o := f.fs.opens[ino]
	if o.count--; o.count > 0 {
		return
	}
	delete(f.fs.opens, ino)
	if n := f.fs.nodes.get(ino); n != nil {
		f.fs.release(n)
	}
}

// ReadFile returns the contents of a file.
func (v View) ReadFile(name string) ([]byte, error) {
	f, err := v.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.kind != "" && f.kind != "null" {
		return nil, pathError("read", name, errInvalid) // endless
	}
	size := 512
	if i, err := f.Stat(); err == nil {
		size = int(min(max(i.Size, 0), 1<<20)) + 1
	}
	out := make([]byte, 0, size)
	for {
		n, err := f.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if len(out) == cap(out) {
			out = append(out, 0)[:len(out)]
		}
	}
}

// WriteFile makes or replaces a file. A new file gets the mode perm.
func (v View) WriteFile(name string, data []byte, perm fs.FileMode) error {
	f, err := v.OpenFile(name, WriteOnly|CreateNew|Truncate, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

package vfs

import (
	"crypto/rand"
	"io"
	"io/fs"
	"sync"
	"syscall"
)

// Flags say how [View.OpenFile] opens.
type Flags int

// The flags. One of Read, Write or both is needed.
const (
	ReadOnly Flags = 1 << iota
	WriteOnly
	CreateNew // make it if missing
	Exclusive // with CreateNew: fail when it exists
	Truncate
	Append
)

// ReadWrite opens for both.
const ReadWrite = ReadOnly | WriteOnly

// File is an open file. It is safe for concurrent use.
type File struct {
	fs    *FS
	n     *node
	dir   *node // where it was found, for the watchers
	name  string
	path  string
	flags Flags

	mu     sync.Mutex
	off    int64
	closed bool
}

// Open opens a file for reading. A directory is refused with EISDIR.
func (v View) Open(name string) (*File, error) { return v.OpenFile(name, ReadOnly, 0) }

// OpenFile opens a file; perm is the mode of one that is made.
func (v View) OpenFile(name string, flags Flags, perm fs.FileMode) (*File, error) {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	p, err := v.walk(name, flags&Exclusive == 0)
	if err == nil {
		err = v.prepare(&p, flags, perm)
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	p.node.opens++
	return &File{fs: v.fs, n: p.node, dir: p.dir, name: p.name, path: p.path(), flags: flags}, nil
}

// prepare checks an open and does its creating and truncating. The caller holds mu.
func (v View) prepare(p *place, flags Flags, perm fs.FileMode) error {
	if p.node == nil {
		if flags&CreateNew == 0 {
			return syscall.ENOENT
		}
		n, err := v.put(*p, perm&modeBits)
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
	case flags&Exclusive != 0:
		return syscall.EEXIST
	case p.node.isDir():
		return syscall.EISDIR
	case !v.may(p.node, want):
		return errAccess
	}
	if flags&Truncate != 0 && p.node.device == "" && p.node.size > 0 {
		v.fs.resize(p.node, 0)
		p.node.mtime = v.fs.now()
		v.fs.notify(p.dir, p.name, Write)
	}
	return nil
}

// Stat describes the file.
func (f *File) Stat() (Info, error) {
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	return info(f.path, f.n), nil
}

// Device returns the kind of a device file and "" for any other.
func (f *File) Device() string { return f.n.device }

// Read reads from the offset on.
func (f *File) Read(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.flags&ReadOnly == 0 {
		return 0, pathError("read", f.path, syscall.EBADF)
	}
	if f.n.device != "" {
		return readDevice(f.n.device, b)
	}
	f.fs.mu.RLock()
	n := f.n.readAt(b, f.off)
	f.fs.mu.RUnlock()
	f.off += int64(n)
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func readDevice(kind string, b []byte) (int, error) {
	switch kind {
	case "zero", "full":
		clear(b)
		return len(b), nil
	case "random":
		return rand.Read(b)
	}
	return 0, io.EOF
}

// readAt copies what there is at off. The caller holds the FS's lock.
func (n *node) readAt(b []byte, off int64) int {
	if off >= n.size {
		return 0
	}
	b = b[:min(int64(len(b)), n.size-off)]
	for done := 0; done < len(b); {
		i, at := (off+int64(done))/blockSize, int((off+int64(done))%blockSize)
		part := b[done:min(len(b), done+blockSize-at)]
		k := 0
		if i < int64(len(n.blocks)) && n.blocks[i] != nil && at < len(n.blocks[i].data) {
			k = copy(part, n.blocks[i].data[at:])
		}
		clear(part[k:]) // a hole
		done += len(part)
	}
	return len(b)
}

// Write writes at the offset, or at the end of a file opened with Append. Over
// the quota it writes what fits and returns ENOSPC.
func (f *File) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.flags&WriteOnly == 0 {
		return 0, pathError("write", f.path, syscall.EBADF)
	}
	switch f.n.device {
	case "":
	case "full":
		return 0, pathError("write", f.path, syscall.ENOSPC)
	default:
		return len(b), nil
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.flags&Append != 0 {
		f.off = f.n.size
	}
	n, err := f.fs.writeAt(f.n, b, f.off)
	f.off += int64(n)
	if n > 0 {
		f.n.mtime = f.fs.now()
		if f.n.links > 0 && f.name != "" {
			f.fs.notify(f.dir, f.name, Write)
		}
	}
	return n, pathError("write", f.path, err)
}

// writeAt puts b into a node. The caller holds mu.
func (f *FS) writeAt(n *node, b []byte, off int64) (done int, err error) {
	if off > maxSize-int64(len(b)) {
		return 0, syscall.EFBIG
	}
	for done < len(b) {
		i, at := int((off+int64(done))/blockSize), int((off+int64(done))%blockSize)
		part := b[done:min(len(b), done+blockSize-at)]
		blk, err := f.own(n, i, at+len(part))
		if err != nil {
			return done, err
		}
		copy(blk.data[at:], part)
		done += len(part)
		n.size = max(n.size, off+int64(done))
	}
	return done, nil
}

// maxSize is the size over which a file may not grow, holes included.
const maxSize = 1 << 40

// own returns block i of a node, at least length long, for changing: charged for,
// and copied first when it is shared. The caller holds mu.
func (f *FS) own(n *node, i, length int) (*block, error) {
	if missing := i + 1 - len(n.blocks); missing > 0 {
		if err := f.charge(int64(missing) * slotCost); err != nil {
			return nil, err
		}
		n.blocks = append(n.blocks, make([]*block, missing)...)
	}
	b := n.blocks[i]
	had := 0
	if b != nil {
		had = len(b.data)
	}
	if length > had {
		if err := f.charge(int64(length - had)); err != nil {
			return nil, err
		}
	}
	switch {
	case b == nil:
		b = &block{gen: f.gen, data: make([]byte, length)}
	case b.gen != f.gen:
		c := &block{gen: f.gen, data: make([]byte, max(had, length))}
		copy(c.data, b.data)
		b = c
	case length > had:
		b.data = append(b.data, make([]byte, length-had)...)
	}
	n.blocks[i] = b
	return b, nil
}

// resize makes a file shorter, or longer by a hole. The caller holds mu.
func (f *FS) resize(n *node, size int64) {
	keep := int((size + blockSize - 1) / blockSize)
	var freed int64
	for i := keep; i < len(n.blocks); i++ {
		freed += slotCost
		if n.blocks[i] != nil {
			freed += int64(len(n.blocks[i].data))
		}
	}
	if keep < len(n.blocks) {
		n.blocks = n.blocks[:keep:keep]
	}
	if tail := int(size % blockSize); tail > 0 && keep > 0 && keep <= len(n.blocks) {
		if b := n.blocks[keep-1]; b != nil && len(b.data) > tail {
			freed += int64(len(b.data) - tail)
			c := &block{gen: f.gen, data: append([]byte(nil), b.data[:tail]...)}
			n.blocks[keep-1] = c
		}
	}
	n.size = size
	_ = f.charge(-freed) // giving back never fails
}

// Truncate changes the file's size.
func (f *File) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	switch {
	case f.flags&WriteOnly == 0 || f.n.device != "" || size < 0:
		return pathError("truncate", f.path, errInvalid)
	case size > maxSize:
		return pathError("truncate", f.path, syscall.EFBIG)
	}
	f.fs.resize(f.n, size)
	f.n.mtime = f.fs.now()
	if f.n.links > 0 && f.name != "" {
		f.fs.notify(f.dir, f.name, Write)
	}
	return nil
}

// Seek moves the offset.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += f.off
	case io.SeekEnd:
		f.fs.mu.RLock()
		offset += f.n.size
		f.fs.mu.RUnlock()
	}
	if offset < 0 {
		return 0, pathError("seek", f.path, errInvalid)
	}
	f.off = offset
	return offset, nil
}

// Close closes the file. A second Close does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.n.opens--
	f.fs.release(f.n)
	return nil
}

// ReadFile returns a file's contents.
func (v View) ReadFile(name string) ([]byte, error) {
	f, err := v.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.n.device != "" && f.n.device != "null" {
		return nil, pathError("read", name, errInvalid) // endless
	}
	return io.ReadAll(f)
}

// WriteFile makes or replaces a file; perm is the mode of one that is made.
func (v View) WriteFile(name string, data []byte, perm fs.FileMode) error {
	f, err := v.OpenFile(name, WriteOnly|CreateNew|Truncate, perm)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(data)
	return err
}

package vfs

import (
	"io"
	"sync"
	"syscall"
)

// Flags say how [View.OpenFile] opens a file.
type Flags int

// The flags. One of Read, Write or both is needed.
const (
	ReadOnly Flags = 1 << iota
	WriteOnly
	CreateNew // make it if missing
	Exclusive // with CreateNew: fail if the file exists
	Truncate
	Append
)

// ReadWrite opens for both.
const ReadWrite = ReadOnly | WriteOnly

// File is an open file. It is safe for concurrent use. Each operation finds the node by its number,
// so that the file stays valid after the filesystem was copied.
type File struct {
	fs    *FS
	by    any
	ino   uint64   // 0 while the file is only in a source
	at    place    // its place when it was opened, for watchers; dir's contents may be old
	low   *lowered // for a source's file in an overlay
	mnt   *mount
	path  string
	kind  string // see Kind
	flags Flags

	mu     sync.Mutex
	off    int64
	handle Handle // for a source's contents, opened when needed
	closed bool
}

// Stat describes the file.
func (f *File) Stat() (Info, error) {
	f.fs.mu.RLock()
	n := f.node()
	if n != nil {
		defer f.fs.mu.RUnlock()
		return f.fs.info(f.path, n), nil
	}
	f.fs.mu.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return Info{}, pathError("stat", f.path, syscall.EBADF)
	}
	e, err := f.handle.Stat()
	if err != nil {
		return Info{}, pathError("stat", f.path, errnoOf(err))
	}
	return f.fs.info(f.path, f.mnt.node(nil, "", f.at.name, e)), nil
}

// Device returns the kind of a device file, and "" for any other file.
func (f *File) Device() string {
	if f.kind == "fifo" {
		return ""
	}
	return f.kind
}

// Kind returns a device's kind, "fifo" for a named pipe, and "" for a regular file. A named pipe
// has no contents here: the code that opens it connects readers and writers through the value of
// [File.Shared].
func (f *File) Kind() string { return f.kind }

// Shared returns one value for all that have this file open. The first call makes it. The value is
// dropped when the last of them closes the file.
func (f *File) Shared(make func() any) any {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	o := f.fs.opened(f.ino)
	if o.shared == nil {
		o.shared = make()
	}
	return o.shared
}

// Read reads from the offset on.
func (f *File) Read(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.readAt(b, f.off)
	f.off += int64(n)
	return n, err
}

// ReadAt reads at an offset. It does not change the file's own offset.
func (f *File) ReadAt(b []byte, off int64) (done int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for done < len(b) && err == nil {
		var n int
		n, err = f.readAt(b[done:], off+int64(done))
		done += n
	}
	return done, err
}

// readAt reads the bytes that can be read at once. The caller holds f.mu.
func (f *File) readAt(b []byte, off int64) (int, error) {
	if f.closed || f.flags&ReadOnly == 0 {
		return 0, pathError("read", f.path, syscall.EBADF)
	}
	if f.kind != "" {
		return f.readDevice(b)
	}
	if len(b) == 0 {
		return 0, nil
	}
	f.fs.mu.RLock()
	node := f.node()
	n, source, old := 0, len(b), false
	if node != nil {
		n, source = node.readAt(b, off)
		// As in Linux, the access time is updated only if it is older than the last change. A file
		// that is shared with a copy isn't copied for this.
		old = node.gen == f.fs.gen && !node.accessed.after(node.modified)
	}
	f.fs.mu.RUnlock()
	if old {
		f.accessed()
	}
	if n > 0 {
		return n, nil
	}
	if source == 0 {
		return 0, io.EOF
	}
	if err := f.connect(); err != nil {
		return 0, pathError("read", f.path, err)
	}
	n, err := f.handle.ReadAt(b[:source], off)
	switch {
	case n > 0:
		return n, nil
	case err == nil || err == io.EOF:
		if node != nil { // the source shrank: its missing bytes read as zeros
			clear(b[:source])
			return source, nil
		}
		return 0, io.EOF
	}
	return 0, pathError("read", f.path, errnoOf(err))
}

// accessed sets the access time.
func (f *File) accessed() {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if n := f.node(); n != nil && n.gen == f.fs.gen {
		n.accessed = f.fs.stamp()
	}
}

func (f *File) readDevice(b []byte) (int, error) {
	switch f.kind {
	case "zero", "full":
		clear(b)
		return len(b), nil
	case "random":
		f.fs.random(b)
		return len(b), nil
	}
	return 0, io.EOF
}

// Write writes at the offset, or at the end of a file opened with Append. Over the quota it writes
// the bytes that fit and returns ENOSPC.
func (f *File) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.flags&WriteOnly == 0 {
		return 0, pathError("write", f.path, syscall.EBADF)
	}
	switch f.kind {
	case "":
	case "full":
		if len(b) == 0 {
			return 0, nil
		}
		return 0, pathError("write", f.path, syscall.ENOSPC)
	default:
		return len(b), nil
	}
	if f.ino == 0 {
		n, err := f.writeThrough(b)
		return n, pathError("write", f.path, err)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	node := f.fs.mut(f.node())
	if f.flags&Append != 0 {
		f.off = node.size
	}
	n, err := f.fs.writeAt(f.by, node, b, f.off)
	f.off += int64(n)
	if n > 0 {
		f.changed(node)
	}
	return n, pathError("write", f.path, err)
}

// changed records a write of contents. The caller holds the FS's lock.
func (f *File) changed(n *node) {
	n.modified = f.fs.stamp()
	n.changed = n.modified
	if len(f.fs.watches) == 0 {
		return
	}
	for _, hint := range []struct {
		dir  uint64
		name string
	}{{f.at.dir.ino, f.at.name}, {n.parent, n.name}} {
		if dir := f.fs.nodes.get(hint.dir); dir != nil && n.links > 0 {
			if ino, _ := dir.ents.get(hint.name); ino == n.ino {
				f.fs.notify(dir, hint.name, Write)
				return
			}
		}
	}
}

// Truncate changes the file's size.
func (f *File) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return pathError("truncate", f.path, syscall.EBADF)
	case f.flags&WriteOnly == 0 || f.kind != "" || size < 0:
		return pathError("truncate", f.path, errInvalid)
	case size > f.fs.maxSize:
		return pathError("truncate", f.path, syscall.EFBIG)
	}
	if f.ino == 0 {
		err := errnoOf(f.handle.Truncate(size))
		if err == nil {
			f.notifyThrough()
		}
		return pathError("truncate", f.path, err)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n := f.fs.mut(f.node())
	err := f.fs.resize(f.by, n, size)
	if err == nil {
		f.changed(n)
	}
	return pathError("truncate", f.path, err)
}

// Seek moves the offset.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	var size int64
	if whence == io.SeekEnd {
		i, err := f.Stat()
		if err != nil {
			return 0, err
		}
		size = i.Size
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.off
	case io.SeekEnd:
		offset += size
	default:
		return 0, pathError("seek", f.path, errInvalid)
	}
	if offset < 0 {
		return 0, pathError("seek", f.path, errInvalid)
	}
	f.off = offset
	return offset, nil
}

// Name returns the path at which the file was opened, with all links resolved. The file may have
// moved since.
func (f *File) Name() string { return f.path }

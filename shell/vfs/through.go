package vfs

import (
	"io/fs"
	"syscall"
)

// This file passes changes on to a source that is mounted for writing.

// putThrough makes a file in a source.
func (v View) putThrough(p place, mode fs.FileMode, text string) (*node, error) {
	w, path := p.dir.mnt.w, p.source()
	var err error
	switch {
	case mode.IsDir():
		err = w.Mkdir(path, mode.Perm())
	case mode&fs.ModeSymlink != 0:
		err = w.Symlink(text, path)
	case mode.IsRegular():
		err = w.Create(path, mode.Perm())
	default:
		err = syscall.EPERM
	}
	if err != nil {
		return nil, errnoOf(err)
	}
	n, err := p.dir.mnt.lookup(v.by, p.dir, path, p.name)
	if err == nil && n == nil {
		err = syscall.ENOENT // somebody took it away
	}
	if err == nil {
		v.fs.notify(p.dir, p.name, Create)
	}
	return n, err
}

// writeThrough writes to a source's file. The caller holds f.mu.
func (f *File) writeThrough(b []byte) (int, error) {
	if f.flags&Append != 0 {
		e, err := f.handle.Stat()
		if err != nil {
			return 0, errnoOf(err)
		}
		f.off = e.Size
	}
	if room := f.fs.maxSize - f.off; int64(len(b)) > room {
		return 0, syscall.EFBIG
	}
	n, err := f.handle.WriteAt(b, f.off)
	f.off += int64(n)
	if n > 0 {
		f.notifyThrough()
	}
	return n, errnoOf(err)
}

// notifyThrough tells the watchers that a source's file was written.
func (f *File) notifyThrough() {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.notify(f.at.dir, f.at.name, Write)
}

package vfs

import (
	"io"
	"io/fs"
	"maps"
	"slices"
)

// Bounds of the values in an encoding. Save stays far below them.
const (
	maxAttrs     = 4096
	maxAttrName  = 4 << 10
	maxAttrValue = 1 << 20
)

// encoder writes the encoding and keeps the first error.
type encoder struct {
	w   io.Writer
	err error
	buf []byte
}

// Save writes the difference between f and base at this moment. f or one of its ancestors must be a
// clone of base. [Load] reads it. The output has no checksum. It does not contain open files
// without a name, access times and mounted files.
//
// The encoding is the walk of a [Delta]: one letter for each step, then its fields. Numbers are
// varints. Texts and contents follow their length. A file with several names is written once, and
// then referred to by its number.
func (f *FS) Save(w io.Writer, base *FS) error {
	d := f.Delta(base)
	e := &encoder{w: w}
	numbers := map[uint64]uint64{} // of files with several names
	var count uint64
	for e.err == nil {
		s := d.step()
		if s.node != nil && !s.node.isDir() {
			if n, told := numbers[s.node.ino]; told {
				e.byte(evLink)
				e.text(s.name)
				e.number(n)
				continue
			}
			if s.node.links > 1 {
				numbers[s.node.ino] = count
			}
			count++
		}
		e.byte(s.kind)
		if s.kind == evEnd {
			break
		}
		if s.kind == evLeave {
			continue
		}
		e.text(s.name)
		if s.kind == evGone {
			continue
		}
		e.node(s.node)
	}
	e.flush()
	return e.err
}

// node writes everything of a node except its entries.
func (e *encoder) node(n *node) {
	e.number(uint64(n.mode))
	e.number(uint64(n.uid))
	e.number(uint64(n.gid))
	sec, nsec := clampTime(n.modified)
	e.number(uint64(sec)<<1 ^ uint64(sec>>63)) // small also when negative
	e.number(uint64(nsec))
	e.number(uint64(len(n.attrs)))
	for _, k := range slices.Sorted(maps.Keys(n.attrs)) {
		e.text(k)
		e.text(n.attrs[k])
	}
	switch kindOf(n) {
	case evSymlink:
		e.text(n.text)
	case evDevice:
		e.text(n.text)
	case evFile:
		if !n.mode.IsDir() {
			e.contents(n)
		}
	}
}

// contents writes a file's size and blocks. A block of length 0 ends them.
func (e *encoder) contents(n *node) {
	e.number(uint64(n.size))
	last := -1
	for i, b := range n.blocks {
		if b == nil || len(b.data) == 0 {
			continue
		}
		e.number(uint64(len(b.data)))
		e.number(uint64(i - last - 1))
		last = i
		e.flush()
		if e.err == nil {
			_, e.err = e.w.Write(b.data)
		}
		if e.err != nil {
			return
		}
	}
	e.number(0)
}

func (e *encoder) byte(b byte) { e.buf = append(e.buf, b) }

func (e *encoder) number(n uint64) {
	for ; n >= 0x80; n >>= 7 {
		e.buf = append(e.buf, byte(n)|0x80)
	}
	e.buf = append(e.buf, byte(n))
}

func (e *encoder) text(s string) {
	e.number(uint64(len(s)))
	e.buf = append(e.buf, s...)
	if len(e.buf) >= blockSize {
		e.flush()
	}
}

// flush writes the collected bytes.
func (e *encoder) flush() {
	if e.err == nil && len(e.buf) > 0 {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

// typeOf returns the type bits for a step.
func typeOf(kind byte) fs.FileMode {
	switch kind {
	case evEnter:
		return fs.ModeDir
	case evSymlink:
		return fs.ModeSymlink
	case evFifo:
		return fs.ModeNamedPipe
	case evDevice:
		return fs.ModeDevice | fs.ModeCharDevice
	}
	return 0
}

package erofs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of Read. Images come from this package's Writer, but their file may be damaged.
const (
	readNodes = 4_000_000
	readDepth = 4096
	readSmall = 64 << 20 // one directory
)

// errForeign means that an image has a form which this package does not write.
var errForeign = errors.New("this image was not written by Carrel")

// Read reads the tree of an image that a [Writer] wrote. The nodes' Data are places in that image.
func Read(f io.ReaderAt) (*Node, error) {
	sb := make([]byte, superSize)
	if _, err := f.ReadAt(sb, superOffset); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if le.Uint32(sb) != magic || sb[12] != 12 {
		return nil, errForeign
	}
	r := &treeReader{f: f, start: int64(le.Uint32(sb[40:])) * BlockSize, nodes: map[uint64]*Node{}}
	root, err := r.node(uint64(le.Uint16(sb[14:])), 0)
	if err == nil && !root.IsDir() {
		err = errForeign
	}
	return root, err
}

// treeReader reads the inodes of an image.
type treeReader struct {
	f     io.ReaderAt
	start int64 // of the inodes
	nodes map[uint64]*Node
}

// node reads an inode, and everything below a directory.
func (r *treeReader) node(nid uint64, depth int) (*Node, error) {
	if n := r.nodes[nid]; n != nil {
		if n.IsDir() {
			return nil, errors.New("a directory with two names")
		}
		return n, nil
	}
	if depth > readDepth || len(r.nodes) > readNodes {
		return nil, errors.New("the image has too many files, or directories too deep")
	}
	at := r.start + int64(nid)*inodeSlot
	b := make([]byte, inodeSize)
	if _, err := r.f.ReadAt(b, at); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	format := le.Uint16(b)
	layout := format >> 1 & 7
	if format&1 != 1 || layout != layoutPlain && layout != layoutInline || le.Uint16(b[2:]) != 0 {
		return nil, errForeign
	}
	n := &Node{Mode: goMode(le.Uint16(b[4:])), UID: le.Uint32(b[24:]), GID: le.Uint32(b[28:])}
	n.SetMtime(time.Unix(int64(le.Uint64(b[32:])), int64(le.Uint32(b[40:]))))
	size, block := le.Uint64(b[8:]), le.Uint32(b[16:])
	r.nodes[nid] = n
	switch {
	case n.Mode.IsRegular():
		if size > 1<<62 || layout != layoutPlain {
			return nil, errForeign
		}
		n.Data = Extent{Size: int64(size)}
		if size > 0 {
			n.Data.block = block
		}
		return n, nil
	case !n.IsDir() && n.Mode&fs.ModeSymlink == 0:
		return n, nil
	}
	if size > readSmall {
		return nil, fmt.Errorf("a directory of %d bytes", size)
	}
	body := make([]byte, size)
	from := at + inodeSize
	if layout == layoutPlain {
		from = int64(block) * BlockSize
	}
	if _, err := r.f.ReadAt(body, from); err != nil && !(errors.Is(err, io.EOF) && size == 0) {
		return nil, err
	}
	if !n.IsDir() {
		n.Target = string(body)
		return n, nil
	}
	return n, r.children(n, body, depth)
}

// children reads the entries of a directory.
func (r *treeReader) children(dir *Node, body []byte, depth int) error {
	le := binary.LittleEndian
	for len(body) > 0 {
		block := body[:min(BlockSize, len(body))]
		body = body[len(block):]
		if len(block) < direntSize {
			return errForeign
		}
		first := int(le.Uint16(block[8:]))
		count := first / direntSize
		if count < 1 || first > len(block) {
			return errForeign
		}
		for i := range count {
			d := block[i*direntSize:]
			from, to := int(le.Uint16(d[8:])), len(block)
			if i+1 < count {
				to = int(le.Uint16(block[(i+1)*direntSize+8:]))
			}
			if from > to || to > len(block) {
				return errForeign
			}
			name := block[from:to]
			for j, c := range name { // the last name of a full block ends with a zero byte
				if c == 0 {
					name = name[:j]
					break
				}
			}
			if s := string(name); s != "." && s != ".." {
				c, err := r.node(le.Uint64(d), depth+1)
				if err != nil {
					return fmt.Errorf("%s: %w", s, err)
				}
				dir.Set(s, c)
			}
		}
	}
	return nil
}

// goMode turns st_mode into a Go mode.
func goMode(m uint16) fs.FileMode {
	out := fs.FileMode(m & 0o777)
	switch m & 0o170000 {
	case 0o040000:
		out |= fs.ModeDir
	case 0o120000:
		out |= fs.ModeSymlink
	case 0o010000:
		out |= fs.ModeNamedPipe
	case 0o140000:
		out |= fs.ModeSocket
	case 0o020000:
		out |= fs.ModeDevice | fs.ModeCharDevice
	case 0o060000:
		out |= fs.ModeDevice
	}
	if m&0o4000 != 0 {
		out |= fs.ModeSetuid
	}
	if m&0o2000 != 0 {
		out |= fs.ModeSetgid
	}
	if m&0o1000 != 0 {
		out |= fs.ModeSticky
	}
	return out
}

// Extend begins a new image in the empty file f. The new image has all contents of the image base,
// at the same places, so that nodes which Read returned for base are right in it too. If the file
// system can, the two files share the contents on the disk.
func Extend(f, base *os.File) (*Writer, error) {
	info, err := base.Stat()
	if err != nil {
		return nil, err
	}
	w := NewWriter(f)
	w.next = max(uint64(info.Size()+BlockSize-1)/BlockSize, 1)
	if unix.IoctlFileClone(int(f.Fd()), int(base.Fd())) == nil {
		return w, nil
	}
	return w, copyHoles(f, base, info.Size())
}

// copyHoles copies the parts of a file that are no holes.
func copyHoles(to, from *os.File, size int64) error {
	if err := to.Truncate(size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		end := size
		if err == nil {
			end, err = unix.Seek(int(from.Fd()), begin, unix.SEEK_HOLE)
		}
		if err != nil { // a file system without holes
			begin, end = at, size
		}
		if err := copyRange(to, from, begin, end-begin); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// copyRange copies a part of a file, in the kernel if that is possible.
func copyRange(to, from *os.File, at, length int64) error {
	in, out := at, at
	for length > 0 {
		n, err := unix.CopyFileRange(int(from.Fd()), &in, int(to.Fd()), &out, int(min(length, 1<<30)), 0)
		if err != nil || n == 0 {
			_, err := io.Copy(io.NewOffsetWriter(to, out), io.NewSectionReader(from, in, length))
			return err
		}
		length -= int64(n)
	}
	return nil
}

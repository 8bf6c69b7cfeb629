package erofs

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"time"
)

// On-disk constants.
const (
	magic          = 0xE0F5E1E2
	superOffset    = 1024
	superSize      = 128
	inodeSize      = 64 // "extended": 32-bit ids and its own time
	inodeSlot      = 32 // inode numbers count these
	direntSize     = 12
	compatChecksum = 1
	compatMtime    = 2
	layoutPlain    = 0
	layoutInline   = 2
	// MaxName and MaxTarget are the limits of the format and of Linux.
	MaxName   = 255
	MaxTarget = 4095
)

// meta is the second half of writing an image: it places inodes and directories. Inodes follow the
// contents. Directories that don't fit beside their inode follow the inodes.
type meta struct {
	w      *Writer
	start  uint64 // first block of the inodes
	end    uint64 // first block after everything
	built  time.Time
	inodes []*Node // in order of their numbers
	root   uint64  // its number
	large  []*Node // directories and links with blocks of their own
	parent map[*Node]*Node
}

// plan gives each node its number and each large one its blocks.
func (m *meta) plan(root *Node) error {
	m.parent = map[*Node]*Node{root: root}
	seen := map[*Node]bool{}
	// Number 0 stays free: programs take a directory entry with number 0 for deleted.
	pos := uint64(inodeSize)
	var walk func(n *Node) error
	walk = func(n *Node) error {
		size, err := inlineSize(n)
		if err != nil {
			return err
		}
		// An inode and its inline data never cross a block's border.
		if pos%BlockSize+uint64(inodeSize+size) > BlockSize {
			pos = (pos + BlockSize - 1) / BlockSize * BlockSize
		}
		n.nid = pos / inodeSlot
		m.inodes = append(m.inodes, n)
		pos += uint64(inodeSize+size+inodeSlot-1) / inodeSlot * inodeSlot
		if size == 0 && (n.IsDir() || n.Mode&fs.ModeSymlink != 0) {
			m.large = append(m.large, n)
		}
		for _, name := range n.Names() {
			c := n.children[name]
			if c.links > 1 && !c.IsDir() {
				if seen[c] {
					continue
				}
				seen[c] = true
			}
			if c.IsDir() {
				m.parent[c] = n
			}
			if err := walk(c); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
	if err := walk(root); err != nil {
		return err
	}
	m.root = root.nid
	block := m.start + (pos+BlockSize-1)/BlockSize
	for _, n := range m.large {
		n.block = uint32(block)
		size := int64(len(n.Target))
		if n.IsDir() {
			size = direntsSize(n)
		}
		block += uint64(size+BlockSize-1) / BlockSize
	}
	if block > math.MaxUint32 {
		return ErrTooLarge
	}
	m.end = block
	return nil
}

// inlineSize returns the number of bytes stored behind n's inode: a small directory or a link's
// target. Contents of regular files are never stored there.
func inlineSize(n *Node) (int, error) {
	switch {
	case n.IsDir():
		for name := range n.children {
			if name == "" || len(name) > MaxName {
				return 0, fmt.Errorf("a name of %d bytes", len(name))
			}
		}
		if size := direntsSize(n); size <= BlockSize-inodeSize {
			return int(size), nil
		}
	case n.Mode&fs.ModeSymlink != 0:
		if len(n.Target) == 0 || len(n.Target) > MaxTarget {
			return 0, fmt.Errorf("a link target of %d bytes", len(n.Target))
		}
		if len(n.Target) <= BlockSize-inodeSize {
			return len(n.Target), nil
		}
	}
	return 0, nil
}

// write writes the inodes and then the large directories and links.
func (m *meta) write(root *Node) error {
	out := bufio.NewWriterSize(io.NewOffsetWriter(m.w.f, int64(m.start)*BlockSize), copySize)
	pos := int64(0)
	pad := func(to int64) error {
		for pos < to {
			n, err := out.Write(zeros[:min(to-pos, BlockSize)])
			pos += int64(n)
			if err != nil {
				return err
			}
		}
		return nil
	}
	put := func(p []byte) error {
		n, err := out.Write(p)
		pos += int64(n)
		return err
	}
	for i, n := range m.inodes {
		if err := pad(int64(n.nid) * inodeSlot); err != nil {
			return err
		}
		body := m.body(n)
		inline := len(body) > 0 && n.block == 0
		if err := put(m.inode(n, i+1, len(body), inline)); err != nil {
			return err
		}
		if inline {
			if err := put(body); err != nil {
				return err
			}
		}
	}
	for _, n := range m.large {
		if err := pad((int64(n.block) - int64(m.start)) * BlockSize); err != nil {
			return err
		}
		if err := put(m.body(n)); err != nil {
			return err
		}
	}
	if err := pad(int64(m.end-m.start) * BlockSize); err != nil {
		return err
	}
	return out.Flush()
}

// body returns the stored bytes of a directory or link.
func (m *meta) body(n *Node) []byte {
	switch {
	case n.IsDir():
		return dirents(n, m.parent[n])
	case n.Mode&fs.ModeSymlink != 0:
		return []byte(n.Target)
	}
	return nil
}

// inode encodes one inode. ino is the inode number that 32-bit programs see.
func (m *meta) inode(n *Node, ino, bodySize int, inline bool) []byte {
	b := make([]byte, inodeSize)
	le := binary.LittleEndian
	layout, size, block := uint16(layoutPlain), uint64(bodySize), n.block
	if inline {
		layout = layoutInline
	}
	if n.Mode.IsRegular() {
		size, block = uint64(n.Data.Size), n.Data.block
	}
	if !n.timed {
		n.SetMtime(m.built)
	}
	links := n.links
	if n.IsDir() {
		links = 2
		for _, c := range n.children {
			if c.IsDir() {
				links++
			}
		}
	}
	le.PutUint16(b[0:], 1|layout<<1)
	le.PutUint16(b[4:], unixMode(n.Mode))
	le.PutUint64(b[8:], size)
	le.PutUint32(b[16:], block) // for devices this is the device number, here always 0
	le.PutUint32(b[20:], uint32(ino))
	le.PutUint32(b[24:], n.UID)
	le.PutUint32(b[28:], n.GID)
	le.PutUint64(b[32:], uint64(n.mtimeSec))
	le.PutUint32(b[40:], n.mtimeNsec)
	le.PutUint32(b[44:], links)
	return b
}

// superblock encodes block 0.
func (m *meta) superblock() []byte {
	b := make([]byte, BlockSize)
	sb := b[superOffset:]
	le := binary.LittleEndian
	le.PutUint32(sb[0:], magic)
	le.PutUint32(sb[8:], compatChecksum|compatMtime)
	sb[12] = 12 // log2 of BlockSize
	le.PutUint16(sb[14:], uint16(m.root))
	le.PutUint64(sb[16:], uint64(len(m.inodes)))
	le.PutUint64(sb[24:], uint64(max(m.built.Unix(), 0)))
	le.PutUint32(sb[36:], uint32(m.end))
	le.PutUint32(sb[40:], uint32(m.start))
	// The checksum covers the block from the superblock on. Its own field counts as 0.
	le.PutUint32(sb[4:], ^crc32.Checksum(sb, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

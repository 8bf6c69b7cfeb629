// Package ext4 makes an empty ext4 filesystem for one use: a disk that lives as long as a sandbox.
// After a crash of the host the sandbox is gone. So the filesystem has no journal, no checksums and
// no spare copies of its tables. Blocks that are not written stay holes in the file.
//
// The format: https://docs.kernel.org/filesystems/ext4/globals.html
package ext4

import (
	"crypto/rand"
	"encoding/binary"
	"os"
	"time"
)

const (
	blockBytes     = 4096
	blocksPerGroup = 8 * blockBytes // one block holds this many bits
	inodeBytes     = 256
	bytesPerInode  = 8 << 10 // one inode for this much space
	firstInode     = 11      // inodes before it are reserved for the filesystem
	rootInode      = 2
	groupBytes     = 32 // of a group's descriptor
)

// geometry is the layout of a filesystem.
type geometry struct {
	blocks         uint32
	groups         uint32
	tableBlocks    uint32 // of all descriptors
	inodesPerGroup uint32
	inodeBlocks    uint32 // of one group's inodes
}

// layOut plans the room for bytes of contents and for the tables that describe them.
func layOut(bytes int64) geometry {
	blocks := bytes / blockBytes
	g := geometry{}
	groups := (blocks + blocksPerGroup - 1) / blocksPerGroup
	g.inodesPerGroup = uint32(min(bytes/bytesPerInode/groups+64, blocksPerGroup)) / 16 * 16
	g.inodeBlocks = g.inodesPerGroup * inodeBytes / blockBytes
	// The tables need additional blocks; that may need another group.
	total := blocks + groups*int64(g.inodeBlocks+2) + 64
	g.groups = uint32((total + blocksPerGroup - 1) / blocksPerGroup)
	total += int64(g.groups) * int64(g.inodeBlocks+2)
	total -= groups * int64(g.inodeBlocks+2)
	g.groups = uint32((total + blocksPerGroup - 1) / blocksPerGroup)
	g.tableBlocks = (g.groups*groupBytes + blockBytes - 1) / blockBytes
	total += int64(g.tableBlocks)
	if last := total % blocksPerGroup; last != 0 && last < int64(g.inodeBlocks)+16 {
		total += int64(g.inodeBlocks) + 16 // a last group with no room beyond its tables
	}
	g.groups = uint32((total + blocksPerGroup - 1) / blocksPerGroup)
	g.blocks = uint32(total)
	return g
}

// size is the number of blocks of a group.
func (g geometry) size(group uint32) uint32 {
	return min(blocksPerGroup, g.blocks-group*blocksPerGroup)
}

// start is the first block after the superblock and the descriptors. A group's tables begin there.
func (g geometry) start(group uint32) uint32 {
	if group == 0 {
		return 1 + g.tableBlocks
	}
	return group * blocksPerGroup
}

// taken is the number of blocks of a group that are in use at first. The root directory uses one.
func (g geometry) taken(group uint32) uint32 {
	n := g.start(group) - group*blocksPerGroup + 2 + g.inodeBlocks
	if group == 0 {
		n++
	}
	return n
}

// Size is the size of the file with a filesystem for bytes of contents.
func Size(bytes int64) int64 { return int64(layOut(bytes).blocks) * blockBytes }

// Make writes an empty filesystem for bytes of contents into an empty file.
func Make(f *os.File, bytes int64) error {
	g := layOut(bytes)
	if err := f.Truncate(int64(g.blocks) * blockBytes); err != nil {
		return err
	}
	head := make([]byte, (1+g.tableBlocks)*blockBytes)
	var free uint32
	for i := range g.groups {
		bits := g.bitmaps(i)
		if _, err := f.WriteAt(bits, int64(g.start(i))*blockBytes); err != nil {
			return err
		}
		d := head[blockBytes+i*groupBytes:]
		put32(d, 0x00, g.start(i))
		put32(d, 0x04, g.start(i)+1)
		put32(d, 0x08, g.start(i)+2)
		left, inodes := g.size(i)-g.taken(i), g.inodesPerGroup
		free += left
		if i == 0 {
			inodes -= firstInode - 1
			put16(d, 0x10, 1) // one directory
		}
		put16(d, 0x0c, uint16(left))
		put16(d, 0x0e, uint16(inodes))
	}
	g.superblock(head[1024:], free)
	if err := g.root(f); err != nil {
		return err
	}
	_, err := f.WriteAt(head, 0)
	return err
}

// bitmaps returns a group's two bitmap blocks: which of its blocks and which of its inodes are in
// use.
func (g geometry) bitmaps(group uint32) []byte {
	b := make([]byte, 2*blockBytes)
	set := func(bits []byte, from, to uint32) {
		for i := from; i < to; i++ {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	set(b, 0, g.taken(group))
	set(b, g.size(group), blocksPerGroup) // blocks that don't exist count as used
	if group == 0 {
		set(b[blockBytes:], 0, firstInode-1)
	}
	set(b[blockBytes:], g.inodesPerGroup, blocksPerGroup)
	return b
}

// superblock fills it in.
func (g geometry) superblock(s []byte, free uint32) {
	now := uint32(time.Now().Unix())
	for at, v := range map[int]uint32{
		0x00: g.inodesPerGroup * g.groups,
		0x04: g.blocks,
		0x0c: free,
		0x10: g.inodesPerGroup*g.groups - (firstInode - 1),
		0x18: 2, 0x1c: 2, // blocks of 1024<<2 bytes
		0x20: blocksPerGroup, 0x24: blocksPerGroup, 0x28: g.inodesPerGroup,
		0x30: now, 0x40: now,
		0x4c: 1, // a revision with features
		0x54: firstInode,
		0x5c: 0x8 | 0x20 | 0x200,            // attributes, indexed directories, no spare copies
		0x60: 0x2 | 0x40,                    // types in directories, extents
		0x64: 0x1 | 0x2 | 0x8 | 0x20 | 0x40, // large files, many directories, large inodes
		0xec: 0x5ca1ab1e, 0xf0: 0xdecafbad,  // seed of the hashes; see below for the rest
	} {
		put32(s, at, v)
	}
	put16(s, 0x36, 0xffff) // never "check me"
	put16(s, 0x38, 0xef53)
	put16(s, 0x3a, 1) // clean
	put16(s, 0x3c, 1) // go on after errors
	put16(s, 0x58, inodeBytes)
	put16(s, 0xfe, groupBytes)
	put16(s, 0x15c, 32) // extra bytes of every inode
	put16(s, 0x15e, 32)
	s[0xfc] = 1                    // half MD4
	_, _ = rand.Read(s[0x68:0x78]) // its name
	_, _ = rand.Read(s[0xec:0xfc]) // so that nobody can make names that collide
}

// root writes the root directory: its inode and its one block.
func (g geometry) root(f *os.File) error {
	now := uint32(time.Now().Unix())
	block := g.start(0) + 2 + g.inodeBlocks
	i := make([]byte, inodeBytes)
	put16(i, 0x00, 0o040755)
	put32(i, 0x04, blockBytes)
	for _, at := range []int{0x08, 0x0c, 0x10, 0x90} {
		put32(i, at, now)
	}
	put16(i, 0x1a, 2) // links
	put32(i, 0x1c, blockBytes/512)
	put32(i, 0x20, 0x80000) // extents
	put16(i, 0x28, 0xf30a)  // one of four
	put16(i, 0x2a, 1)
	put16(i, 0x2c, 4)
	put16(i, 0x38, 1) // its length: one block
	put32(i, 0x3c, block)
	put16(i, 0x80, 32)
	at := int64(g.start(0)+2)*blockBytes + (rootInode-1)*inodeBytes
	if _, err := f.WriteAt(i, at); err != nil {
		return err
	}
	b := make([]byte, blockBytes)
	entry := func(b []byte, length int, name string) {
		put32(b, 0, rootInode)
		put16(b, 4, uint16(length))
		b[6], b[7] = byte(len(name)), 2
		copy(b[8:], name)
	}
	entry(b, 12, ".")
	entry(b[12:], blockBytes-12, "..")
	_, err := f.WriteAt(b, int64(block)*blockBytes)
	return err
}

func put16(b []byte, at int, v uint16) { binary.LittleEndian.PutUint16(b[at:], v) }
func put32(b []byte, at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }

package ext4

import (
	"encoding/binary"
	"errors"
	"io"
)

// Disk is a filesystem's file or device.
type Disk interface {
	io.ReaderAt
	io.WriterAt
}

// groupsPerTableBlock is how many descriptors a block holds.
const groupsPerTableBlock = blockBytes / groupBytes

// Grow makes a filesystem of [Make] as large as its disk, of size bytes. It is not mounted. What is
// behind its end must be zeros. The table of groups does not grow, so a filesystem can't become
// larger than 16 GiB for each block of its table; Grow then stops there. A filesystem that is large
// enough stays as it is.
func Grow(disk Disk, size int64) error {
	head := make([]byte, blockBytes)
	if _, err := disk.ReadAt(head, 0); err != nil {
		return err
	}
	super := head[1024:2048]
	get := func(at int) uint32 { return binary.LittleEndian.Uint32(super[at:]) }
	g := geometry{blocks: get(0x04), inodesPerGroup: get(0x28)}
	if binary.LittleEndian.Uint16(super[0x38:]) != 0xef53 || g.blocks == 0 || g.inodesPerGroup == 0 || g.inodesPerGroup > blocksPerGroup {
		return errors.New("no filesystem of ours")
	}
	g.inodeBlocks = g.inodesPerGroup * inodeBytes / blockBytes
	g.groups = groupsOf(g.blocks)
	g.tableBlocks = (g.groups + groupsPerTableBlock - 1) / groupsPerTableBlock
	old := g
	g.blocks = uint32(min(size/blockBytes, int64(g.tableBlocks)*groupsPerTableBlock*blocksPerGroup))
	g.groups = groupsOf(g.blocks)
	if g.groups > old.groups && g.size(g.groups-1) < g.inodeBlocks+16 { // no room beyond its tables
		g.groups--
		g.blocks = g.groups * blocksPerGroup
	}
	if g.blocks <= old.blocks {
		return nil
	}
	table := make([]byte, g.tableBlocks*blockBytes)
	if _, err := disk.ReadAt(table, blockBytes); err != nil {
		return err
	}
	free, err := g.widen(disk, table[(old.groups-1)*groupBytes:], old)
	if err != nil {
		return err
	}
	for i := old.groups; i < g.groups; i++ {
		if _, err := disk.WriteAt(g.bitmaps(i), int64(g.start(i))*blockBytes); err != nil {
			return err
		}
		g.describe(table[i*groupBytes:], i)
		free += g.size(i) - g.taken(i)
	}
	if _, err := disk.WriteAt(table, blockBytes); err != nil {
		return err
	}
	more := (g.groups - old.groups) * g.inodesPerGroup
	put32(super, 0x00, get(0x00)+more)
	put32(super, 0x04, g.blocks)
	put32(super, 0x0c, get(0x0c)+free)
	put32(super, 0x10, get(0x10)+more)
	_, err = disk.WriteAt(super, 1024)
	return err
}

func groupsOf(blocks uint32) uint32 { return (blocks + blocksPerGroup - 1) / blocksPerGroup }

// widen gives the blocks that the last group of before gets to it. It returns their number.
func (g geometry) widen(disk Disk, descriptor []byte, before geometry) (uint32, error) {
	last := before.groups - 1
	from, to := before.size(last), g.size(last)
	if from == to {
		return 0, nil
	}
	bits := make([]byte, blockBytes)
	at := int64(binary.LittleEndian.Uint32(descriptor)) * blockBytes
	if _, err := disk.ReadAt(bits, at); err != nil {
		return 0, err
	}
	for i := from; i < to; i++ {
		bits[i/8] &^= 1 << (i % 8)
	}
	if _, err := disk.WriteAt(bits, at); err != nil {
		return 0, err
	}
	put16(descriptor, 0x0c, binary.LittleEndian.Uint16(descriptor[0x0c:])+uint16(to-from))
	return to - from, nil
}

// describe writes the descriptor of an empty group, which is not the first one.
func (g geometry) describe(d []byte, group uint32) {
	put32(d, 0x00, g.start(group))
	put32(d, 0x04, g.start(group)+1)
	put32(d, 0x08, g.start(group)+2)
	put16(d, 0x0c, uint16(g.size(group)-g.taken(group)))
	put16(d, 0x0e, uint16(g.inodesPerGroup))
}

package vfs

import (
	"io"
	"syscall"
)

// maxSize is the greatest size of a file, holes included.
const maxSize = 1 << 40

// block is up to blockSize bytes of a file. Only the FS with the block's generation may change it.
type block struct {
	gen  uint64
	data []byte
}

// cost is the quota cost of a block's slot and bytes.
func (b *block) cost() int64 {
	if b == nil {
		return slotCost
	}
	return slotCost + int64(len(b.data))
}

// below returns how many bytes of the source's file are still visible in n.
func (n *node) below() int64 {
	if n.low == nil {
		return 0
	}
	return n.low.size
}

// at returns at most want bytes of contents at off, and does not go past the block. It returns
// bytes, or a number of zeros, or a number of bytes that are in the source.
func (n *node) at(off int64, want int) (data []byte, zeros, source int) {
	want = int(min(int64(want), n.size-off))
	if want <= 0 {
		return nil, 0, 0
	}
	i, at := off/blockSize, int(off%blockSize)
	want = min(want, blockSize-at)
	if i < int64(len(n.blocks)) && n.blocks[i] != nil {
		if b := n.blocks[i].data; at < len(b) {
			return b[at:min(len(b), at+want)], 0, 0
		}
		return nil, want, 0
	}
	if below := n.below(); off < below {
		return nil, 0, int(min(int64(want), below-off))
	}
	return nil, want, 0
}

// readAt copies the bytes at off, up to the first byte that is in the source. The caller holds the
// FS's lock.
func (n *node) readAt(b []byte, off int64) (done, source int) {
	for done < len(b) {
		data, zeros, source := n.at(off+int64(done), len(b)-done)
		switch {
		case len(data) > 0:
			done += copy(b[done:], data)
		case zeros > 0:
			clear(b[done : done+zeros])
			done += zeros
		default:
			return done, source
		}
	}
	return done, 0
}

// writeAt writes b into a node that belongs to this FS. The caller holds mu.
func (f *FS) writeAt(by any, n *node, b []byte, off int64) (done int, err error) {
	if room := f.maxSize - off; int64(len(b)) > room {
		if room <= 0 {
			return 0, syscall.EFBIG
		}
		b, err = b[:room], syscall.EFBIG
	}
	for done < len(b) {
		i, at := int((off+int64(done))/blockSize), int((off+int64(done))%blockSize)
		part := b[done:min(len(b), done+blockSize-at)]
		blk, err := f.own(by, n, i, at+len(part))
		if err != nil {
			return done, err
		}
		copy(blk.data[at:], part)
		done += len(part)
		n.size = max(n.size, off+int64(done))
	}
	return done, err
}

// own returns block i of a node that belongs to this FS, in a form that may be changed and at least
// length long. It charges the quota. It first copies a block that is shared or in a source. The
// caller holds mu.
func (f *FS) own(by any, n *node, i, length int) (*block, error) {
	if missing := i + 1 - len(n.blocks); missing > 0 {
		if err := f.charge(int64(missing) * slotCost); err != nil {
			return nil, err
		}
		n.blocks = append(n.blocks, make([]*block, missing)...)
	}
	b := n.blocks[i]
	if b == nil && int64(i)*blockSize < n.below() {
		var err error
		if b, err = f.fetch(by, n, i); err != nil {
			return nil, err
		}
	}
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

// fetch reads a block of a source's file, and charges the quota.
func (f *FS) fetch(by any, n *node, i int) (*block, error) {
	off := int64(i) * blockSize
	size := min(blockSize, n.low.size-off)
	if err := f.charge(size); err != nil {
		return nil, err
	}
	h, err := n.mnt.src.Open(by, n.low.path, false)
	if err == nil {
		defer h.Close()
		b := &block{gen: f.gen, data: make([]byte, size)}
		if _, err = h.ReadAt(b.data, off); err == nil || err == io.EOF { // a file that shrank ends in zeros
			n.blocks[i] = b
			return b, nil
		}
	}
	_ = f.charge(-size)
	return nil, errnoOf(err)
}

// resize makes a file that belongs to this FS shorter, or longer by a hole. The caller holds mu.
func (f *FS) resize(by any, n *node, size int64) error {
	keep := int((size + blockSize - 1) / blockSize)
	if tail := int(size % blockSize); tail > 0 && size < n.size {
		if keep <= len(n.blocks) && n.blocks[keep-1] != nil {
			if b := n.blocks[keep-1]; len(b.data) > tail {
				_ = f.charge(-int64(len(b.data) - tail))
				n.blocks[keep-1] = &block{gen: f.gen, data: append([]byte(nil), b.data[:tail]...)}
			}
		}
	}
	var freed int64
	for i := keep; i < len(n.blocks); i++ {
		freed += n.blocks[i].cost()
	}
	if keep < len(n.blocks) {
		clear(n.blocks[keep:])
		n.blocks = n.blocks[:keep:keep]
	}
	if n.below() > size {
		low := *n.low
		low.size = size
		n.low = &low
	}
	n.size = size
	_ = f.charge(-freed) // giving back never fails
	return nil
}

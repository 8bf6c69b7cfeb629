package store

import (
	"cmp"
	"slices"
)

// packUse is what is in use of a pack: its chunks, by offset.
type packUse map[uint32]*chunkUse

// chunkUse is what is in use of a chunk.
type chunkUse struct {
	stored, raw uint32
	ranges      []byteRange // in order, apart from each other
}

// byteRange is from up to, not including, to.
type byteRange struct{ from, to uint32 }

// add marks a part of a chunk.
func (u packUse) add(c *chunk, from, to uint32) {
	use := u[c.off]
	if use == nil {
		use = &chunkUse{stored: c.stored, raw: c.raw}
		u[c.off] = use
	}
	use.add(byteRange{from, to})
}

// add marks a range, joined with those that it touches.
func (u *chunkUse) add(r byteRange) {
	first, _ := slices.BinarySearchFunc(u.ranges, r.from, func(b byteRange, from uint32) int { return cmp.Compare(b.to, from) })
	last := first
	for last < len(u.ranges) && u.ranges[last].from <= r.to {
		r.from, r.to = min(r.from, u.ranges[last].from), max(r.to, u.ranges[last].to)
		last++
	}
	u.ranges = slices.Replace(u.ranges, first, last, r)
}

// has reports whether the piece at off is in use.
func (u *chunkUse) has(off uint32) bool {
	for _, r := range u.ranges {
		if off < r.to {
			return off >= r.from
		}
	}
	return false
}

// live estimates how many of a pack's bytes are in use.
func (u packUse) live() (n int64) {
	for _, c := range u {
		var raw int64
		for _, r := range c.ranges {
			raw += int64(r.to - r.from)
		}
		n += raw * int64(c.stored) / int64(c.raw)
	}
	return n
}
